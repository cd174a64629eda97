"""RFC 3339 timestamps, to the microsecond."""

import re
from datetime import UTC, datetime, timedelta

from webhook.core.kubernetes.quantity import UnreadableTextError

_RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST = datetime(9999, 1, 1, tzinfo=UTC)
_US = timedelta(microseconds=1)


def parse_microseconds(text: str) -> int:
    """Return microseconds since the Unix epoch. UnreadableTextError: not a time."""
    remedy = "write one such as 2026-12-01T04:00:00Z"
    try:
        moment = datetime.fromisoformat(text) if _RFC3339.fullmatch(text) else None
    except ValueError:
        raise UnreadableTextError("no such day or time", remedy) from None
    if moment is None:
        raise UnreadableTextError("not an RFC 3339 time", remedy)
    if not _EPOCH <= moment < _LATEST:
        raise UnreadableTextError("not a time between the years 1970 and 9999", remedy)
    return (moment - _EPOCH) // _US


def format_rfc3339(at_us: int) -> str:
    """Return a time in UTC, in whole seconds, never earlier than `at_us`."""
    return (_EPOCH + timedelta(seconds=-(-at_us // 1_000_000))).strftime("%Y-%m-%dT%H:%M:%SZ")
