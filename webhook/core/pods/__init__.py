"""Watched Pods: the service that owns each, the outcome of its start, disruptions, and checks of manifests."""
