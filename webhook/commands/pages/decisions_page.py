"""Decision records as a table, one row each."""

from collections.abc import Iterable, Sequence
from typing import Any

import click

from webhook.core.plain_text import escape_document

_COLUMNS = (("TIME", 24), ("DECISION", 9), ("HALF", 8), ("SERVICE", 20), ("POD", 36))
_WIDE = (("USER", 28), ("OWNER", 36), ("UID", 36), ("POLICY", 16))
_COLOURS = {"Deny": "red", "Queue": "yellow"}


def format_heading(*, wide: bool) -> str:
    """Return the row of headings."""
    return _format_row([name for name, _ in _list_columns(wide=wide)], "MESSAGE", wide=wide)


def format_rows(decisions: Iterable[dict[str, Any]], *, wide: bool) -> Iterable[str]:
    """Yield the row of each record."""
    for record in map(escape_document, decisions):
        cells = [
            _format_time(record["at"]),
            record["decision"],
            record["half"],
            record.get("service", "-"),
            f"{record['namespace']}/{record.get('workload') or _format_name(record)}",
        ]
        if wide:
            owner = record.get("owner", {})
            name = f"{owner.get('kind', '')}/{owner.get('name', '')}" if owner else "-"
            cells += [record["user"], name, record.get("uid", "-"), record.get("policy", "-")]
        text = _format_row(cells, _format_message(record, wide=wide), wide=wide)
        yield click.style(text, fg=_COLOURS[record["decision"]]) if record["decision"] in _COLOURS else text


def _list_columns(*, wide: bool) -> Sequence[tuple[str, int]]:
    return (*_COLUMNS, *_WIDE) if wide else _COLUMNS


def _format_row(cells: Sequence[str], last: str, *, wide: bool) -> str:
    padded = [cell.ljust(width) for cell, (_, width) in zip(cells, _list_columns(wide=wide), strict=True)]
    return "  ".join((*padded, last)).rstrip()


def _format_time(at: str) -> str:
    """Return a time to the millisecond; a whole second has no fraction."""
    seconds, _, fraction = at.removesuffix("Z").partition(".")
    return f"{seconds}.{fraction[:3].ljust(3, '0')}Z"


def _format_name(record: dict[str, Any]) -> str:
    name: str = record.get("name", "")
    return f"{name}*" if name.endswith("-") else name


def _format_message(record: dict[str, Any], *, wide: bool) -> str:
    texts = [_DRY_RUN] if record.get("dryRun") else []
    texts += filter(None, [_find_reason(record)])
    message = ": ".join(texts)
    return message if wide or len(message) <= _MESSAGE_CHARACTERS_MAX else f"{message[:_MESSAGE_CHARACTERS_MAX]}..."


def _find_reason(record: dict[str, Any]) -> str:
    if record["decision"] == "Exempt":
        return f"exempt by {record.get('exemption', '')}"
    reason: str = record["status"].get("message", "") or "; ".join(
        f"{finding['mode']}: {finding['code']}: {finding['message']}" for finding in record.get("findings", ())
    )
    return reason


_MESSAGE_CHARACTERS_MAX = 120
_DRY_RUN = "dry run"
