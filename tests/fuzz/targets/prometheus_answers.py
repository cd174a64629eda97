"""Answers of Prometheus: loads are finite numbers of nodes that the answer names, or the source says what is wrong.

The first byte of an input chooses the status; the same answer is given to all queries.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from math import isfinite
from typing import Any, Self

from tests.fuzz.catalogue import Form
from tests.fuzz.oracles import MESSAGE_CHARACTERS_MAX, read_json
from webhook.adapters.node_loads import PrometheusLoads
from webhook.core.json_depth import make_readable
from webhook.core.policy_fields.nodes import LoadSource, NodeQueries, Nodes, PrometheusSource
from webhook.errors import LoadSourceError

FORM = Form.JSON
WORDS = (
    *("status", "success", "error", "data", "result", "resultType", "vector", "matrix", "metric", "value", "values"),
    *(
        "node",
        "instance",
        "n1",
        "10.0.0.1:9100",
        "[::1]:9100",
        "1.5",
        "NaN",
        "+Inf",
        "-1",
        "1e308",
        "1e-320",
        "0x1p3",
        "1_000",
    ),
)
NOW = 1_800_000_000.0
_STATUSES = (200, 200, 200, 400, 401, 503)
_source = PrometheusSource(url="http://prometheus", queries=NodeQueries(cpu="cpu", memory="memory"))
_loop = asyncio.new_event_loop()


class _Content:
    def __init__(self, body: bytes) -> None:
        self._body = body

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        for start in range(0, len(self._body), size):
            yield self._body[start : start + size]


class _Response:
    """An answer, and the session that gets it."""

    def __init__(self, status: int, body: bytes) -> None:
        self.status = status
        self.content = _Content(body)

    def post(self, *_: Any, **__: Any) -> Self:
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def close(self) -> None: ...


def list_seeds() -> list[bytes]:
    node, other = {"node": "n1"}, {"instance": "10.0.0.1:9100"}
    results: list[Any] = [
        [{"metric": node, "value": [NOW, "1.5"]}],
        [{"metric": node, "values": [[NOW - 30, "1"], [NOW, "2"]]}, {"metric": other, "value": [NOW, "NaN"]}],
        [{"metric": node, "value": [NOW, "+Inf"]}, {"metric": {"node": 1}, "value": [NOW, "3"]}],
        [{"metric": node, "value": [NOW, 3]}],
        [],
    ]
    answers = [{"status": "success", "data": {"resultType": "vector", "result": each}} for each in results]
    seeds = [b"\0" + json.dumps(answer).encode() for answer in answers]
    failure = json.dumps({"status": "error", "errorType": "bad_data", "error": "parse error"}).encode()
    return [*seeds, b"\3" + failure, b"\4", b"\5<html>", b"\0" + failure]


def check(data: bytes) -> None:
    status, body = _STATUSES[(data[0] if data else 0) % len(_STATUSES)], data[1:]
    source = PrometheusLoads("prometheus", _source, Nodes(sources=(LoadSource(prometheus=_source),)), lambda: True)
    source._api._session = _Response(status, body)  # type: ignore[assignment]
    try:
        loads = _loop.run_until_complete(source.measure(NOW))
    except LoadSourceError as error:
        assert str(error).startswith("prometheus: ")
        assert len(str(error)) <= MESSAGE_CHARACTERS_MAX
        return
    assert status == 200
    answer = read_json(make_readable(body))
    assert answer["status"] == "success"
    assert loads
    text = json.dumps(answer, ensure_ascii=False)
    for name, load in loads.items():
        assert json.dumps(name, ensure_ascii=False)[1:-1] in text
        assert load.source == "prometheus"
        for value in (load.cpu_millis, load.memory_bytes, load.cpu_deviation_millis, load.memory_deviation_bytes):
            assert value is not None
            assert isfinite(value), load
            assert value >= 0, load
        assert isfinite(load.measured_at_seconds), load
