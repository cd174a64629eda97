"""Nodes: their watch, their metrics, and the wake of kube-scheduler when their load falls."""
