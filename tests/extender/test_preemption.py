"""Preemption: nobody is evicted in vain, although the average has the load of the victims for minutes."""

import asyncio
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.extender.bursts import POLICY
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.kubernetes.pod import Pod
from webhook.core.kubernetes.pod_requests import NANO
from webhook.core.scheduling.assumed_load import NO_LOAD, PodLoad
from webhook.core.scheduling.measured_load import Decay, NodeLoad
from webhook.core.scheduling.node_table import KnownNode, SchedulableNode
from webhook.core.scheduling.numa import NumaZones
from webhook.core.scheduling.victim_load import VictimLoad
from webhook.extender.extender import Extender
from webhook.extender.scheduling_records import SchedulingRecords
from webhook.replay.scheduling.load_history import LoadHistory

CORES, FACTOR, LONG_AGO_SECONDS = 64, 0.85, 7200.0
DECAY, WINDOW_SECONDS = Decay(0.8, 30.0), 300.0
EVICTED = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}


def pod_of(
    name: str, cores: float, node: str = "", *, nominated: str = "", is_evicted: bool = False, terminates: bool = False
) -> dict[str, Any]:
    asked = {"cpu": f"{1000 * cores:g}m", "memory": "1Gi"}
    metadata: dict[str, Any] = {"name": name, "namespace": "shop", "uid": name}
    metadata["labels"] = {"podgate.io/service": "web"}
    if terminates:
        metadata["deletionTimestamp"] = "2026-11-28T10:00:00Z"
    spec = {"nodeName": node or None, "containers": [{"name": "c", "resources": {"limits": asked, "requests": asked}}]}
    conditions = [EVICTED] if is_evicted else []
    status = {"phase": "Running" if node else "Pending", "nominatedNodeName": nominated, "conditions": conditions}
    return {"metadata": metadata, "spec": spec, "status": status}


class Cluster:
    """An extender, and what its watch and its source show of Pods on node `n`, which run for long."""

    def __init__(self, used_cores: float, **pods: float) -> None:
        self.now_seconds = 1_795_500_000.0
        self.extender = self.start(used_cores, *(pod_of(name, cores, "n") for name, cores in pods.items()))

    def start(self, used_cores: float, *pods: dict[str, Any]) -> Extender:
        """Start a replica."""
        policy = CompiledPolicy(POLICY)
        self.extender = Extender(lambda: policy, SchedulingRecords(lambda: None), lambda: self.now_seconds)
        table = self.extender.table
        table.index.on_nodes_listed([KnownNode(SchedulableNode("n", 1000.0 * CORES, 2.0**40))])
        table.configure(POLICY.policy.nodes, ["prometheus"])
        self.measure(used_cores)
        self.now_seconds -= LONG_AGO_SECONDS
        self.list_pods(*pods)
        self.now_seconds += LONG_AGO_SECONDS
        self.measure(used_cores)
        return self.extender

    def list_pods(self, *pods: dict[str, Any]) -> None:
        index = self.extender.table.index
        asyncio.run(index.on_list_begun())
        asyncio.run(index.on_listed([msgspec.convert(pod, Pod) for pod in pods]))
        asyncio.run(index.on_list_complete())

    def measure(self, used_cores: float) -> None:
        table = self.extender.table
        table.take_measurements("prometheus", {"n": NodeLoad("prometheus", self.now_seconds, 1000 * used_cores, 0.0)})
        table.settle(table.list_nodes())

    def watch(self, pod: dict[str, Any], *, gone: bool = False) -> None:
        asyncio.run(self.extender.table.index.on_changed(msgspec.convert(pod, Pod), gone=gone))

    def evict(self, name: str, cores: float) -> None:
        """Let the watch show the eviction of a Pod without grace."""
        self.watch(pod_of(name, cores, "n", is_evicted=True))
        self.watch(pod_of(name, cores, "n", is_evicted=True, terminates=True), gone=True)

    def preempt(self, pod: dict[str, Any], *victims: str, violations: int = 0) -> Any:
        entry = {"Pods": [{"UID": uid} for uid in victims], "NumPDBViolations": violations}
        body = {"Pod": pod, "NodeNameToMetaVictims": {"n": entry}}
        return json.loads(self.extender.preempt(json.dumps(body).encode()))["NodeNameToMetaVictims"]

    def passes(self, pod: dict[str, Any]) -> bool:
        body = {"Pod": pod, "NodeNames": ["n"]}
        return "NodeNames" in json.loads(self.extender.filter(json.dumps(body).encode()))


