"""Bursts: whichever node the scheduler takes, and however late its watch is, thresholds hold but for one Pod."""

import asyncio
import json
from collections import deque
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.extender.bursts import POLICY
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.kubernetes.pod import Pod
from webhook.core.kubernetes.pod_requests import NANO
from webhook.core.scheduling.candidate_nodes import CANDIDATES_MAX
from webhook.core.scheduling.measured_load import NodeLoad
from webhook.core.scheduling.node_table import KnownNode, SchedulableNode
from webhook.core.scheduling.numa import NumaZones
from webhook.extender.extender import Extender
from webhook.extender.scheduling_records import SchedulingRecords

MILLIS, HOT, FACTOR = 64_000.0, 0.8, 0.85


class Scheduler:
    """Calls the extender as kube-scheduler does: one Pod after the other, while its watch shows bound Pods later."""

    def __init__(self, used_millis: list[float], zone_cores: int = 0) -> None:
        self.now_seconds = 1_795_500_000.0
        self.records = SchedulingRecords(lambda: None)
        policy = CompiledPolicy(POLICY)
        self.extender = Extender(lambda: policy, self.records, lambda: self.now_seconds)
        self.used = {f"node-{number}": millis for number, millis in enumerate(used_millis)}
        self.pods: dict[str, str] = {}
        self.unseen: deque[Pod] = deque()
        table = self.extender.table
        table.index.on_nodes_listed(KnownNode(SchedulableNode(name, MILLIS, 2.0**40)) for name in self.used)
        table.configure(POLICY.policy.nodes, ["prometheus"])
        loads = {name: NodeLoad("prometheus", self.now_seconds, used, 0.0) for name, used in self.used.items()}
        table.take_measurements("prometheus", loads)
        table.settle(table.list_nodes())
        if zone_cores:
            zone = {"cpu": zone_cores * NANO}
            table.numa.on_numa_listed({name: NumaZones((zone,), is_by_pod=False) for name in self.used})
        asyncio.run(table.index.on_list_begun())
        asyncio.run(table.index.on_list_complete())

    def schedule(self, name: str, choice: int, millis: int) -> str | None:
        """Place a Pod on one of its best nodes, any of them; return that node, None if all nodes are refused."""
        passed = self.call("filter", name, list(self.used), millis)["NodeNames"]
        if not passed:
            return None
        candidates = passed
        if len(passed) > 1:
            scores = {priority["Host"]: priority["Score"] for priority in self.call("prioritize", name, passed, millis)}
            candidates = sorted(passed, key=lambda node: -scores[node])[:CANDIDATES_MAX]
        node = self.pods[name] = candidates[choice % len(candidates)]
        self.unseen.append(build_bound_pod(name, node, millis))
        return node

    def watch(self, count: int) -> None:
        for _ in range(min(count, len(self.unseen))):
            asyncio.run(self.extender.table.index.on_changed(self.unseen.popleft(), gone=False))

    def call(self, verb: str, name: str, nodes: list[str], millis: int) -> Any:
        body = json.dumps({"Pod": _document(name, millis), "NodeNames": nodes}).encode()
        found = json.loads(self.extender.filter(body) if verb == "filter" else self.extender.prioritize(body))
        return {"NodeNames": [], **found} if verb == "filter" else found

    def list_observed(self, name: str) -> list[float | None]:
        """Return the shares of cpu with which nodes were refused to a Pod."""
        [record] = [record for record in self.records.list_newest_first() if record.name == name]
        assert record.filter is not None
        return [node.value for rule in record.filter.refused for node in rule.nodes]


def _document(name: str, millis: int) -> dict[str, Any]:
    asked = {"cpu": f"{millis}m", "memory": "1Mi"}
    labels = {"podgate.io/service": "web"}
    metadata = {"name": name, "namespace": "shop", "uid": name, "labels": labels}
    return {"metadata": metadata, "spec": {"containers": [{"name": "c", "resources": {"limits": asked}}]}}


def build_bound_pod(name: str, node: str, millis: int) -> Pod:
    document = _document(name, millis)
    document["spec"]["nodeName"] = node
    return msgspec.convert(document, Pod)


@settings(max_examples=60)
@given(
    used=st.lists(st.integers(30, 52).map(lambda cores: 1000.0 * cores), min_size=2, max_size=5),
    pods=st.lists(st.tuples(st.integers(0, 4), st.sampled_from([500, 2600, 4000]), st.integers(0, 3)), max_size=40),
)
def test_no_node_passes_the_threshold_by_more_than_one_pod(used: list[float], pods: list[tuple[int, int, int]]) -> None:
    scheduler = Scheduler(used)
    load = dict(scheduler.used)
    for number, (choice, millis, seen) in enumerate(pods):
        node = scheduler.schedule(f"pod-{number}", choice, millis)
        if node is not None:
            assert load[node] <= HOT * MILLIS, "it was below the threshold, with all Pods that are on it by now"
            load[node] += FACTOR * millis
        scheduler.watch(seen)


def test_zone_is_reserved_on_each_node_that_a_pod_may_get() -> None:
    scheduler = Scheduler([1000.0, 1000.0], zone_cores=8)
    first = scheduler.schedule("first", 0, 6000)
    [other] = scheduler.used.keys() - {first}
    assert scheduler.schedule("second", 0, 6000) is None, "the first one may be on either node"
    scheduler.watch(1)
    assert scheduler.schedule("second", 0, 6000) == other


def test_candidates_are_counted_for_five_seconds_and_not_against_the_pod_itself() -> None:
    scheduler = Scheduler([51_000.0, 51_000.0])
    assert scheduler.schedule("failed", 0, 4000) is not None
    assert scheduler.schedule("failed", 1, 4000) is not None, "its binding has failed, and it is tried anew"
    assert scheduler.schedule("next", 0, 4000) is None
    assert scheduler.list_observed("next") == [54.4 / 64, 54.4 / 64]
    scheduler.now_seconds += 6
    scheduler.extender.table.settle(scheduler.used)
    assert scheduler.call("filter", "next", list(scheduler.used), 4000)["NodeNames"] == list(scheduler.used)


def test_pod_that_passes_on_some_nodes_wakes_no_scheduler() -> None:
    scheduler = Scheduler([60_000.0, 10_000.0])
    scheduler.schedule("placed", 0, 500)
    assert not scheduler.extender.refused.list_kinds()
