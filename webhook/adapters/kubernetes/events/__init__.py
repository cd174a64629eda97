"""Kubernetes Events: their objects, and a sender with a bounded queue."""
