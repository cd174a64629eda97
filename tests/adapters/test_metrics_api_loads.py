"""Load of nodes from the metrics API: averages from one answer to the next, and answers that are no measurement."""

import json
from typing import Any

import pytest

from webhook.adapters.node_loads import MetricsApiLoads
from webhook.core.policy_fields.nodes import LoadSource, MetricsApiSource, Nodes
from webhook.errors import LoadSourceError

NODES = Nodes(sources=(LoadSource(metrics_api=MetricsApiSource()),))


def item(name: str, cpu: str = "2", memory: str = "1Ki", at: str = "2026-01-01T00:00:00Z") -> dict[str, Any]:
    return {"metadata": {"name": name}, "timestamp": at, "usage": {"cpu": cpu, "memory": memory}}


def source(*bodies: bytes) -> MetricsApiLoads:
    answers = iter(bodies)

    async def get() -> bytes:
        return next(answers)

    return MetricsApiLoads("metricsAPI", get, NODES)


def encode_list(*items: dict[str, Any]) -> bytes:
    return json.dumps({"kind": "NodeMetricsList", "items": items}).encode()


async def test_average_moves_by_the_time_between_two_answers() -> None:
    loads = source(encode_list(item("a", "8")), encode_list(item("a", "4", at="2026-01-01T00:00:30Z")))
    assert (await loads.measure(0))["a"].cpu_millis == 8000
    found = (await loads.measure(0))["a"]
    assert found.cpu_millis == pytest.approx(0.8 * 8000 + 0.2 * 4000)
    assert found.memory_bytes == 1024


@pytest.mark.parametrize(
    "wrong",
    [
        {"cpu": "-9223372036854775808m"},
        {"memory": "-1"},
        {"cpu": "NaN"},
        {"cpu": "many"},
        {"cpu": "1e999999"},
        {"at": "yesterday"},
        {"at": "0001-01-01T00:00:00Z"},
    ],
)
async def test_node_without_a_usable_measurement_is_left_out_and_named(wrong: dict[str, str]) -> None:
    loads = source(encode_list(item("good"), item("lying", **wrong)))
    assert list(await loads.measure(0)) == ["good"]
    [(name, reason)] = loads.unread.items()
    assert (name, next(iter(wrong.values())) in reason) == ("lying", True), reason


@pytest.mark.parametrize(
    ("bad", "name"),
    [
        ({"metadata": {"name": "b"}, "timestamp": 5, "usage": {}}, "b"),
        ({"metadata": {"name": "b"}}, "b"),
        ({}, "items[1]"),
        (5, "items[1]"),
    ],
)
async def test_item_of_another_type_loses_its_own_node_alone(bad: Any, name: str) -> None:
    loads = source(encode_list(item("a"), bad, item("c")), encode_list(item("a"), item("b")))
    assert list(await loads.measure(0)) == ["a", "c"]
    assert list(loads.unread) == [name]
    assert list(await loads.measure(0)) == ["a", "b"]
    assert loads.unread == {}


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"null", b'{"items":[{}]}', b'{"items":[', b"\xff", b'{"items":null}', encode_list()]
)
async def test_answer_without_any_load_is_an_error(body: bytes) -> None:
    with pytest.raises(LoadSourceError, match="metricsAPI"):
        await source(body).measure(0)
