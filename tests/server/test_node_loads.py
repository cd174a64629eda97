"""The node page of the extender's decision port: the load of nodes, and the thresholds that it exceeds."""

import json
from typing import Any
from unittest.mock import Mock

import aiohttp

from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.document import Purpose, load
from webhook.core.kubernetes.pod import Container, Pod, PodMetadata, PodSpec, Resources
from webhook.core.scheduling.measured_load import NodeLoad
from webhook.core.scheduling.node_table import KnownNode, SchedulableNode
from webhook.extender.extender import Extender
from webhook.observers import Observers
from webhook.server.plain.extender_pages import NODES, build_node_page
from webhook.server.plain.local_pages import build_local_handler
from webhook.server.server import PlainServer

POLICY = b"""
apiVersion: podgate.io/v1alpha1
kind: Policy
nodes: {sources: [{prometheus: {url: "https://prometheus:9090"}}, {requests: {}}]}
services:
- {name: web, match: {namespaces: [a]}, placement: {schedulerName: s}, scheduling: {hot: {cpu: 0.8}}}
- {name: shop, match: {namespaces: [b]}, placement: {schedulerName: s}, scheduling: {hot: {cpu: 0.8}, numa: Required}}
- {name: batch, match: {namespaces: [c]}, placement: {schedulerName: s}, scheduling: {hot: {memory: 0.5}}}
- {name: plain, match: {namespaces: [d]}}
"""
NOW_SECONDS = 1_000_000.0
GIB = float(1 << 30)
CPUS = {"cool": 1.0, "hot": 9.0, "full": 7.9}
"""Measured cores of 10, by node. `full` is below the threshold of `web`, though no Pod fits below it."""


async def extender() -> Extender:
    policy = CompiledPolicy(load(POLICY, Purpose.SCHEDULE).policy)
    found = Extender(lambda: policy, Mock(), lambda: NOW_SECONDS)
    table = found.table
    table.index.on_nodes_listed(
        [KnownNode(SchedulableNode(name, 10_000.0, 100 * GIB)) for name in (*CPUS, "unmeasured")]
    )
    await table.index.on_list_complete()
    table.configure(policy.policy.nodes, ["prometheus"])
    memory = {"full": 80 * GIB}
    table.take_measurements(
        "prometheus",
        {
            name: NodeLoad("prometheus", NOW_SECONDS - 12, 1000 * cores, memory.get(name, 10 * GIB))
            for name, cores in CPUS.items()
        },
    )
    table.settle(table.list_nodes())
    requests = Resources({"cpu": "2", "memory": "10Gi"})
    pod = Pod(
        PodMetadata(name="p", namespace="a", uid="u", labels={"podgate.io/service": "web"}),
        PodSpec(node_name="cool", containers=(Container("c", requests),)),
    )
    await table.index.on_changed(pod, gone=False)
    return found


async def read_shown(path: str) -> Any:
    """Return the document at a path, or the status and the text of another answer."""
    server = PlainServer(
        build_local_handler({NODES: build_node_page(await extender(), lambda: NOW_SECONDS)}.get), Observers()
    )
    await server.listener.start("127.0.0.1", 0)
    [(host, port)] = server.listener.addresses
    async with aiohttp.ClientSession() as session, session.get(f"http://{host}:{port}{path}") as response:
        text = await response.text()
    await server.stop()
    return json.loads(text) if response.status == 200 else (response.status, text.strip())


async def test_the_hottest_nodes_are_first_with_the_services_whose_thresholds_they_exceed() -> None:
    found = await read_shown("/api/v1/nodes?limit=3")
    assert found["count"] == 4
    assert [node["name"] for node in found["nodes"]] == ["hot", "full", "cool"]
    refused = {node["name"]: node["exceeds"] for node in found["nodes"]}
    assert refused == {"hot": {"web": "hot_cpu", "shop": "hot_cpu"}, "full": {"batch": "hot_memory"}, "cool": {}}


async def test_one_node_has_its_load_its_age_and_what_is_assumed() -> None:
    [found] = (await read_shown("/api/v1/nodes?name=cool"))["nodes"]
    assert found["load"]["cpu_millis"] == 1000.0
    assert found["ageSeconds"] == 12.0
    assert (found["assumedPods"], found["assumedCpuMillis"]) == (1, 1700.0)
    assert found["assumedMemoryBytes"] == 7 * GIB
    assert (found["cpuShare"], found["memoryShare"]) == (0.27, 0.17)
    assert (found["allocatableCpuMillis"], found["allocatableMemoryBytes"]) == (10_000.0, 100 * GIB)


async def test_without_parameters_all_nodes_are_shown_by_name() -> None:
    found = (await read_shown("/api/v1/nodes"))["nodes"]
    assert [node["name"] for node in found] == ["cool", "full", "hot", "unmeasured"]
    assert (found[-1]["load"], found[-1]["cpuShare"], found[-1]["ageSeconds"]) == (None, None, None)


async def test_unknown_node_and_bad_parameters() -> None:
    assert await read_shown("/api/v1/nodes?name=nobody") == {"nodes": [], "count": 4, "unread": []}
    assert await read_shown("/api/v1/nodes?limit=x") == (400, "limit: 'x': write a number from 1 to 50000")
    assert await read_shown("/api/v1/nodes?node=hot") == (400, "node: no such parameter: there are name, limit")
