"""Load table: after any events its rows, sums and nearness are those computed from scratch."""

import asyncio
from math import inf
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.extender.bursts import run_at_once
from webhook.core.kubernetes.pod import Pod, PodStatus
from webhook.core.kubernetes.pod_requests import NANO
from webhook.core.kubernetes.quantity import Duration, Number
from webhook.core.kubernetes.types import LabelSelector
from webhook.core.policy_fields.nodes import LoadSource, Nodes, RequestsSource
from webhook.core.policy_fields.scheduling import Estimate, Hot, Near, Numa, Scheduling, ScoreWeights, WhenUnknown
from webhook.core.scheduling.assumed_load import NO_LOAD, PodLoad, estimate_load
from webhook.core.scheduling.extender_api import HostPriority
from webhook.core.scheduling.hot_node_filters import NodeFilters, find_refused, make_filters
from webhook.core.scheduling.measured_load import NodeLoad
from webhook.core.scheduling.node_table import KnownNode, NodeRow, NodeRows, SchedulableNode
from webhook.core.scheduling.node_verdicts import NodeVerdicts, ServiceVerdicts
from webhook.core.scheduling.numa import NumaZones
from webhook.core.scheduling.scores import NodeScores, choose_nearness, compute_scores
from webhook.extender.load_table import LoadTable
from webhook.extender.near_index import HostedPod, NearIndex

NODES, UIDS, APPS, PLACES = "abcd", "pqrstu", ("web", "redis"), ("", "1", "2")
STALE_SECONDS, FORGET_SECONDS = 90.0, 150.0
ZONE = {"cpu": 64 * NANO, "memory": (256 << 30) * NANO}
RULES = Scheduling(hot=Hot(cpu=Number(0.5)), numa=Numa.REQUIRED, when_unknown=WhenUnknown.REFUSE)
ANY_LOAD = Scheduling(hot=Hot(Number(0.5), Number(0.9), Number(0.7)))
NEAR = Near(LabelSelector({"app": "redis"}))
LOAD, WEIGHTS = PodLoad(2000.0, float(4 << 30)), ScoreWeights()
LEVELS = ("rack", "zone", "region")

nodes, uids, apps = st.sampled_from(NODES), st.sampled_from(UIDS), st.sampled_from(APPS)
places = st.fixed_dictionaries({f"topology.kubernetes.io/{level}": st.sampled_from(PLACES) for level in LEVELS})
amounts = st.integers(1, 8)
namespaces = st.sampled_from(["shop", "other"])


def build_known_node(name: str, labels: dict[str, str], address: str) -> KnownNode:
    return KnownNode(SchedulableNode(name, 64000.0, float(256 << 30), labels), (address,))


def pod_of(uid: str, node: str | None, app: str, amount: int, namespace: str, *, phase: str = "Running") -> Pod:
    asked = {"cpu": str(amount), "memory": f"{amount}Gi"}
    container = {"name": "c", "resources": {"requests": asked, "limits": asked}}
    document = {
        "metadata": {"name": uid, "namespace": namespace, "uid": uid, "labels": {"app": app}},
        "spec": {"nodeName": node, "containers": [container]},
        "status": {"phase": phase},
    }
    return msgspec.convert(document, Pod)


