"""Pages of the extender's decision port: the load of each node, and the scheduling records of Pods."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice

import msgspec
from msgspec.structs import replace

from webhook.core.kubernetes.pod import Pod, PodMetadata, PodSpec
from webhook.core.kubernetes.pod_requests import NANO
from webhook.core.reporting.node_document import NodeDocument, ShownNode
from webhook.core.scheduling.assumed_load import NO_LOAD
from webhook.core.scheduling.hot_node_filters import NodeFilters, make_filters
from webhook.core.scheduling.node_selection import ServiceRules
from webhook.core.scheduling.node_table import NodeRow
from webhook.extender.extender import Extender
from webhook.extender.scheduling_records import SchedulingRecords
from webhook.server.http_messages import HttpResponse, build_json_response
from webhook.server.plain.local_pages import Page, check_parameters, parse_limit

SCHEDULING = "/api/v1/scheduling"
_TEXTS = ("service", "namespace", "name", "uid", "node")
_LIMIT, _LIMIT_MAX = 100, 1_000


def build_scheduling_page(records: SchedulingRecords) -> Page:
    """Return the page: records, the newest first, that have all the given values."""

    async def show(parameters: Mapping[str, str]) -> HttpResponse:
        check_parameters(parameters, (*_TEXTS, "limit"))
        limit = parse_limit(parameters, _LIMIT, _LIMIT_MAX)
        asked = [(name, parameters[name]) for name in _TEXTS if parameters.get(name)]
        found = (
            record
            for record in records.list_newest_first()
            if all(getattr(record, name) == value for name, value in asked)
        )
        return build_json_response(msgspec.json.encode({"records": list(islice(found, limit))}))

    return show


NODES = "/api/v1/nodes"
_NODES_MAX = 50_000
_MILLI = NANO // 1000
_ANY_POD = Pod(PodMetadata(), PodSpec())
"""Its QoS class is BestEffort: no zone of a node refuses it. It is judged without a load of its own."""


def build_node_page(
    extender: Extender, now_seconds: Callable[[], float], list_unread: Callable[[], Sequence[str]] = tuple
) -> Page:
    """Return the page. With `name` it shows one node, with `limit` the hottest ones, the hottest first.

    `list_unread` returns the objects and values that cannot be read.
    """

    async def show(parameters: Mapping[str, str]) -> HttpResponse:
        check_parameters(parameters, ("name", "limit"))
        document = _build_document(extender, _select_rows(extender.table.rows, parameters), now_seconds())
        return build_json_response(msgspec.json.encode(replace(document, unread=tuple(list_unread()))))

    return show


def _select_rows(rows: Mapping[str, NodeRow], parameters: Mapping[str, str]) -> list[NodeRow]:
    if (node := parameters.get("name")) is not None:
        return [rows[node]] if node in rows else []
    if "limit" not in parameters:
        return [row for _, row in sorted(rows.items())]
    hottest = sorted(rows.values(), key=lambda row: (-_compute_share(row), row.node.name))
    return hottest[: parse_limit(parameters, _NODES_MAX, _NODES_MAX)]


def _compute_share(row: NodeRow) -> float:
    return max(
        (share for share in (row.compute_cpu_share(), row.compute_memory_share()) if share is not None), default=-1.0
    )


def _build_document(extender: Extender, rows: Iterable[NodeRow], now_seconds: float) -> NodeDocument:
    counts, rules = extender.table.count_assumed_pods(), list(_group_filters(extender.list_services().values()))
    shown = []
    for row in rows:
        node, load, numa = row.node, row.load, row.numa
        refused = {
            name: found.rule for filters, names in rules if (found := filters.find_refusal(row)) for name in names
        }
        shown.append(
            ShownNode(
                node.name,
                cpu_share=row.compute_cpu_share(),
                memory_share=row.compute_memory_share(),
                assumed_cpu_millis=row.assumed.cpu_millis,
                assumed_memory_bytes=row.assumed.memory_bytes,
                load=load,
                numa_cpu_millis=None if numa is None else tuple(zone.get("cpu", 0) // _MILLI for zone in numa.zones),
                allocatable_cpu_millis=node.cpu_millis,
                allocatable_memory_bytes=node.memory_bytes,
                assumed_pods=counts.get(node.name, 0),
                age_seconds=None if load is None else round(max(0.0, now_seconds - load.measured_at_seconds), 1),
                is_silent=row.is_silent,
                exceeds=refused,
            )
        )
    return NodeDocument(tuple(shown), len(extender.table.rows))


def _group_filters(services: Iterable[ServiceRules]) -> Iterable[tuple[NodeFilters, list[str]]]:
    """Return the filters of services, those with equal thresholds together."""
    found: dict[tuple[object, ...], tuple[NodeFilters, list[str]]] = {}
    for service in services:
        rules = service.rules
        key = rules.hot, rules.pressure, rules.when_unknown
        found.setdefault(key, (make_filters(_ANY_POD, rules, NO_LOAD), []))[1].append(service.service)
    return found.values()
