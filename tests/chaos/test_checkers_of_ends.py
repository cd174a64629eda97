"""Checkers of what is there in the end: gates, groups, shares, and pages that agree with the history."""

from typing import Any

from tests.chaos.built_history import START, BuiltHistory, build_pod, build_status, list_gates
from tests.chaos.checkers import check, judge
from tests.chaos.checkers.log_lines import format_moment


def list_told(built: BuiltHistory, **details: Any) -> list[str]:
    return [str(violation) for violation in check(built.build(**details))]


def queue(built: BuiltHistory, uid: str, at: float, released_at: float, charged_at: float, **given: Any) -> None:
    built.review(uid, at, "Queue", "jobs")
    built.store(uid, at, "jobs", decision="Queue", schedulingGates=list_gates(), **given)
    built.charge(uid, charged_at, "jobs", namespace="jobs")
    built.request("patch", uid, released_at, "jobs", code=200, **given)


def test_a_gate_that_stays_is_told() -> None:
    built = BuiltHistory()
    built.finish(60, pods=[build_pod("a", "jobs", schedulingGates=list_gates())])
    [told] = list_told(built)
    assert told == (
        "gates: Pod jobs/a (a): gate podgate.io/quota: present, expected removed in the end;"
        f" at {format_moment(START + 60)}; no fault"
    )


def test_a_gate_that_is_removed_before_the_charge_is_told() -> None:
    built = BuiltHistory()
    queue(built, "a", 1, released_at=5, charged_at=4)
    assert list_told(built) == []
    queue(built, "b", 1, released_at=5, charged_at=9)
    assert "gates: Pod jobs/b (b): charged at: " in list_told(built)[0]


def test_a_group_that_is_charged_in_parts_is_told() -> None:
    built = BuiltHistory()
    for index in range(3):
        group = f'{{"source":"Annotations","name":"g","size":3,"index":"{index}"}}'
        queue(built, f"m{index}", 1, released_at=9, charged_at=4, annotations={"podgate.io/queued-group": group})
    assert list_told(built) == []
    built.charges[-1] = built.charges[-1].__class__(
        **{name: getattr(built.charges[-1], name) for name in built.charges[-1].__struct_fields__}
        | {"charged_us": built.charges[-1].charged_us + 1_000_000}
    )
    assert "gates: group jobs/g: members charged together: 2, expected 3, all or none" in list_told(built)[0]


def build_workload(slots: dict[int, str]) -> list[dict[str, Any]]:
    return [
        build_pod(
            f"p{slot}",
            "split",
            owner="rs",
            labels={"podgate.io/variant": variant},
            annotations={"podgate.io/slot": str(slot)},
        )
        for slot, variant in slots.items()
    ]


def test_shares_that_are_not_exact_are_told() -> None:
    built = BuiltHistory()
    for slot in range(1, 6):
        built.admit(f"p{slot}", 1, "split")
    exact = {1: "spot", 2: "spot", 3: "on-demand", 4: "spot", 5: "spot"}
    built.finish(60, pods=build_workload(exact))
    assert list_told(built) == []
    built.finish(60, pods=build_workload({**exact, 5: "on-demand"}))
    assert "shares: ReplicaSet split/rs: variants: {'on-demand': 2, 'spot': 3}, expected" in list_told(built)[0]
    built.finish(60, pods=build_workload({slot: exact[slot] for slot in (1, 2, 4, 5)}))
    assert "shares: ReplicaSet split/rs: slots: [1, 2, 4, 5], expected 1 to 4, without holes" in list_told(built)[0]


def test_a_status_that_shows_another_use_is_told() -> None:
    built = BuiltHistory()
    built.admit("a", 1)
    row = {"window": "64s", "resource": "pods", "namespace": None, "used": 1, "hard": 2}
    built.show(9, {"name": "web", "scope": "Cluster", "windows": [row], "breaker": None})
    assert list_told(built) == []
    built.show(9, {"name": "web", "scope": "Cluster", "windows": [{**row, "used": 2}], "breaker": None})
    [told] = list_told(built)
    assert "agreement: status of server-1: used of service web, pods in 64s: 2, expected 1 to 1, as charged" in told


def test_a_decision_without_a_record_is_told() -> None:
    built = BuiltHistory()
    built.admit("a", 1)
    built.reviews.clear()
    built.review("z", 2, "Deny")
    built.finish(60)
    assert "agreement: Pod shop/a (a): decision records: none, expected Admit" in list_told(built)[0]


def test_metrics_that_count_other_reviews_are_told() -> None:
    built = BuiltHistory()
    built.admit("a", 1)
    text = 'podgate_reviews_total{half="validate",service="web",operation="CREATE",decision="Admit"} '
    built.finish(60, statuses={"server-1": build_status()}, metrics={"server-1": f"{text}1\npodgate_store_up 1\n"})
    names = {"replica_names": {"server-1": "a"}}
    assert list_told(built, **names) == []
    built.finish(60, statuses={"server-1": build_status()}, metrics={"server-1": f"{text}2\npodgate_store_up 0\n"})
    told = list_told(built, **names)
    assert "agreement: metrics of server-1: podgate_reviews_total, Admit: 2, expected 1, as recorded" in told[1]
    assert "metrics of server-1: podgate_store_up: 0.0, expected 1.0" in told[0]


def test_a_queue_and_explanations_that_say_something_else_are_told() -> None:
    built = BuiltHistory()
    pods = [build_pod("a"), build_pod("b", "jobs", schedulingGates=list_gates())]
    built.finish(60, pods=pods, queue={"pods": []}, explanations={"Pod/shop/a": {"token": "Denied"}})
    told = list_told(built)
    assert any("agreement: podgate queue: waiting Pods: [], expected ['b']" in line for line in told)
    assert any("agreement: Pod/shop/a: podgate explain: Denied, expected Running" in line for line in told)


def test_an_event_of_a_denial_that_nobody_made_is_told() -> None:
    built = BuiltHistory()
    event = {"reason": "QuotaExceeded", "type": "Warning", "metadata": {"namespace": "shop", "name": "e"}}
    built.finish(60, events=[event])
    [told] = list_told(built)
    assert "agreement: Event shop/e: reason: QuotaExceeded, expected a denial in the records" in told


def test_facts_are_counted_by_the_fault_that_was_active() -> None:
    built = BuiltHistory()
    built.hurt("pause", "redis", 4, 6)
    built.admit("a", 1)
    built.admit("b", 5)
    [judged] = [each for each in judge(built.build()) if each.checker == "judged"]
    assert judged.facts["pause"] == judged.facts["none"] > 0
