"""MetricsApiLoads: the load of nodes from the metrics API, averaged over successive answers."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from webhook.core.json_depth import UNREADABLE_JSON, decode_foreign
from webhook.core.kubernetes import pod_requests
from webhook.core.kubernetes.pod import Amounts
from webhook.core.kubernetes.timestamps import parse_microseconds
from webhook.core.policy_fields.nodes import Nodes
from webhook.core.scheduling.measured_load import Decay, NodeLoad
from webhook.errors import LoadSourceError
from webhook.support.slices import slices

_SLICE = 100
"""Nodes whose values are decoded in one turn of the event loop. More would delay calls."""
_US = 1_000_000
_MILLI = pod_requests.NANO // 1000


class _Metadata(Struct):
    name: str


class _Usage(Struct):
    cpu: str
    memory: str


class _NodeMetrics(Struct):
    metadata: _Metadata
    timestamp: str
    usage: _Usage


class _NodeMetricsList(Struct):
    items: list[msgspec.Raw] | None = None


class MetricsApiLoads:
    """A `ports.NodeLoads`. The API has only the newest values, so the average is kept here."""

    def __init__(self, name: str, get: Callable[[], Awaitable[bytes]], nodes: Nodes) -> None:
        """Create it. `get` returns a NodeMetricsList as JSON. LoadSourceError without an answer."""
        self.name = name
        self._get = get
        self._decay = Decay(nodes.decay.factor, nodes.decay.every.us / _US)
        self._loads: dict[str, NodeLoad] = {}
        self.unread: dict[str, str] = {}

    async def measure(self, now_seconds: float) -> Mapping[str, NodeLoad]:
        """Return the loads; their times are those of the answer, whenever it is asked for."""
        del now_seconds
        body = await self._get()
        loads: dict[str, NodeLoad] = {}
        unread: dict[str, str] = {}
        try:
            found = decode_foreign(body, _NodeMetricsList).items or []
        except UNREADABLE_JSON as error:
            raise LoadSourceError(f"{self.name}: not understood: {error}") from error
        number = 0
        async for items in slices(found, _SLICE):
            for item in items:
                try:
                    metrics = decode_foreign(item, _NodeMetrics)
                    loads[metrics.metadata.name] = self._average(metrics)
                except (ValueError, *UNREADABLE_JSON) as error:
                    unread[_find_name(item) or f"items[{number}]"] = str(error)
                number += 1
        self._loads, self.unread = loads, unread
        if not loads:
            raise LoadSourceError(f"{self.name}: no node's cpu and memory in its {len(found)} items")
        return loads

    async def close(self) -> None:
        """Do nothing: the client is the caller's."""

    def _average(self, found: _NodeMetrics) -> NodeLoad:
        """Return the load of one node. ValueError: a value is not valid.

        Metrics adapters convert NaN to a negative amount.
        """
        name = found.metadata.name
        try:
            at_seconds = parse_microseconds(found.timestamp) / _US
        except ValueError as error:
            raise ValueError(f"timestamp: {pod_requests.shorten(found.timestamp)!r}: {error}") from None
        usage: Amounts = {"cpu": found.usage.cpu, "memory": found.usage.memory}
        try:
            cpu = (pod_requests.read_amount(usage, "cpu") or 0) / _MILLI
            memory = (pod_requests.read_amount(usage, "memory") or 0) / pod_requests.NANO
        except OverflowError:
            raise ValueError(f"usage: {pod_requests.shorten(str(usage))}: too large") from None
        before = self._loads.get(name)
        if before is None or before.cpu_millis is None or before.memory_bytes is None:
            return NodeLoad(self.name, at_seconds, cpu, memory)
        kept = self._decay.compute_weight(at_seconds - before.measured_at_seconds)
        return NodeLoad(
            self.name,
            at_seconds,
            kept * before.cpu_millis + (1 - kept) * cpu,
            kept * before.memory_bytes + (1 - kept) * memory,
        )


def _find_name(item: msgspec.Raw) -> str:
    """Return the name of an item that cannot be decoded, "" if it has none."""
    try:
        document: Any = decode_foreign(item, object)
    except UNREADABLE_JSON:
        return ""
    metadata = document.get("metadata") if isinstance(document, dict) else None
    return str(metadata.get("name") or "") if isinstance(metadata, dict) else ""
