"""Watched Pods: the service that owns each, the outcome of its start, and disruptions."""
