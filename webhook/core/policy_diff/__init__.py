"""Difference of two policies: the services, pools and fields that change, and the Pods that change their service."""

from webhook.core.policy_diff.differences import EntryChange, PolicyDifference, compare

__all__ = ["EntryChange", "PolicyDifference", "compare"]
