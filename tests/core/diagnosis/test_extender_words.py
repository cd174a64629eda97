"""Texts about the extender's record of a Pod."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from webhook.core.diagnosis.extender_words import (
    advise_after_refusal,
    describe_attempt,
    describe_refusals,
    describe_refused_zones,
    describe_scores,
    describe_weights,
    explain_extender_refusal,
)
from webhook.core.policy_fields import Mode
from webhook.core.scheduling.scheduling_record import (
    FilterAttempt,
    LoadOrigin,
    PreemptAttempt,
    RefusedNode,
    RuleRefusals,
    SchedulingRecord,
    ScoreAttempt,
    ScoredNode,
    ZoneFigures,
)

NOW = datetime(2026, 11, 24, 4, tzinfo=UTC)
NOW_US = int(NOW.timestamp()) * 1_000_000
ORIGIN = LoadOrigin("prometheus", 12.4)
REASON = "node(s) above the cpu hot threshold 0.8"
ONE = RuleRefusals("hot_cpu", REASON, 1, 0.8, (RefusedNode("node-3", 0.93, ORIGIN),))
MANY = RuleRefusals("hot_cpu", REASON, 12, 0.8, tuple(RefusedNode(f"n{n}", 0.8004, ORIGIN) for n in range(3)))
UNKNOWN = RuleRefusals(
    "unknown", "node(s) had no fresh load", 2, None, tuple(RefusedNode(n, None, LoadOrigin()) for n in ("a", "b"))
)
WITH_POD = RuleRefusals(
    *("hot_cpu", "node(s) would be above the cpu hot threshold 0.8 with this Pod", 2, 0.8),
    (RefusedNode("a", 0.79, ORIGIN, demand=0.4), RefusedNode("b", 0.7501, ORIGIN, demand=0.05)),
)
CLOSE = "0.8004 from prometheus, 12 s old"
BEST = tuple(ScoredNode(f"n{n}", 9 - n, 0.75, 0.5, 0.0, 1.0, ORIGIN) for n in range(3))
SCORE = ScoreAttempt(NOW, 40, BEST, {"cpu": 0.4, "latency": -0.2})


def record(passed: int, *refused: RuleRefusals, mode: Mode = Mode.ENFORCE, **more: Any) -> SchedulingRecord:
    asked = FilterAttempt(NOW, 40, passed, more.pop("only", ""), refused)
    return SchedulingRecord("u", "shop", "web-1", "web", mode, NOW, NOW, attempts=3, filter=asked, **more)


@pytest.mark.parametrize(
    ("refused", "text"),
    [
        (ONE, "1 node above the cpu hot threshold 0.8 (node-3 0.93 from prometheus, 12 s old)"),
        (UNKNOWN, "2 nodes had no fresh load (a without a load, b without a load)"),
        (
            WITH_POD,
            (
                "2 nodes would be above the cpu hot threshold 0.8 with this Pod (a 0.79 + 0.40 of this Pod,"
                " from prometheus, 12 s old, b 0.7501 + 0.0500 of this Pod, from prometheus, 12 s old)"
            ),
        ),
        (
            MANY,
            f"12 nodes above the cpu hot threshold 0.8 (n0 {CLOSE}, n1 {CLOSE}, n2 {CLOSE}, and 9 more)",
        ),
    ],
)
def test_refusal_has_the_figures_of_its_nodes(refused: RuleRefusals, text: str) -> None:
    assert describe_refusals(record(0, refused)) == [text]
    assert describe_refusals(record(40, refused, mode=Mode.AUDIT)) == [f"not enforced: {text}"]


def test_extender_is_blamed_only_if_it_left_no_node_and_the_scheduler_says_so() -> None:
    message = f"0/5 nodes are available: 1 {REASON}, 4 node(s) had untolerated taint(s)"
    assert (
        explain_extender_refusal(record(0, ONE), message, NOW_US)
        == f"refused by podgate-extender: {describe_refusals(record(0, ONE))[0]}"
    )
    assert explain_extender_refusal(record(1, ONE), message, NOW_US) == ""
    assert explain_extender_refusal(record(0, ONE), "0/5 nodes are available: 5 Insufficient cpu", NOW_US) == ""


def test_refusal_of_a_while_ago_is_not_told_as_one_of_now() -> None:
    message, refusal = f"0/5 nodes are available: 1 {REASON}", describe_refusals(record(0, ONE))[0]
    found = [explain_extender_refusal(record(0, ONE), message, NOW_US + 1_000_000 * age) for age in (9, 80)]
    assert found == [f"refused by podgate-extender: {refusal}", f"refused by podgate-extender 80 s ago: {refusal}"]
    assert explain_extender_refusal(None, message, NOW_US) == ""


@pytest.mark.parametrize(
    ("node", "only", "score", "text"),
    [
        ("n0", "", SCORE, "; bound to n0, with the best score of 40 nodes"),
        ("n1", "", SCORE, "; bound to n1, by kube-scheduler's own scores: others had more of the extender's"),
        ("n0", "n0", None, "; bound to n0, the only node that passed"),
        ("n0", "", None, "; bound to n0"),
        ("", "", SCORE, ""),
    ],
)
def test_choice_of_the_node_is_told(node: str, only: str, score: ScoreAttempt | None, text: str) -> None:
    found = describe_attempt(record(28, node=node, only=only, score=score))
    assert found == f"2026-11-24T04:00:00Z Enforce, service web, attempt 3; 28 of 40 nodes passed{text}"


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (record(1, only="n0"), "none: n0 was the only node left, and kube-scheduler then asks for none"),
        (record(40, mode=Mode.AUDIT), "none: the mode Audit scores no nodes"),
    ],
)
def test_absence_of_scores_has_its_reason(found: SchedulingRecord, text: str) -> None:
    assert (describe_scores(found), describe_weights(found)) == ([text], "")


def test_refusal_for_zones_has_what_was_asked_and_what_each_zone_has() -> None:
    zones = ZoneFigures({"cpu": "6", "memory": "1Gi"}, tuple({"cpu": cpu, "memory": "64Gi"} for cpu in ("4", "3500m")))
    nodes = (RefusedNode("a", None, ORIGIN, zones), RefusedNode("b", None, ORIGIN, ZoneFigures({"cpu": "6"}, ())))
    found = record(0, RuleRefusals("numa", "node(s) had no single NUMA zone", 2, None, nodes))
    assert describe_refusals(found) == ["2 nodes had no single NUMA zone (a, b)"]
    assert describe_refused_zones(found) == [
        (
            "a: cpu 6, memory 1Gi asked of one zone;"
            " zone 0 has cpu 4, memory 64Gi free; zone 1 has cpu 3500m, memory 64Gi free"
        ),
        "b: cpu 6 asked of one zone; there is no zone",
    ]


def test_pod_that_no_node_could_ever_take_has_what_to_do_and_what_the_zones_have_in_all() -> None:
    zones = ZoneFigures({"cpu": "6"}, ({"cpu": "4"},))
    never = RuleRefusals(
        "numa",
        "node(s) had only NUMA zones too small",
        1,
        None,
        (RefusedNode("a", None, ORIGIN, zones),),
        is_permanent=True,
    )
    remedy = "let it ask for less, or add a node with larger NUMA zones: waiting does not help"
    assert describe_refused_zones(record(0, never)) == ["a: cpu 6 asked of one zone; zone 0 has cpu 4 in all"]
    assert advise_after_refusal(record(0, never)) == remedy
    assert advise_after_refusal(record(0, never, ONE)) == ""
    assert advise_after_refusal(None) == ""


def test_candidates_of_preemption_are_told() -> None:
    assert describe_attempt(record(0, preempt=PreemptAttempt(NOW, 2, 1))).endswith("; preemption: 1 of 2 nodes passed")


def test_best_nodes_have_their_terms_and_weights_unless_they_are_of_an_earlier_attempt() -> None:
    found = record(28, score=SCORE)
    assert len(describe_scores(found)) == 3
    terms = "free cpu 0.75, free memory 0.50, latency 0.00, near 1.00"
    assert describe_scores(found)[0] == f"n0 9 of 10: {terms} (from prometheus, 12 s old)"
    assert describe_weights(found) == "cpu 0.4, latency -0.2"
    risky = record(28, score=ScoreAttempt(NOW, 40, (replace(BEST[0], risk=0.35),), {"cpu": 0.4, "risk": -0.3}))
    assert describe_scores(risky) == [f"n0 9 of 10: {terms}, risk 0.35 (from prometheus, 12 s old)"]
    assert describe_weights(risky) == "cpu 0.4, risk -0.3"
    earlier = record(28, score=ScoreAttempt(NOW - timedelta(seconds=9), 40, BEST, SCORE.weights))
    assert (describe_scores(earlier), describe_weights(earlier)) == ([], "")
