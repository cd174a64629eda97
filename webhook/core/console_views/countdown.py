"""Countdowns: the time from the server's clock until a moment, as a cell that the page continues."""

from webhook.core.console_views.cell import LiveCell, format_countdown
from webhook.core.kubernetes.timestamps import parse_microseconds

_SECOND_US = 1_000_000
NO_COUNTDOWN = LiveCell("", {"data-until": None})


def count_seconds(moment: str | None, time: str) -> int:
    """Return the whole seconds until a moment, rounded up; 0 without one, or if it is over."""
    try:
        left_us = parse_microseconds(moment or "") - parse_microseconds(time)
    except ValueError:
        return 0
    return max(0, -(-left_us // _SECOND_US))


def build_countdown(moment: str | None, time: str, otherwise: str = "") -> LiveCell:
    """Return the countdown to a moment; `otherwise` without one, or if it is over."""
    seconds = count_seconds(moment, time)
    if not seconds:
        return LiveCell(otherwise, {"data-until": None})
    return LiveCell(format_countdown(seconds), {"data-until": moment})