class LoadTableMachine(RuleBasedStateMachine):
    """Random events of Nodes, Pods, reports and assignments."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_000_000.0
        self.table = LoadTable(lambda _: Estimate(), lambda: self.now, lambda *_: None)
        stanza = Nodes((LoadSource(requests=RequestsSource()),), forget_after=Duration.parse(f"{FORGET_SECONDS:g}s"))
        self.table.configure(stanza, ["prometheus", "requests"])
        self.nominated: dict[str, str] = {}
        self.newest = -inf
        """Time of the newest load of any node, at the last report."""
        self.nodes: dict[str, KnownNode] = {}
        self.pods: dict[str, Pod] = {}
        self.loads: dict[str, NodeLoad] = {}
        self.filters = make_filters(pod_of("x", None, "web", 62, "shop"), RULES)
        self.verdicts = NodeVerdicts(self.filters)
        self.of_service = ServiceVerdicts(make_filters(pod_of("x", None, "web", 0, "shop"), ANY_LOAD, NO_LOAD))
        self.scores = NodeScores(LOAD, WEIGHTS), NodeScores(LOAD, WEIGHTS)
        self.reported: dict[str, int] = {}
        """Nodes with zones, and how many cores each of the two has."""
        self.reserved: dict[str, tuple[str, int, float, float]] = {}
        """Node, cores, until when, and since when it runs, of Pods that reports may not contain yet."""

    @rule(name=nodes, labels=places, address=st.sampled_from("xy"))
    def put_node(self, name: str, labels: dict[str, str], address: str) -> None:
        self.nodes.pop(name, None)
        self.nodes[name] = build_known_node(name, labels, f"{name}{address}")
        self.table.index.on_node_changed(self.nodes[name])

    @rule(name=nodes)
    def remove_node(self, name: str) -> None:
        gone = self.nodes.pop(name, None)
        self.loads.pop(name, None)  # a new node of the same name is another one
        if gone is not None:
            self.table.index.on_node_gone(name)

    @rule(names=st.sets(nodes), labels=places)
    def list_nodes(self, names: set[str], labels: dict[str, str]) -> None:
        self.nodes = {name: build_known_node(name, labels, f"{name}z") for name in sorted(names)}
        self.loads = {name: load for name, load in self.loads.items() if name in names}
        self.table.index.on_nodes_listed(self.nodes.values())

    @rule(uid=uids, node=nodes, app=apps, amount=amounts, namespace=namespaces)
    def bind_or_relabel_pod(self, uid: str, node: str, app: str, amount: int, namespace: str) -> None:
        before = self.pods.get(uid)
        pod = pod_of(uid, node, app, amount, namespace)
        if before is not None:  # only its labels change
            metadata = msgspec.structs.replace(before.metadata, labels={"app": app})
            pod = msgspec.structs.replace(before, metadata=metadata)
        else:
            self.reserve(uid, node, amount, self.now + 300, self.now)
        self.pods[uid] = pod
        self.nominated.pop(uid, None)
        run_at_once(self.table.index.on_changed(pod, gone=False))

    @rule(uid=uids, ends=st.booleans())
    def end_pod(self, uid: str, ends: bool) -> None:  # noqa: FBT001  a drawn value
        if uid in self.pods or self.nominated.pop(uid, ""):
            self.reserved.pop(uid, None)
        before = self.pods.pop(uid, None) or pod_of(uid, None, "web", 1, "shop")
        status = msgspec.structs.replace(before.status, phase="Succeeded")
        run_at_once(self.table.index.on_changed(msgspec.structs.replace(before, status=status), gone=not ends))

    @rule(uid=uids, node=nodes, amount=amounts)
    def assign_pod(self, uid: str, node: str, amount: int) -> None:
        if uid not in self.pods:
            pod = pod_of(uid, None, "web", amount, "shop")
            self.table.assign(pod, estimate_load(pod, Estimate()), 60.0, node)
            self.reserve(uid, node, amount, self.now + 5, inf)

    @rule(uid=uids, node=nodes, amount=amounts, is_cleared=st.booleans())
    def nominate_pod(self, uid: str, node: str, amount: int, is_cleared: bool) -> None:  # noqa: FBT001  a drawn value
        if uid in self.pods:
            return
        pod = pod_of(uid, None, "web", amount, "shop", phase="Pending")
        if not is_cleared:
            pod = msgspec.structs.replace(pod, status=PodStatus("Pending", nominated_node_name=node))
        run_at_once(self.table.index.on_changed(pod, gone=False))
        before, self.nominated[uid] = self.nominated.get(uid), "" if is_cleared else node
        if is_cleared and before:
            self.reserved.pop(uid, None)
        elif not is_cleared and before != node:
            self.reserve(uid, node, amount, self.now + 615, inf)

    @rule(name=nodes, cpu=st.floats(0, 64000), seconds=st.sampled_from([0.0, 60.0]))
    def measure_load(self, name: str, cpu: float, seconds: float) -> None:
        load = NodeLoad("prometheus", self.now - seconds, cpu)
        alias = self.nodes[name].addresses[0] if name in self.nodes else name
        unknown = self.table.take_measurements("prometheus", {alias: load})
        assert unknown == (name not in self.nodes)
        if not unknown:
            self.loads[name] = load
        self.newest = max((known.measured_at_seconds for known in self.loads.values()), default=-inf)
        self.table.settle(self.table.list_nodes())

    @rule(name=nodes, cores=st.sampled_from([0, 32, 64]))
    def report_zones(self, name: str, cores: int) -> None:
        before = self.reported.pop(name, None)
        zone = {"cpu": cores * NANO, "memory": ZONE["memory"]}
        self.table.numa.on_numa_changed(name, NumaZones((zone, zone), is_by_pod=False) if cores else None)
        if not cores:
            return
        self.reported[name] = cores
        if before == cores:
            return
        oldest = self.now - 10
        contained = {uid for uid, taken in self.reserved.items() if taken[0] == name and taken[3] <= oldest}
        self.reserved = {uid: taken for uid, taken in self.reserved.items() if uid not in contained}

    def reserve(self, uid: str, node: str, cores: int, until: float, started: float) -> None:
        self.reserved[uid] = node, cores, until, started

    @rule(seconds=st.sampled_from([1.0, 4.0, 40.0, 100.0]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.table.settle(self.table.list_nodes())

    @invariant()
    def rows_are_those_that_settle_computes(self) -> None:
        rows = self.table.node_rows
        assert rows.by_name.keys() == self.nodes.keys()
        self.table.node_rows = NodeRows()
        self.table.settle(self.table.list_nodes())
        assert self.table.rows == rows.by_name
        self.table.node_rows = rows

    @invariant()
    def load_is_the_freshest_else_the_last_while_others_are_measured_else_what_pods_request(self) -> None:
        others_are_measured = self.now - self.newest <= STALE_SECONDS
        for name, row in self.table.rows.items():
            load = self.loads.get(name)
            age = inf if load is None else self.now - load.measured_at_seconds
            is_silent = others_are_measured and age > STALE_SECONDS
            assert (row.node, row.is_silent) == (self.nodes[name].node, is_silent)
            if age <= (FORGET_SECONDS if is_silent else STALE_SECONDS):
                assert row == NodeRow.from_node(row.node, load, row.assumed, row.numa, is_silent=is_silent)
            else:
                there = [
                    int(str(find_requests(pod)["cpu"])) for pod in self.pods.values() if pod.spec.node_name == name
                ]
                expected = NodeLoad("requests", self.now, 1000.0 * sum(there), float(sum(there) << 30))
                assert (row.load, row.assumed) == (expected, NO_LOAD)

    @invariant()
    def zones_are_those_reported_less_the_pods_since_then(self) -> None:
        for name, row in self.table.rows.items():
            there = [taken for taken in self.reserved.values() if taken[0] == name and self.now <= taken[2]]
            left = None if row.numa is None else [zone["cpu"] for zone in row.numa.zones]
            cores = self.reported.get(name)
            expected = None if cores is None else [max(0, cores - sum(taken[1] for taken in there)) * NANO] * 2
            assert left == expected

    @invariant()
    def verdicts_that_were_kept_are_those_found_anew(self) -> None:
        self.verdicts.update(self.table.node_rows)
        assert self.verdicts.select_refused(NODES) == find_refused(self.filters, NODES, self.table.rows)
        assert len(self.verdicts) <= len(self.nodes), "nothing is kept of nodes that are gone"

    @rule(cores=st.sampled_from([0.5, 8.0, 40.0]), gibibytes=st.sampled_from([0.5, 100.0]))
    def derive_verdicts_of_another_kind(self, cores: float, gibibytes: float) -> None:
        pod, load = pod_of("x", None, "web", 1, "shop"), PodLoad(1000.0 * cores, gibibytes * (1 << 30))
        filters = make_filters(pod, ANY_LOAD, load)
        derived = self.of_service.derive(filters, self.table.node_rows)
        derived.update(self.table.node_rows)
        assert derived.select_refused(NODES) == find_refused(filters, NODES, self.table.rows)

    @invariant()
    def scores_that_were_kept_are_those_found_anew(self) -> None:
        for nearness in (self.table.index.find_nearness("shop", "web", NEAR), None):
            kept = self.scores[nearness is None]
            kept.update(self.table.node_rows, nearness)
            anew = compute_scores(NODES, self.table.rows, LOAD, WEIGHTS, choose_nearness(nearness))
            assert kept.select_scores(NODES) == [HostPriority(name, score) for name, score in anew.items()]
            assert len(kept) == len(self.nodes)

    @invariant()
    def nearness_is_that_of_the_nodes_with_pods(self) -> None:
        for namespace in ("shop", "other"):
            hosts = {
                pod.spec.node_name
                for pod in self.pods.values()
                if pod.metadata.namespace == namespace and pod.labels["app"] == "redis"
            }
            labels = [self.nodes[name].node.labels for name in hosts if name in self.nodes]
            found = self.table.index.find_nearness(namespace, "web", NEAR)
            for row in self.nodes.values():
                assert found.rate_node(row.node) == compute_nearness(row.node.labels, labels)


def find_requests(pod: Pod) -> dict[str, Any]:
    [container] = pod.spec.containers or ()
    assert container.resources is not None
    return dict(container.resources.requests or {})


def compute_nearness(labels: Any, others: list[Any]) -> float:
    for number, level in enumerate(LEVELS):
        key = f"topology.kubernetes.io/{level}"
        if labels[key] and any(labels[key] == other[key] for other in others):
            return 1 - number / 3
    return 0.0


TestLoadTable = LoadTableMachine.TestCase
TestLoadTable.settings = settings(max_examples=30)


def test_pods_that_a_new_list_does_not_show_are_gone() -> None:
    table = LoadTable(lambda _: Estimate(), lambda: 1_000_000.0, lambda *_: None)

    async def lists(*uids: str) -> None:
        await table.index.on_list_begun()
        await table.index.on_listed([pod_of(uid, "a", "redis", 2, "shop") for uid in uids])
        await table.index.on_list_complete()

    asyncio.run(lists("p", "q"))
    assert table.index.sum_requests("a") == (4000.0, float(4 << 30))
    asyncio.run(lists("q"))
    assert table.index.sum_requests("a") == (2000.0, float(2 << 30))
    asyncio.run(lists())
    assert table.index.sum_requests("a") == (0.0, 0.0)


def test_changes_of_rows_are_known_from_a_version_on_until_there_are_too_many() -> None:
    rows, verdicts = NodeRows(), NodeVerdicts(make_filters(pod_of("x", None, "web", 1, "shop"), RULES))
    names = [f"node-{number}" for number in range(3000)]
    for number, name in enumerate(names):
        version = rows.changes.version
        rows.put(NodeRow.from_node(build_known_node(name, {}, "").node))
        assert rows.changes.list_since(version) in ({name}, None)
        if number >= 500:
            rows.drop(names[number - 500])
        if number % 700 == 0:
            verdicts.update(rows)
            assert list(verdicts.select_refused(names)) == list(rows.by_name), "their load is unknown"
    assert rows.changes.list_since(0) is None
    assert len(verdicts) <= 501


def test_sets_of_near_pods_are_bounded_and_counted_anew() -> None:
    node = build_known_node("a", {"topology.kubernetes.io/zone": "1"}, "a")
    near = NearIndex({"a": node})
    pods = [HostedPod("a", f"namespace-{number}", {"app": "redis"}, 0, 0) for number in range(300)]
    for pod in pods:
        assert near.find_nearness(pod.namespace, "web", NEAR, pods).rate_node(node.node) > 0
        assert near.find_nearness("empty", "web", NEAR, pods).rate_node(node.node) == 0
    assert 0 < len(near) <= 256


def test_silent_node_keeps_its_last_load_scores_last_and_is_unknown_once_it_is_forgotten() -> None:
    now = 1_000_000.0
    table = LoadTable(lambda _: Estimate(), lambda: now, lambda *_: None)
    table.configure(Nodes((LoadSource(requests=RequestsSource()),)), ["prometheus", "requests"])
    table.index.on_nodes_listed([build_known_node(name, {}, f"{name}x") for name in ("hot", "warm", "new")])
    admits = make_filters(pod_of("x", None, "web", 1, "shop"), Scheduling(hot=Hot(cpu=Number(0.5))))
    refuses = make_filters(pod_of("x", None, "web", 1, "shop"), RULES)

    def measure(**cpus: float) -> None:
        table.take_measurements("prometheus", {name: NodeLoad("prometheus", now, cpu) for name, cpu in cpus.items()})
        table.settle(table.list_nodes())

    def score() -> dict[str, int]:
        return compute_scores(("hot", "warm", "new"), table.rows, LOAD, WEIGHTS, choose_nearness(None))

    def list_refused(filters: NodeFilters) -> set[str]:
        return set(find_refused(filters, ("hot", "warm", "new"), table.rows))

    measure(hot=60_000.0, warm=30_000.0)
    assert score()["new"] == 0, "a node that was never measured does not outscore one that is"
    before = score()["warm"]
    for _ in range(60):  # its exporter is dead: 14 of 15 minutes
        now += 14
        measure(warm=30_000.0)
        assert list_refused(admits) == {"hot"}
        is_fresh = now - 1_000_000.0 <= STALE_SECONDS
        assert (score()["hot"] > 0, score()["warm"], score()["new"]) == (is_fresh, before, 0)
    assert table.rows["hot"].load == NodeLoad("prometheus", 1_000_000.0, 60_000.0)
    assert list_refused(refuses) == {"hot", "new"}
    assert table.count_nodes_by_source() == {"prometheus": 1, "requests": 0, "unknown": 0, "silent": 2}
    now += 100
    measure(warm=30_000.0)
    assert (list_refused(admits), list_refused(refuses)) == (set(), {"hot", "new"})
    assert score() == {"hot": 0, "warm": before, "new": 0}
    now += 100  # the whole source is gone: requests tell, as without it
    table.settle(table.list_nodes())
    assert not any(row.is_silent for row in table.rows.values())
    assert min(score().values()) > before


@pytest.mark.parametrize("weight", [Number(-0.5), Number(0.5)])
def test_silent_node_scores_last_with_any_weights_that_read_load(weight: Number) -> None:
    node = build_known_node("a", {}, "").node
    row = NodeRow.from_node(node, NodeLoad("prometheus", 0.0, 1000.0), is_silent=True)
    assert compute_scores("a", {"a": row}, LOAD, ScoreWeights(cpu=weight), lambda _: 1.0) == {"a": 0}
    near_only = ScoreWeights(*map(Number, (0, 0, 0, 0.3)))
    assert compute_scores("a", {"a": row}, LOAD, near_only, lambda _: 1.0) == {"a": 10}
