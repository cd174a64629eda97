"""Scheduling decisions of the extender: which nodes are too hot for a Pod, and how good the others are."""
