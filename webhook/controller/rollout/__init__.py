"""Rollout of the policy, on the leader: figures of Pods by policy, progress, and what people are told."""
