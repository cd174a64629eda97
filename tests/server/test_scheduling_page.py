"""The extender's records of Pods at its decision port, from calls as kube-scheduler makes them."""

import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from tests.core.reviewing import policy_of
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.kubernetes.pod import Container, Pod, PodMetadata, PodSpec
from webhook.core.scheduling.measured_load import NodeLoad
from webhook.core.scheduling.node_table import KnownNode, SchedulableNode
from webhook.extender.extender import Extender
from webhook.extender.scheduling_records import SchedulingRecords
from webhook.observers import Observers
from webhook.server.plain.extender_pages import SCHEDULING, build_scheduling_page
from webhook.server.plain.local_pages import build_local_handler
from webhook.server.server import PlainServer

NOW_SECONDS = 1_795_500_000.0
NODES = {"cool": 100.0, "hot": 900.0, "warm": 500.0}
POLICY = policy_of(
    """
- name: web
  match: {namespaces: [shop]}
  placement: {schedulerName: podgate-scheduler}
  scheduling: {hot: {cpu: 0.8}}
""",
    "nodes: {sources: [{prometheus: {url: 'http://p'}}]}",
)


class Scheduler:
    """Calls of a scheduler about Pods of service web, and the records of the extender that answers them."""

    def __init__(self) -> None:
        self.evicted = 0
        self.records = SchedulingRecords(self._evict, pods_max=3)
        policy = CompiledPolicy(POLICY)
        self.extender = Extender(lambda: policy, self.records, lambda: NOW_SECONDS)
        table = self.extender.table
        table.index.on_nodes_listed(KnownNode(SchedulableNode(name, 1000.0, 2.0**40)) for name in NODES)
        table.configure(POLICY.policy.nodes, ["prometheus"])
        table.take_measurements(
            "prometheus",
            {name: NodeLoad("prometheus", NOW_SECONDS - 12, used, 2.0**39) for name, used in NODES.items()},
        )
        table.settle(table.list_nodes())

    def _evict(self) -> None:
        self.evicted += 1

    async def start(self) -> None:
        await self.extender.table.index.on_list_begun()
        await self.extender.table.index.on_list_complete()

    def schedule(self, name: str, *nodes: str) -> None:
        """Filter nodes, and score those that pass if there are several."""
        asked = self._call("filter", name, nodes)
        if len(asked.get("NodeNames", ())) > 1:
            self._call("prioritize", name, asked["NodeNames"])

    async def bind(self, name: str, node: str) -> None:
        pod = Pod(
            PodMetadata(name=name, namespace="shop", uid=f"uid-{name}"),
            PodSpec(node_name=node, containers=(Container(name="c"),)),
        )
        await self.extender.table.index.on_changed(pod, gone=False)

    def _call(self, verb: str, name: str, nodes: Any) -> Any:
        labels = {"podgate.io/service": "web"}
        spec = {"containers": [{"name": "c", "image": "secret", "env": [{"name": "K", "value": "secret"}]}]}
        metadata = {"name": name, "namespace": "shop", "uid": f"uid-{name}", "labels": labels}
        pod = {"metadata": metadata | {"annotations": {"a": "secret"}}, "spec": spec}
        body = json.dumps({"Pod": pod, "NodeNames": list(nodes)}).encode()
        return json.loads(self.extender.filter(body) if verb == "filter" else self.extender.prioritize(body))


class Port:
    """A running decision port, and its client."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self._url, self._session = url, session

    async def ask(self, query: str, **headers: str) -> tuple[int, str]:
        async with self._session.get(f"{self._url}{SCHEDULING}?{query}", headers=headers) as response:
            return response.status, await response.text()

    async def records(self, query: str = "") -> list[dict[str, Any]]:
        status, text = await self.ask(query)
        assert status == 200, text
        assert "secret" not in text
        found: list[dict[str, Any]] = json.loads(text)["records"]
        return found


@pytest.fixture
async def scheduler() -> Scheduler:
    found = Scheduler()
    await found.start()
    return found


@pytest.fixture
async def port(scheduler: Scheduler) -> AsyncIterator[Port]:
    server = PlainServer(build_local_handler({SCHEDULING: build_scheduling_page(scheduler.records)}.get), Observers())
    await server.listener.start("127.0.0.1", 0)
    [(host, number)] = server.listener.addresses
    async with aiohttp.ClientSession() as session:
        yield Port(f"http://{host}:{number}", session)
    await server.stop()


async def test_record_has_the_figures_of_the_newest_attempt_and_the_node(scheduler: Scheduler, port: Port) -> None:
    scheduler.schedule("web-1", "hot")
    scheduler.schedule("web-1", "hot", "cool", "warm")
    await scheduler.bind("web-1", "cool")
    [record] = await port.records("name=web-1")
    at = "2026-11-24T06:00:00Z"
    origin = {"source": "prometheus", "ageSeconds": 12.0}
    reason = "node(s) above the cpu hot threshold 0.8"
    hot = {"node": "hot", "value": 0.9, "load": origin}
    refused = {"rule": "hot_cpu", "reason": reason, "count": 1, "limit": 0.8, "nodes": [hot]}
    best = record["score"]["best"]
    assert [(score["node"], score["load"]) for score in best] == [("cool", origin), ("warm", origin)]
    assert 0 <= best[1]["score"] < best[0]["score"] <= 10
    assert {**record, "score": None} == {
        "uid": "uid-web-1",
        "namespace": "shop",
        "name": "web-1",
        "service": "web",
        "mode": "Enforce",
        "firstAt": at,
        "at": at,
        "attempts": 2,
        "filter": {"at": at, "asked": 3, "passed": 2, "only": "", "refused": [refused]},
        "score": None,
        "preempt": None,
        "node": "cool",
        "nodeAt": at,
    }


async def test_records_are_selected_by_the_query_newest_first(scheduler: Scheduler, port: Port) -> None:
    for name in ("a", "b", "c"):
        scheduler.schedule(name, "cool", "warm")
    assert [record["name"] for record in await port.records()] == ["c", "b", "a"]
    assert [record["name"] for record in await port.records("limit=2&namespace=shop")] == ["c", "b"]
    assert [record["name"] for record in await port.records("uid=uid-b")] == ["b"]
    assert await port.records("namespace=other") == []


async def test_pod_that_was_asked_about_least_recently_is_evicted_and_counted(scheduler: Scheduler) -> None:
    for name in ("a", "b", "c", "a", "d"):
        scheduler.schedule(name, "cool", "warm")
    assert [record.name for record in scheduler.records.list_newest_first()] == ["d", "a", "c"]
    assert scheduler.evicted == 1


@pytest.mark.parametrize(
    ("query", "said"),
    [("pod=a", "pod: no such parameter"), ("limit=0", "limit: '0'"), ("limit=1001", "from 1 to 1000")],
)
async def test_bad_query_is_named(port: Port, query: str, said: str) -> None:
    status, text = await port.ask(query)
    assert status == 400
    assert said in text


async def test_page_is_for_local_clients(port: Port) -> None:
    assert (await port.ask("", Host="attacker.example"))[0] == 403
