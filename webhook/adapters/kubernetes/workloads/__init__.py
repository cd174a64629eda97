"""Workload controllers: creation failures of their Pods, and retries of their creation."""
