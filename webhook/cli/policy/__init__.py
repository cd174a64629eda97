"""`podgate policy`: check, compare and render policy documents; their schema, and webhook configurations."""

from webhook.cli.policy.group import policy

__all__ = ["policy"]
