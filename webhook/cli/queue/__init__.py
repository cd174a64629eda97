"""`podgate queue`: waiting Pods in the order of their release, and manual changes of that order."""

from webhook.cli.queue.group import QueueGroup, queue

__all__ = ["QueueGroup", "queue"]
