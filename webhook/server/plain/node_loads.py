"""Node page of the extender's decision port: the load of each node, its source and age, and what is assumed."""

from collections.abc import Mapping
from http import HTTPStatus

import msgspec
from msgspec import Struct

from webhook.core.kubernetes.pod_requests import NANO
from webhook.core.scheduling.node_load import NodeLoad
from webhook.core.scheduling.node_table import NodeRow
from webhook.extender.load_table import LoadTable
from webhook.server.http_messages import JSON, HttpResponse
from webhook.server.plain.local_pages import Page

NODES = "/api/v1/nodes"
_MILLI = NANO // 1000


class ShownNode(Struct, rename="camel"):
    """One node as JSON. Shares are of the allocatable amount, and None if unknown."""

    name: str
    cpu_share: float | None
    memory_share: float | None
    assumed_cpu_millis: float
    assumed_memory_bytes: float
    load: NodeLoad | None
    numa_cpu_millis: tuple[int, ...] | None
    """Millicores available in each NUMA zone, None if the node binds no Pods to zones."""

    @classmethod
    def of(cls, row: NodeRow) -> "ShownNode":
        assumed, numa = row.assumed, row.numa
        return cls(
            row.node.name,
            row.cpu_used(),
            row.memory_used(),
            assumed.cpu_millis,
            assumed.memory_bytes,
            row.load,
            None if numa is None else tuple(zone.get("cpu", 0) // _MILLI for zone in numa.zones),
        )


def node_page(table: LoadTable) -> Page:
    """Return the page."""

    async def show(_: Mapping[str, str]) -> HttpResponse:
        shown = [ShownNode.of(row) for _, row in sorted(table.rows.items())]
        return HttpResponse(HTTPStatus.OK, msgspec.json.encode({"nodes": shown}), JSON)

    return show
