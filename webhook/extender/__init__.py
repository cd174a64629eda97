"""Scheduler extender: the load of nodes, kept current, and the answers to kube-scheduler's calls."""
