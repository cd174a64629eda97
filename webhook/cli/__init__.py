"""Command line `podgate`: a group of lazily loaded commands, and its errors: one line with a remedy."""

from webhook.cli.root import main, root

__all__ = ["main", "root"]
