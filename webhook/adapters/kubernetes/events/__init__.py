"""Kubernetes Events: what they report, and a sender with a bounded queue."""
