"""Scheduling records: figures of the attempts of a Pod, and one record from those of several replicas."""

from datetime import UTC, datetime, timedelta

import pytest

from webhook.core.kubernetes.pod import Container, Pod, PodMetadata, PodSpec, Resources
from webhook.core.kubernetes.pod_requests import NANO
from webhook.core.kubernetes.quantity import Number
from webhook.core.policy_fields import Mode
from webhook.core.policy_fields.scheduling import Hot, Numa, Pressure, Scheduling, ScoreWeights, WhenUnknown
from webhook.core.scheduling.assumed_load import PodLoad, estimate_load
from webhook.core.scheduling.attempts import record_filter, record_score
from webhook.core.scheduling.extender_api import HostPriority
from webhook.core.scheduling.measured_load import NodeLoad
from webhook.core.scheduling.node_selection import ServiceRules, filter_nodes
from webhook.core.scheduling.node_table import NodeRow, SchedulableNode
from webhook.core.scheduling.numa import NumaZones
from webhook.core.scheduling.scheduling_record import (
    FilterAttempt,
    LoadOrigin,
    RefusedNode,
    SchedulingRecord,
    ScoreAttempt,
    ZoneFigures,
    merge_records,
)
from webhook.core.scheduling.scores import choose_best, compute_scores

NOW = datetime(2026, 11, 24, 4, tzinfo=UTC)
POD = Pod(PodMetadata(name="p", uid="u"), PodSpec(containers=(Container(name="c"),)))
RULES = Scheduling(
    hot=Hot(cpu=Number(0.8), combined=Number(1.5)),
    pressure=Pressure(memory=Number(0.1)),
    when_unknown=WhenUnknown.REFUSE,
)
SIZE = 2.0**40
ORIGIN = LoadOrigin("prometheus", 12.0)


def row(cpu: float, memory: float, *, pressure: float = 0.0, assumed: float = 0.0) -> NodeRow:
    load = NodeLoad("prometheus", NOW.timestamp() - 12, SIZE * cpu, SIZE * memory, memory_pressure=pressure)
    return NodeRow.from_node(SchedulableNode("n", SIZE, SIZE), load, PodLoad(SIZE * assumed, 0))


ROWS = {
    "cool": row(0.25, 0.25),
    "cooler": row(0.0, 0.25),
    "hot": row(0.5, 0.25, assumed=0.5),
    "full": row(0.75, 1.0),
    "pressed": row(0.25, 0.25, pressure=0.5),
    "unknown": NodeRow.from_node(SchedulableNode("unknown", SIZE, SIZE)),
}


def attempt(mode: Mode = Mode.ENFORCE) -> FilterAttempt:
    found = filter_nodes(POD, (*ROWS, "new"), ROWS, ServiceRules("web", mode, RULES))
    return record_filter(NOW, 7, found, ROWS, RULES)


def test_each_rule_has_its_count_and_the_figures_of_its_nodes() -> None:
    found = attempt()
    assert (found.asked, found.passed, found.only) == (7, 3, "")
    assert {refusal.rule: (refusal.count, refusal.limit, refusal.nodes) for refusal in found.refused} == {
        "hot_cpu": (1, 0.8, (RefusedNode("hot", 1.0, ORIGIN),)),
        "hot_combined": (1, 1.5, (RefusedNode("full", 1.75, ORIGIN),)),
        "pressure_memory": (1, 0.1, (RefusedNode("pressed", 0.5, ORIGIN),)),
        "unknown": (1, None, (RefusedNode("unknown", None, LoadOrigin()),)),
    }
    assert found.refused[0].reason == "node(s) above the cpu hot threshold 0.8"


def test_audit_passes_what_it_would_refuse() -> None:
    assert (attempt(Mode.AUDIT).passed, attempt(Mode.AUDIT).refused) == (7, attempt().refused)


def test_of_many_refused_nodes_three_have_figures() -> None:
    rows = {f"n{number}": ROWS["hot"] for number in range(5)} | {"cool": ROWS["cool"]}
    found = record_filter(NOW, 6, filter_nodes(POD, rows, rows, ServiceRules("web", Mode.ENFORCE, RULES)), rows, RULES)
    assert [(refusal.count, [node.node for node in refusal.nodes]) for refusal in found.refused] == [
        (5, ["n0", "n1", "n2"])
    ]
    assert found.only == "cool"


