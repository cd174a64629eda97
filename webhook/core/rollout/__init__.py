"""Rollout of a policy: which policy is in force where, its state as all replicas share it, and what takes it back."""