HIGH = pod_of("high", 30)
NOMINATED = pod_of("high", 30, nominated="n")


def test_pod_whose_own_load_makes_the_node_hot_is_evicted_and_the_preemptor_passes_at_once() -> None:
    cluster = Cluster(56, low=60, other=4)
    assert not cluster.passes(HIGH)
    found = cluster.preempt(HIGH, "low", violations=1)
    assert found == {"n": {"Pods": [{"UID": "low"}], "NumPDBViolations": 1}}
    cluster.evict("low", 60)
    assert cluster.passes(NOMINATED), "the average still has its load"
    assert not cluster.passes(pod_of("next", 1)), "what is promised to one Pod is no room for others"


@pytest.mark.parametrize(("low", "other"), [(4, 60), (10, 62), (60, 62)])
def test_nobody_is_evicted_where_others_are_expected_to_make_the_node_hot(low: float, other: float) -> None:
    cluster = Cluster(56, low=low, other=other)
    assert cluster.preempt(HIGH, "low") == {}


def test_pod_that_has_come_lately_counts_by_what_is_assumed_of_it() -> None:
    cluster = Cluster(10, other=4)
    cluster.watch(pod_of("low", 58, "n"))
    assert not cluster.passes(HIGH)
    assert cluster.preempt(HIGH, "low")
    cluster.evict("low", 58)
    assert cluster.passes(HIGH), "nobody assumes its load any more"
    cluster.measure(54)
    assert not cluster.passes(NOMINATED), "it had no part in what was measured"


def test_preemptor_passes_before_the_watch_shows_that_the_victims_are_gone() -> None:
    cluster = Cluster(56, low=60, other=4)
    assert cluster.preempt(HIGH, "low")
    assert not cluster.passes(HIGH), "the scheduler may have chosen another node"
    assert cluster.passes(NOMINATED)
    assert not cluster.passes(pod_of("next", 1, nominated="n")), "another one that is to run there"


@pytest.mark.parametrize("restarts", [False, True])
def test_victim_in_its_grace_period_counts_as_gone_for_the_preemptor_also_after_a_restart(*, restarts: bool) -> None:
    cluster = Cluster(56, low=60, other=4)
    assert cluster.preempt(HIGH, "low")
    leaving = pod_of("low", 60, "n", is_evicted=True, terminates=True)
    cluster.watch(leaving)
    for _ in range(6):
        cluster.now_seconds += 5
        cluster.measure(56)
    if restarts:
        cluster.start(56, leaving, pod_of("other", 4, "n"), NOMINATED)
    assert cluster.passes(NOMINATED)
    assert not cluster.passes(pod_of("next", 1))
    cluster.watch(leaving, gone=True)
    assert cluster.passes(NOMINATED)
    assert not cluster.passes(pod_of("next", 1))


def test_condition_alone_frees_nothing_while_the_pod_is_not_deleted() -> None:
    cluster = Cluster(56, low=60, other=4)
    cluster.watch(pod_of("low", 60, "n", is_evicted=True))
    assert not cluster.passes(NOMINATED)


def test_pods_that_were_deleted_or_have_ended_otherwise_free_nothing_before_it_is_measured() -> None:
    cluster = Cluster(56, low=60, other=4)
    cluster.watch(pod_of("low", 60, "n", terminates=True), gone=True)
    assert not cluster.passes(NOMINATED)
    cluster.measure(4)
    assert cluster.passes(NOMINATED)


def test_end_of_a_victim_counts_once_and_a_new_list_shows_it_too() -> None:
    cluster = Cluster(56, low=60, other=4)
    leaving = pod_of("low", 60, "n", is_evicted=True, terminates=True)
    cluster.watch(leaving)
    cluster.list_pods(pod_of("other", 4, "n"))
    assert cluster.passes(NOMINATED)
    cluster.watch(leaving, gone=True)
    assert not cluster.passes(pod_of("next", 1))


def test_load_of_others_may_grow_a_little_while_victims_leave() -> None:
    """Without that a node just below its threshold would often be above it by then, and the eviction in vain."""
    small = pod_of("small", 1)
    assert Cluster(56 + 2.5, low=10, other=4).preempt(small, "low") == {}, "50 of 51.2 cores would be left"
    cluster = Cluster(56, low=10, other=4)
    assert cluster.preempt(small, "low")
    cluster.measure(1.04 * 56)
    cluster.evict("low", 10)
    assert cluster.passes(pod_of("small", 1, nominated="n"))