def test_node_without_a_zone_has_what_was_asked_and_what_each_zone_has_left() -> None:
    """The first container takes 3 of the first zone, and leaves no zone for the second one."""
    asking = [Resources(*2 * ({"cpu": cpu, "memory": "1Gi"},)) for cpu in ("3", "2500m")]
    pod = Pod(PodMetadata(uid="u"), PodSpec(containers=tuple(Container("c", amounts) for amounts in asking)))
    zones = NumaZones(({"cpu": 4 * NANO}, {"cpu": 2 * NANO}), is_by_pod=False)
    rows = {"n": NodeRow.from_node(SchedulableNode("n", SIZE, SIZE), numa=zones)}
    rules = Scheduling(numa=Numa.REQUIRED)
    [numa] = record_filter(
        NOW, 1, filter_nodes(pod, rows, rows, ServiceRules("web", Mode.ENFORCE, rules)), rows, rules
    ).refused
    assert (numa.rule, numa.limit) == ("numa", None)
    assert numa.nodes == (
        RefusedNode("n", None, LoadOrigin(), ZoneFigures({"cpu": "2500m"}, ({"cpu": "1"}, {"cpu": "2"}))),
    )


def test_node_whose_zones_are_too_small_has_what_they_have_in_all() -> None:
    whole = NumaZones(({"cpu": 4 * NANO},), is_by_pod=False)
    amounts = Resources(*2 * ({"cpu": "6", "memory": "1Gi"},))
    pod = Pod(PodMetadata(uid="u"), PodSpec(containers=(Container("c", amounts),)))
    rows = {
        "n": NodeRow.from_node(
            SchedulableNode("n", SIZE, SIZE), numa=NumaZones(({"cpu": 0},), is_by_pod=False, whole=whole)
        )
    }
    service = ServiceRules("web", Mode.ENFORCE, Scheduling(numa=Numa.REQUIRED))
    [numa] = record_filter(NOW, 1, filter_nodes(pod, rows, rows, service), rows, service.rules).refused
    assert (numa.rule, numa.is_permanent) == ("numa", True)
    assert numa.nodes[0].zones == ZoneFigures({"cpu": "6"}, ({"cpu": "4"},))


def test_best_nodes_have_their_terms_and_the_weights() -> None:
    rows = {name: ROWS[name] for name in ("hot", "cool", "full", "cooler")}
    found_scores = compute_scores(rows, rows, estimate_load(POD, RULES.estimate), RULES.score, lambda _: 0.5)
    best = choose_best([HostPriority(name, score) for name, score in found_scores.items()], 16)
    found = record_score(NOW, estimate_load(POD, RULES.estimate), len(rows), best, rows, RULES, lambda _: 0.5)
    assert (found.asked, [score.node for score in found.best]) == (4, ["cooler", "cool", "hot"])
    assert found.weights == {"cpu": 0.4, "memory": 0.3, "latency": -0.2, "topology": 0.3}
    assert {score.risk for score in found.best} == {None}
    rules = Scheduling(score=ScoreWeights(risk=Number(-0.3)))
    risky = record_score(NOW, PodLoad(0, 0), 4, ["hot"], rows, rules, lambda _: 0.5)
    assert (risky.best[0].risk, risky.weights["risk"]) == (0.5, -0.3), "half of 1.0, and no deviation"
    first = found.best[0]
    assert (first.free_cpu, first.free_memory, first.latency, first.near) == pytest.approx(
        (1.0, 0.75, 0.0, 0.5), abs=0.01
    )
    assert first.load == ORIGIN


def test_newest_call_of_each_kind_counts_among_replicas() -> None:
    later = NOW + timedelta(seconds=1)
    first = SchedulingRecord(
        *("u", "shop", "p", "web", Mode.ENFORCE, NOW, NOW),
        attempts=2,
        filter=FilterAttempt(NOW, 4, 0),
        score=ScoreAttempt(NOW, 4, (), {}),
        node="cool",
        node_at=later,
    )
    second = SchedulingRecord(
        *("u", "shop", "p", "web", Mode.ENFORCE, later, later), attempts=1, filter=FilterAttempt(later, 4, 3)
    )
    for replicas in ((first, second), (second, first)):
        found = merge_records(replicas)["u"]
        assert (found.attempts, found.first_at, found.at, found.node) == (3, NOW, later, "cool")
        assert found.filter == second.filter
        assert (found.score, found.newest_score) == (first.score, None), "those of an earlier attempt"
