"""Nodes of the console: the load of each as an extender knows it, its NUMA zones, and for whom it is too hot."""

from collections.abc import Sequence

from msgspec import Struct

from webhook.core.console_views.cell import Cells, LiveCell
from webhook.core.reporting.node_document import NodeDocument, ShownNode
from webhook.core.reporting.queue_document import format_duration
from webhook.core.scheduling.measured_load import REQUESTS

ROWS = 50
_NEARLY_FULL, _FULL = 0.8, 1.0
_GIB = 1 << 30
_SERVICES_SHOWN = 3
_RULE_WORDS = {
    "hot_cpu": "cpu is hot",
    "hot_memory": "memory is hot",
    "hot_combined": "cpu and memory together are hot",
    "pressure_cpu": "cpu pressure",
    "pressure_memory": "memory pressure",
    "pressure_io": "io pressure",
    "unknown": "its load is unknown",
}
STATE_WORDS = {"HOT": "Hot", "SILENT": "Silent", "UNKNOWN": "Load unknown", "REQUESTS": "Not measured", "COOL": "Cool"}


class NodesView(Struct, frozen=True, rename="camel"):
    """One page of nodes, the hottest first, or one node by its name."""

    time: str
    name: str = ""
    page: int = 1
    extender: str = ""
    """The extender whose view this is: each assumes load of new Pods for itself."""
    nodes: tuple[ShownNode, ...] = ()
    count: int = 0
    pages: int = 1
    unread: tuple[str, ...] = ()
    problem: str = ""
    remedy: str = ""

    def list_order(self) -> Sequence[str]:
        return [*(node.name for node in self.nodes), *self.unread, self.problem]

    def list_cells(self) -> Cells:
        """Return the cells of the page."""
        cells = {"time": LiveCell(self.time[11:19] + " UTC")}
        for node in self.nodes:
            cells |= {f"{node.name}/{key}": cell for key, cell in _list_node_cells(node).items()}
        return cells


def build_nodes(document: NodeDocument, extender: str, time: str, name: str, page: int) -> NodesView:
    """Return one page of a document that has the hottest nodes up to that page, or of one that has one node."""
    pages = 1 if name else max(1, -(-document.count // ROWS))
    page = min(max(1, page), pages)
    shown = document.nodes if name else document.nodes[(page - 1) * ROWS : page * ROWS]
    return NodesView(time, name, page, extender, shown, document.count, pages, document.unread)


def judge_node(node: ShownNode) -> str:
    """Return the state of a node, a key of STATE_WORDS, the worst that holds."""
    if any(rule != "unknown" for rule in node.exceeds.values()):
        return "HOT"
    if node.is_silent:
        return "SILENT"
    if node.load is None:
        return "UNKNOWN"
    return "REQUESTS" if node.load.source == REQUESTS else "COOL"


def _list_node_cells(node: ShownNode) -> Cells:
    load, state = node.load, judge_node(node)
    return {
        "state": LiveCell(STATE_WORDS[state], {"data-state": state}),
        "whom": LiveCell(_describe_exceeded(node)),
        "cpu": LiveCell(_format_used(None if load is None else load.cpu_millis, node.allocatable_cpu_millis, 1000, "")),
        "cpu-share": LiveCell(_format_share(node.cpu_share)),
        "cpu-gauge": _build_gauge(node.cpu_share),
        "memory": LiveCell(
            _format_used(None if load is None else load.memory_bytes, node.allocatable_memory_bytes, _GIB, " GiB")
        ),
        "memory-share": LiveCell(_format_share(node.memory_share)),
        "memory-gauge": _build_gauge(node.memory_share),
        "source": LiveCell("unknown" if load is None else load.source),
        "age": LiveCell("" if node.age_seconds is None else f"{format_duration(round(node.age_seconds))} old"),
        "signals": LiveCell(_describe_signals(node)),
        "assumed": LiveCell(_describe_assumed(node)),
        "zones": LiveCell(_describe_zones(node)),
    }


def _build_gauge(share: float | None) -> LiveCell:
    if share is None:
        return LiveCell(attributes={"width": "0", "data-state": "low"})
    level = "full" if share >= _FULL else "high" if share >= _NEARLY_FULL else "low"
    return LiveCell(attributes={"width": str(min(100, max(0, round(100 * share)))), "data-state": level})


def _format_share(share: float | None) -> str:
    return "?" if share is None else f"{100 * share:.0f} %"


def _format_used(value: float | None, allocatable: float, unit: int, suffix: str) -> str:
    used = "" if value is None else f"{value / unit:.3g} "
    return f"{used}of {allocatable / unit:.4g}{suffix}"


def _describe_assumed(node: ShownNode) -> str:
    if not node.assumed_pods:
        return "none"
    pods = f"{node.assumed_pods} {'Pod' if node.assumed_pods == 1 else 'Pods'}"
    return f"{pods}: {node.assumed_cpu_millis / 1000:.3g} cpu, {node.assumed_memory_bytes / _GIB:.3g} GiB"


def _describe_signals(node: ShownNode) -> str:
    load = node.load
    if load is None:
        return ""
    found = {"cpu": load.cpu_pressure, "memory": load.memory_pressure, "io": load.io_pressure}
    pressure = ", ".join(f"{name} {value:.2g}" for name, value in found.items() if value is not None)
    parts = [f"pressure {pressure}"] if pressure else []
    return "; ".join(parts + ([] if load.latency_seconds is None else [f"latency {load.latency_seconds:.3g} s"]))


def _describe_zones(node: ShownNode) -> str:
    """Return the cpu that is available in each NUMA zone."""
    zones = node.numa_cpu_millis
    return "not bound" if zones is None else ", ".join(f"{millis / 1000:g}" for millis in zones) or "none"


def _describe_exceeded(node: ShownNode) -> str:
    """Return the rules that the node breaks, each with a few of the services that have it."""
    by_rule: dict[str, list[str]] = {}
    for service, rule in sorted(node.exceeds.items()):
        by_rule.setdefault(rule, []).append(service)
    parts = []
    for rule, services in sorted(by_rule.items()):
        more = f" and {len(services) - _SERVICES_SHOWN} more" if len(services) > _SERVICES_SHOWN else ""
        parts.append(f"{_RULE_WORDS.get(rule, rule)}, for {', '.join(services[:_SERVICES_SHOWN])}{more}")
    return "; ".join(parts)
