"""Answers of the metrics API: each node is measured, also beside an earlier answer, or named with the reason."""

import asyncio
import json
from math import isfinite
from typing import Any

from tests.fuzz.catalogue import Form
from tests.fuzz.oracles import MESSAGE_CHARACTERS_MAX, read_json
from webhook.adapters.node_loads import MetricsApiLoads
from webhook.core.json_depth import make_readable
from webhook.core.policy_fields.nodes import LoadSource, MetricsApiSource, Nodes
from webhook.errors import LoadSourceError

FORM = Form.JSON
WORDS = (
    *("items", "metadata", "name", "timestamp", "usage", "cpu", "memory", "window", "n1", "2027-01-15T08:00:00Z"),
    *("100m", "1n", "2Gi", "1e3", "-1", "1e999", "NaN", "2027-01-15T08:00:00.123456789+23:59"),
)
_AT = "2027-01-15T08:00:00Z"
_loop = asyncio.new_event_loop()


def list_seeds() -> list[bytes]:
    def item(name: str = "n1", cpu: Any = "100m", at: Any = _AT) -> dict[str, Any]:
        return {"metadata": {"name": name}, "timestamp": at, "window": "10s", "usage": {"cpu": cpu, "memory": "2Gi"}}

    lists: list[Any] = [
        [item()],
        [item(), item("n2", "1500000000n")],
        [item(), item("n2", "-1")],
        [item(), {"metadata": {"name": "n2"}}, {"metadata": 1}, 7],
        [item(cpu="1e999")],
        [item(at="yesterday"), item("n2", at="2027-02-30T08:00:00Z")],
        [],
        None,
    ]
    return [json.dumps({"kind": "NodeMetricsList", "items": each}).encode() for each in lists]


_EARLIER = list_seeds()[1]


def check(data: bytes) -> None:
    bodies = [_EARLIER, data, data]

    async def get() -> bytes:
        return bodies.pop(0)

    source = MetricsApiLoads("metricsAPI", get, Nodes(sources=(LoadSource(metrics_api=MetricsApiSource()),)))
    _loop.run_until_complete(source.measure(0))
    for _ in range(2):
        try:
            loads = _loop.run_until_complete(source.measure(0))
        except LoadSourceError as error:
            assert str(error).startswith("metricsAPI: ")
            assert len(str(error)) <= MESSAGE_CHARACTERS_MAX
            continue
        items = read_json(make_readable(data))["items"]
        assert len(loads) + len(source.unread) <= len(items)
        for load in loads.values():
            assert load.cpu_millis is not None
            assert load.memory_bytes is not None
            assert isfinite(load.cpu_millis), load
            assert isfinite(load.memory_bytes), load
            assert min(load.cpu_millis, load.memory_bytes, load.measured_at_seconds) >= 0, load
        assert all(source.unread.values())
