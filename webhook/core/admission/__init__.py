"""Evaluation of one AdmissionReview: decoding, stages, rewriting, checking, and the response."""
