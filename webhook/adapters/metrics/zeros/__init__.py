"""Series at 0 of a policy's services: their label sets, and their lines in a scrape."""

from webhook.adapters.metrics.zeros.label_sets import ProcessRole, zeros
from webhook.adapters.metrics.zeros.lines import ZeroLines

__all__ = ["ProcessRole", "ZeroLines", "zeros"]
