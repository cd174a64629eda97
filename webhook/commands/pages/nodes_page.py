"""Page of nodes: their load, its source and age, what is assumed, and the services whose thresholds it exceeds."""

from collections.abc import Iterable

import click

from webhook.commands.pages.table import format_duration, format_table
from webhook.core.plain_text import escape_document
from webhook.core.reporting.node_document import NodeDocument, ShownNode

_HEADINGS = ("NODE", "CPU", "MEMORY", "CPU USED", "MEMORY USED", "SOURCE", "AGE", "ASSUMED")
_WIDE_HEADINGS = ("ASSUMED CPU", "ASSUMED MEMORY", "PRESSURE", "LATENCY", "NUMA CPU")
_LAST_HEADING = "EXCEEDS"
_SERVICES_SHOWN = 3
_GIB = 1 << 30


def format_nodes(document: NodeDocument, *, is_wide: bool) -> Iterable[str]:
    """Yield the lines of the page."""
    document = escape_document(document)
    if not document.nodes:
        yield "no node is known"
        yield from _format_unread(document)
        return
    headings = (*_HEADINGS, *(_WIDE_HEADINGS if is_wide else ()), _LAST_HEADING)
    yield from format_table([headings, *(_format_cells(node, is_wide=is_wide) for node in document.nodes)])
    if len(document.nodes) > 1 and document.count > len(document.nodes):
        yield f"the hottest {len(document.nodes)} of {document.count}"
    yield from _format_unread(document)


def _format_unread(document: NodeDocument) -> Iterable[str]:
    for text in document.unread:
        yield click.style(f"cannot be read: {text}", fg="red")


def _format_cells(node: ShownNode, *, is_wide: bool) -> tuple[str, ...]:
    load = node.load
    cells: tuple[str, ...] = (
        node.name,
        _format_share(node.cpu_share),
        _format_share(node.memory_share),
        _format_used(None if load is None else load.cpu_millis, node.allocatable_cpu_millis, 1000, ""),
        _format_used(None if load is None else load.memory_bytes, node.allocatable_memory_bytes, _GIB, "Gi"),
        ("unknown" if load is None else load.source) + (", silent" if node.is_silent else ""),
        "-" if node.age_seconds is None else format_duration(round(node.age_seconds)),
        "-" if not node.assumed_pods else f"{node.assumed_pods} Pod{'' if node.assumed_pods == 1 else 's'}",
    )
    if is_wide:
        cells += (
            f"{node.assumed_cpu_millis / 1000:.4g}",
            f"{node.assumed_memory_bytes / _GIB:.4g}Gi",
            _format_pressure(node),
            "-" if load is None or load.latency_seconds is None else f"{load.latency_seconds:.3g}s",
            "-" if node.numa_cpu_millis is None else " ".join(f"{millis / 1000:g}" for millis in node.numa_cpu_millis),
        )
    return (*cells, click.style(_format_exceeded(node.exceeds), fg="red" if node.exceeds else None))


def _format_share(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _format_used(value: float | None, allocatable: float, unit: int, suffix: str) -> str:
    used = "?" if value is None else f"{value / unit:.4g}"
    return f"{used}/{allocatable / unit:.4g}{suffix}"


def _format_pressure(node: ShownNode) -> str:
    load = node.load
    if load is None:
        return "-"
    found = {"cpu": load.cpu_pressure, "mem": load.memory_pressure, "io": load.io_pressure}
    return " ".join(f"{name} {value:.2g}" for name, value in found.items() if value is not None) or "-"


def _format_exceeded(exceeds: dict[str, str]) -> str:
    """Return the rules with the services, at most a few of each."""
    by_rule: dict[str, list[str]] = {}
    for service, rule in sorted(exceeds.items()):
        by_rule.setdefault(rule, []).append(service)
    parts = []
    for rule, services in sorted(by_rule.items()):
        more = len(services) - _SERVICES_SHOWN
        parts.append(f"{rule}: {', '.join(services[:_SERVICES_SHOWN])}" + (f" and {more} more" if more > 0 else ""))
    return "; ".join(parts) or "-"
