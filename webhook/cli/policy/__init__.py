"""`podgate policy`: check, compare and render policy documents, and follow and change their rollout."""

from webhook.cli.policy.group import policy

__all__ = ["policy"]
