"""Structured logs: rate-limited denials, every Nth of the other reviews, and all events that concern an operator."""

from webhook.adapters.logs.lines import JsonLines
from webhook.adapters.logs.log_observer import Logs

__all__ = ["JsonLines", "Logs"]
