"""Node index: Pods that are resized in place, and Nodes that share an address."""

from typing import Any

import msgspec

from webhook.core.kubernetes.pod import Pod
from webhook.core.kubernetes.quantity import Duration
from webhook.core.policy_fields.nodes import LoadSource, Nodes, RequestsSource
from webhook.core.policy_fields.scheduling import Estimate
from webhook.core.scheduling.measured_load import NodeLoad
from webhook.core.scheduling.node_table import KnownNode, SchedulableNode
from webhook.extender.load_table import LoadTable

NOW = 1_000_000.0


def make_table(*sources: str) -> LoadTable:
    table = LoadTable(lambda _: Estimate(settle=Duration.parse("1s")), lambda: NOW, lambda *_: None)
    table.configure(Nodes((LoadSource(requests=RequestsSource()),)), sources)
    return table


def build_node(name: str, address: str) -> KnownNode:
    return KnownNode(SchedulableNode(name, 64000.0, float(256 << 30), {}), (address,))


def resized(cores: int, generation: int, kept: int | None = None) -> Pod:
    """Return a Pod on node `a` that asks for these cores; its node keeps others for it."""
    status: dict[str, Any] = {"phase": "Running"}
    if kept is not None:
        status["containerStatuses"] = [{"name": "c", "resources": _ask(kept), "allocatedResources": {"cpu": str(kept)}}]
    document = {
        "metadata": {"name": "p", "namespace": "shop", "uid": "p", "generation": generation},
        "spec": {"nodeName": "a", "containers": [{"name": "c", "resources": _ask(cores)}]},
        "status": status,
    }
    return msgspec.convert(document, Pod)


def _ask(cores: int) -> dict[str, Any]:
    return {side: {"cpu": str(cores)} for side in ("requests", "limits")}


async def test_a_resize_is_counted_as_the_scheduler_counts_it() -> None:
    """By the larger of what the Pod asks for and what its node keeps for it."""
    table = make_table("requests")
    index = table.index
    index.on_nodes_listed([build_node("a", "10.0.0.1")])
    asked_generation_kept = [(2, 1, 2), (6, 2, 2), (6, 2, 6), (1, 3, 6), (1, 3, 1), (9, 4, 1), (1, 5, 1)]
    found = []
    for cores, generation, kept in asked_generation_kept:
        await index.on_changed(resized(cores, generation, kept), gone=False)
        load = table.rows["a"].load
        assert load is not None
        found.append((index.sum_requests("a")[0] / 1000, (load.cpu_millis or 0) / 1000))
    assert found == [(cores, cores) for cores in (2, 6, 6, 6, 1, 9, 1)]
    await index.on_changed(resized(1, 5, 1), gone=True)
    assert index.sum_requests("a") == (0.0, 0.0)


async def test_a_list_shows_the_resize_of_a_pod_without_a_generation() -> None:
    index = make_table("requests").index
    for cores in (1, 5):
        await index.on_list_begun()
        await index.on_listed([resized(cores, 0)])
        await index.on_list_complete()
        assert index.sum_requests("a")[0] == 1000 * cores


async def test_a_status_with_an_amount_that_is_none_does_not_count() -> None:
    index = make_table("requests").index
    await index.on_changed(resized(2, 1, kept=-1), gone=False)
    assert index.sum_requests("a")[0] == 2000


async def test_an_evicted_pod_frees_what_it_had_after_its_resize() -> None:
    table = make_table("prometheus")
    table.index.on_nodes_listed([build_node("a", "10.0.0.1")])
    table.take_measurements("prometheus", {"a": NodeLoad("prometheus", NOW, 60_000.0, 1.0)})
    await table.index.on_changed(resized(1, 1, 1), gone=False)
    await table.index.on_changed(resized(50, 2, 50), gone=False)
    freed = table.compute_freed_rows({"a": ["p"]})["a"].load
    assert freed is not None
    # Of limits 85 % are expected. Those of the first core are assumed still, and in no measurement.
    assert freed.cpu_millis == 60_000.0 - 0.85 * 49_000.0


def test_both_nodes_of_one_machine_have_its_load() -> None:
    """It was registered again under another name, and its former Node object stayed."""
    table = make_table("prometheus")
    nodes = [build_node("new", "10.0.0.5"), build_node("old", "10.0.0.5"), build_node("other", "10.0.0.6")]
    hot = NodeLoad("prometheus", NOW, 60_000.0)
    for order in (nodes, nodes[::-1]):
        table.index.on_nodes_listed(order)
        assert table.take_measurements("prometheus", {"10.0.0.5": hot, "10.0.0.9": hot}) == 1
        table.settle(table.list_nodes())
        assert {name: row.load for name, row in table.rows.items()} == {"new": hot, "old": hot, "other": None}
    table.index.on_node_gone("old")
    assert table.take_measurements("prometheus", {"10.0.0.5": hot}) == 0
