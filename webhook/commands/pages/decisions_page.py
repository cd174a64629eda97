"""Decision records as a table, one row each."""

from collections.abc import Iterable, Sequence
from typing import Any

import click

from webhook.core.plain_text import printable_document

_COLUMNS = (("TIME", 24), ("DECISION", 9), ("HALF", 8), ("SERVICE", 20), ("POD", 36))
_WIDE = (("USER", 28), ("OWNER", 36), ("UID", 36), ("POLICY", 16))
_COLOURS = {"Deny": "red", "Queue": "yellow"}


def heading(*, wide: bool) -> str:
    """Return the row of headings."""
    return _row([name for name, _ in _columns(wide=wide)], "MESSAGE", wide=wide)


def rows(decisions: Iterable[dict[str, Any]], *, wide: bool) -> Iterable[str]:
    """Yield the row of each record."""
    for record in map(printable_document, decisions):
        cells = [
            _time(record["at"]),
            record["decision"],
            record["half"],
            record.get("service", "-"),
            f"{record['namespace']}/{record.get('workload') or _name(record)}",
        ]
        if wide:
            owner = record.get("owner", {})
            name = f"{owner.get('kind', '')}/{owner.get('name', '')}" if owner else "-"
            cells += [record["user"], name, record.get("uid", "-"), record.get("policy", "-")]
        text = _row(cells, _message(record, wide=wide), wide=wide)
        yield click.style(text, fg=_COLOURS[record["decision"]]) if record["decision"] in _COLOURS else text


def _columns(*, wide: bool) -> Sequence[tuple[str, int]]:
    return (*_COLUMNS, *_WIDE) if wide else _COLUMNS


def _row(cells: Sequence[str], last: str, *, wide: bool) -> str:
    padded = [cell.ljust(width) for cell, (_, width) in zip(cells, _columns(wide=wide), strict=True)]
    return "  ".join((*padded, last)).rstrip()


def _time(at: str) -> str:
    """Return a time to the millisecond; a whole second has no fraction."""
    seconds, _, fraction = at.removesuffix("Z").partition(".")
    return f"{seconds}.{fraction[:3].ljust(3, '0')}Z"


def _name(record: dict[str, Any]) -> str:
    name: str = record.get("name", "")
    return f"{name}*" if name.endswith("-") else name


def _message(record: dict[str, Any], *, wide: bool) -> str:
    texts = [_DRY_RUN] if record.get("dryRun") else []
    texts += filter(None, [_reason(record)])
    message = ": ".join(texts)
    return message if wide or len(message) <= _MESSAGE_LENGTH else f"{message[:_MESSAGE_LENGTH]}..."


def _reason(record: dict[str, Any]) -> str:
    if record["decision"] == "Exempt":
        return f"exempt by {record.get('exemption', '')}"
    reason: str = record["status"].get("message", "") or "; ".join(
        f"{finding['mode']}: {finding['code']}: {finding['message']}" for finding in record.get("findings", ())
    )
    return reason


_MESSAGE_LENGTH = 120
_DRY_RUN = "dry run"