def test_one_after_the_other_frees_what_all_were_promised_to_free() -> None:
    cluster = Cluster(56, a=20, b=20, c=20, other=10)
    assert cluster.preempt(HIGH, "a", "b", "c")
    for name in "abc":
        cluster.evict(name, 20)
        cluster.now_seconds += 1
    assert cluster.passes(NOMINATED)


@pytest.mark.parametrize("others", [5.0, 20.0])
def test_average_that_falls_refuses_the_preemptor_at_no_time(others: float) -> None:
    """Prometheus samples rates of a minute, and the extender reads them every 15 s."""
    history, low = LoadHistory(PodLoad(1000 * (others + 40), 0.0)), 48.0
    cluster = Cluster(others + 40, low=low, other=others / FACTOR)
    assert cluster.preempt(HIGH, "low"), "it is hot, or passes anyway"
    begin_seconds = cluster.now_seconds
    cluster.evict("low", low)
    history.add(0.0, PodLoad(40_000.0, 0.0), -1)
    left: list[float] = []
    for second in range(400):
        cluster.now_seconds = begin_seconds + second
        average = history.average(float(second), DECAY, WINDOW_SECONDS).cpu_millis / 1000
        if second % 15 == 0:
            cluster.measure(average)
        assert cluster.passes(NOMINATED), f"{second} s after the eviction, with an average of {average}"
        row = cluster.extender.table.compute_freed_rows({"n": ()})["n"]
        left.append((row.load.cpu_millis or 0.0) / 1000 if row.load else 0.0)
    assert min(left) >= others - 0.001, "never less than what the others use"
    assert max(left) <= others + 0.12 * 40, "a rate of a minute shows the end of a Pod late"
    cluster.measure(others)
    assert cluster.passes(pod_of("next", 1))


def test_zones_that_no_report_shows_as_taken_are_free_and_those_of_other_victims_only_in_the_next_report() -> None:
    cluster = Cluster(10, old=8, other=4)
    zone = {"cpu": 8 * NANO}
    numa = cluster.extender.table.numa
    numa.on_numa_listed({"n": NumaZones(({"cpu": 2 * NANO}, {"cpu": 2 * NANO}), is_by_pod=False)})
    preemptor = pod_of("high", 8)
    assert cluster.preempt(preemptor, "old") == {}, "the report does not say which zone it leaves"
    numa.on_numa_changed("n", NumaZones((zone, zone), is_by_pod=False))
    cluster.watch(pod_of("new", 8, "n"))
    assert not cluster.passes(preemptor)
    assert cluster.preempt(preemptor, "new")
    cluster.evict("new", 8)
    assert cluster.passes(pod_of("high", 8, nominated="n"))


cores = st.floats(0, 64)


@given(
    used=cores,
    victims=st.lists(cores, min_size=1, max_size=4),
    others=st.lists(cores, max_size=4),
)
def test_credit_is_at_most_what_is_expected_of_the_victims_and_what_others_leave_of_the_load(
    used: float, victims: list[float], others: list[float]
) -> None:
    loads = VictimLoad(DECAY, WINDOW_SECONDS)
    measured = NodeLoad("prometheus", 0.0, used, None)
    for number, load in enumerate([*victims, *others]):
        loads.add(f"pod-{number}", "n", PodLoad(load, 1.0))
    uids = [f"pod-{number}" for number in range(len(victims))]
    promised = loads.compute_load("n", measured, dict.fromkeys(uids, NO_LOAD))
    assert promised.cpu_millis == pytest.approx(min(sum(victims), max(0.0, used - sum(others))))
    assert promised.memory_bytes == 0.0, "it is not measured"
    for uid in uids:
        loads.note_eviction(uid, "n")
        loads.remove(uid, "n", measured, NO_LOAD, 0.0)
    assert loads.compute_load("n", measured, {}).cpu_millis == pytest.approx(promised.cpu_millis)
    later = [NodeLoad("prometheus", 30.0 * steps, used, None) for steps in range(12)]
    faded = [loads.compute_load("n", report, {}).cpu_millis for report in later]
    assert faded == sorted(faded, reverse=True)
    assert faded[-1] == 0.0
    for number in range(len(others)):
        loads.remove(f"pod-{len(victims) + number}", "n", measured, NO_LOAD, 301.0)
    loads.remove("unknown", "n", measured, NO_LOAD, 301.0)
    assert len(loads) == 0, "nothing is kept for longer than the window"
