"""Corpus: valid Pods as the API server may send them, each named by its special property."""

from webhook.core.proof.corpus.samples import CORPUS, Sample

__all__ = ["CORPUS", "Sample"]
