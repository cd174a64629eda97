"""Bursts: whichever node the scheduler takes, and however late its watch is, thresholds hold."""

import asyncio
import json
from collections import Counter, deque
from typing import Any

import msgspec
import pytest
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
        self.measure()
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

    def measure(self) -> None:
        """Let the load of all nodes be measured as it was at first."""
        table = self.extender.table
        loads = {name: NodeLoad("prometheus", self.now_seconds, used, 0.0) for name, used in self.used.items()}
        table.take_measurements("prometheus", loads)
        table.settle(table.list_nodes())

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
def test_no_pod_takes_a_node_above_the_threshold(used: list[float], pods: list[tuple[int, int, int]]) -> None:
    scheduler = Scheduler(used)
    load = dict(scheduler.used)
    for number, (choice, millis, seen) in enumerate(pods):
        node = scheduler.schedule(f"pod-{number}", choice, millis)
        if node is not None:
            load[node] += FACTOR * millis
            assert load[node] <= HOT * MILLIS + 1e-6, "with all Pods that are on it by now, and this one"
        scheduler.watch(seen)


def test_zone_is_reserved_on_each_node_that_a_pod_may_get() -> None:
    scheduler = Scheduler([1000.0, 1000.0], zone_cores=8)
    first = scheduler.schedule("first", 0, 6000)
    [other] = scheduler.used.keys() - {first}
    assert scheduler.schedule("second", 0, 6000) is None, "the first one may be on either node"
    scheduler.watch(1)
    assert scheduler.schedule("second", 0, 6000) == other


def test_candidates_are_counted_for_five_seconds_and_not_against_the_pod_itself() -> None:
    scheduler = Scheduler([47_000.0, 47_000.0])
    assert scheduler.schedule("failed", 0, 4000) is not None
    assert scheduler.schedule("failed", 1, 4000) is not None, "its binding has failed, and it is tried anew"
    assert scheduler.schedule("next", 0, 4000) is None
    assert scheduler.list_observed("next") == [50.4 / 64, 50.4 / 64]
    scheduler.now_seconds += 6
    scheduler.extender.table.settle(scheduler.used)
    assert scheduler.call("filter", "next", list(scheduler.used), 4000)["NodeNames"] == list(scheduler.used)


def test_pods_of_one_service_are_judged_by_their_own_load_each() -> None:
    scheduler = Scheduler([47_000.0])
    found = {
        number: scheduler.call("filter", f"pod-{number}", ["node-0"], millis)
        for number, millis in enumerate((2000, 8000, 2000))
    }
    assert [bool(answer["NodeNames"]) for answer in found.values()] == [True, False, True]
    reasons = {"node-0": "node(s) would be above the cpu hot threshold 0.8 with this Pod"}
    assert found[1]["FailedAndUnresolvableNodes"] == reasons
    [record] = [record for record in scheduler.records.list_newest_first() if record.name == "pod-1"]
    assert record.filter is not None
    [refused] = record.filter.refused
    assert (refused.rule, refused.limit, refused.nodes[0].value) == ("hot_cpu", 0.8, 48.7 / 64)
    assert refused.nodes[0].demand == pytest.approx(FACTOR * 8 / 64)


def test_preemption_is_kept_off_a_node_that_the_pod_itself_would_make_hot() -> None:
    scheduler = Scheduler([47_000.0, 20_000.0])
    body = {"Pod": _document("large", 8000), "NodeNameToMetaVictims": {name: {"Pods": []} for name in scheduler.used}}
    found = json.loads(scheduler.extender.preempt(json.dumps(body).encode()))
    assert list(found["NodeNameToMetaVictims"]) == ["node-1"]


def build_nominated_pod(name: str, node: str, millis: int) -> Pod:
    document = _document(name, millis)
    document["status"] = {"phase": "Pending", "nominatedNodeName": node} if node else {"phase": "Pending"}
    return msgspec.convert(document, Pod)


def list_again(scheduler: Scheduler, *pods: Pod) -> None:
    """List the Pods, as a new replica does."""
    index = scheduler.extender.table.index
    asyncio.run(index.on_list_begun())
    asyncio.run(index.on_listed(pods))
    asyncio.run(index.on_list_complete())


@pytest.mark.parametrize("restarts", [False, True])
def test_pods_that_wait_for_volumes_count_on_their_nominated_nodes_until_they_are_bound(*, restarts: bool) -> None:
    """Their volumes take 20 s; the scheduler publishes the node, and goes on with the next Pod."""
    used = [20_000.0, 40_000.0, 40_000.0]
    scheduler = Scheduler(used)
    nominated: dict[str, Pod] = {}
    for number in range(60):
        name = f"pod-{number}"
        node = scheduler.schedule(name, number, 2000)
        scheduler.unseen.clear()
        if node is not None:
            nominated[name] = build_nominated_pod(name, node, 2000)
            asyncio.run(scheduler.extender.table.index.on_changed(nominated[name], gone=False))
        scheduler.now_seconds += 0.3
        if restarts and number == 30:
            scheduler, seen = Scheduler(used), scheduler
            scheduler.now_seconds, scheduler.pods = seen.now_seconds, seen.pods
            scheduler.measure()
            list_again(scheduler, *nominated.values())
        scheduler.extender.table.settle(scheduler.used)
    on_nodes = Counter(pod.status.nominated_node_name for pod in nominated.values())
    shares = {name: (millis + on_nodes[name] * FACTOR * 2000) / MILLIS for name, millis in scheduler.used.items()}
    assert max(shares.values()) <= HOT, shares
    assert len(nominated) > 20


def test_nomination_that_is_cleared_ends_what_is_assumed() -> None:
    scheduler = Scheduler([47_000.0, 60_000.0], zone_cores=8)
    table = scheduler.extender.table
    assert scheduler.schedule("slow", 0, 4000) == "node-0"
    asyncio.run(table.index.on_changed(build_nominated_pod("slow", "node-0", 4000), gone=False))
    for seconds, is_there in ((6, True), (600, True), (20, False)):
        scheduler.now_seconds += seconds
        table.settle(scheduler.used)
        assert table.count_assumed_pods() == ({"node-0": 1} if is_there else {})
    asyncio.run(table.index.on_changed(build_nominated_pod("other", "node-0", 4000), gone=False))
    assert table.count_assumed_pods() == {"node-0": 1}
    asyncio.run(table.index.on_changed(build_nominated_pod("other", "", 4000), gone=False))
    assert table.count_assumed_pods() == {}
    for end in (build_nominated_pod("third", "node-0", 4000),):
        asyncio.run(table.index.on_changed(end, gone=False))
        asyncio.run(table.index.on_changed(end, gone=True))
    assert table.count_assumed_pods() == {}


def test_load_of_a_pod_settles_from_its_binding_on() -> None:
    scheduler = Scheduler([10_000.0, 60_000.0])
    table = scheduler.extender.table
    asyncio.run(table.index.on_changed(build_nominated_pod("slow", "node-0", 4000), gone=False))
    scheduler.now_seconds += 300
    scheduler.measure()
    assert table.node_rows.by_name["node-0"].assumed.cpu_millis == FACTOR * 4000
    asyncio.run(table.index.on_changed(build_bound_pod("slow", "node-0", 4000), gone=False))
    scheduler.now_seconds += 59
    scheduler.measure()
    assert table.node_rows.by_name["node-0"].assumed.cpu_millis == FACTOR * 4000
