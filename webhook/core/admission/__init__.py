"""The evaluation of one AdmissionReview: decoding, stages, rewriting, checking, and the answer."""
