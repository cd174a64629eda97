"""Causes outside of admission: why an admitted Pod does not run, or a workload has no Pods, and the remedy."""
