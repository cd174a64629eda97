"""Kubernetes objects as decisions read them: Pods, quantities, selectors, and workload templates."""
