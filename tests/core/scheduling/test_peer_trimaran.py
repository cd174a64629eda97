"""Trimaran's plugins of scheduler-plugins (pkg/trimaran): their published cases, in our words.

Node: 1 core, 1 GiB. They add requests whole, so the estimates here have the factor 1. Their scores are from 0 to 100.
Left out is the risk of overcommitment, by the limits of all Pods on a node: the extender has no such term.
"""

from collections import Counter
from math import inf
from typing import NamedTuple

import pytest

from tests.core.document.documents import build_document, list_problems
from tests.core.scheduling.peer_cases import GIB, Case, Held, PeerExtender, check_case
from webhook.core.document import Purpose
from webhook.core.kubernetes.quantity import Number
from webhook.core.policy_fields.scheduling import Risk
from webhook.core.scheduling.measured_load import Decay, NodeLoad, average_with_decay, compute_deviation
from webhook.core.scheduling.node_table import NodeRow, SchedulableNode
from webhook.core.scheduling.scores import compute_node_risk

OTHER = Held.OTHER
WHOLE = "estimate: {cpu: 1, memory: 1}"
BY_RISK = f"{{score: {{cpu: 0, memory: 0, latency: 0, topology: 0, risk: -1}}, {WHOLE}}}"
BY_CPU = f"{{score: {{cpu: 1, memory: 0, latency: 0, topology: 0}}, {WHOLE}}}"
NOTHING_ASKED = "a Pod that asks for nothing is expected to use 250m"
SPREADS = "free resources are preferred: nothing packs nodes up to a target"
BEST_EFFORT = "a Pod that asks for nothing is expected to use 250m, and nodes differ for it, too"


def ask(cpu: str, memory: str) -> dict[str, str]:
    return {"cpu": cpu, "memory": memory}


SCORED = (
    Case("risk: half used", 8, 6, OTHER, NOTHING_ASKED, used=(0.5, 0), rules=BY_RISK),
    Case("risk: hot", 5, 5, used=(1, 0), rules=BY_RISK),
    Case(
        "risk: average and deviation", 7, 7, used=(0.3, 0), varies=(0.16, 0), asks=ask("200m", "256Mi"), rules=BY_RISK
    ),
    Case("risk: memory is worse", 4, 4, used=(0.4, 0.5), varies=(0.16, 0.1), asks=ask("100m", "512Mi"), rules=BY_RISK),
    Case("risk: cpu is worse", 4, 4, used=(0.8, 0.25), varies=(0.2, 0.15), asks=ask("100m", "512Mi"), rules=BY_RISK),
    Case("risk: never measured", 0, 0, used=None, rules=BY_RISK),
    Case("target: idle", 4, 8, OTHER, SPREADS, rules=BY_CPU),
    Case("target: above it", 3, 2, OTHER, SPREADS, used=(0.5, 0), rules=BY_CPU),
    Case("target: more than the node", 0, 0, used=(0.3, 0), asks={"cpu": "1"}, rules=BY_CPU),
    Case("target: never measured", 0, 0, used=None, rules=BY_CPU),
    Case("overcommitment: Pod that asks for nothing", 0, 6, OTHER, BEST_EFFORT, used=(0.2, 0), rules=BY_CPU),
)
"""Scores from 0 to 10: theirs divided by 10, halves to the even number as ours are rounded."""


@pytest.mark.parametrize("case", SCORED, ids=lambda case: case.name)
def test_score(case: Case) -> None:
    check_case(case)
    assert PeerExtender(case, 1, 1).score() == case.ours


class RiskCase(NamedTuple):
    """`theirs` is their score: 100 less the risk. `ours` too; None if it cannot occur."""

    name: str
    used: float
    deviation: float
    theirs: int
    ours: int | None
    capacity: float = 100
    asks: float = 10
    sensitivity: float = 2
    why: str = ""


NO_MEASUREMENT = "a value below 0 is no measurement, and what is not measured has no risk"
NEVER_NEGATIVE = "a deviation is computed here, and is never below 0"
REFUSED = "no policy has such a margin or sensitivity"
RISKS = (
    RiskCase("valid", 40, 36, 57, 57, sensitivity=1),
    RiskCase("no capacity", 40, 36, 0, 0, capacity=0),
    RiskCase("negative average", -40, 36, 65, 100, why=NO_MEASUREMENT),
    RiskCase("large average", 200, 36, 20, 20),
    RiskCase("large average again", 200, 36, 20, 20),
    RiskCase("negative deviation", 40, -36, 75, None, why=NEVER_NEGATIVE),
    RiskCase("large deviation", 40, 120, 25, 25),
    RiskCase("negative margin", 40, 36, 75, None, why=REFUSED),
    RiskCase("negative sensitivity", 40, 36, 57, None, why=REFUSED),
    RiskCase("zero sensitivity", 40, 36, 75, None, why=REFUSED),
    RiskCase("share and deviation", 400, 360, 57, 57, 1000, 100, sensitivity=1),
    RiskCase("share and deviation of nothing", 0, 0, 0, 0, 0, 0, sensitivity=1),
    RiskCase("large used", 1400, 300, 35, 35, 1000, 100, sensitivity=1),
    RiskCase("large deviation of a share", 400, 1600, 25, 25, 1000, 100, sensitivity=1),
    RiskCase("large used and deviation", 1400, 1600, 0, 0, 1000, 0, sensitivity=1),
    RiskCase("negative used", -100, 200, 90, 100, 1000, 0, sensitivity=1, why=NO_MEASUREMENT),
    RiskCase("negative deviation of a share", 0, -200, 80, None, 1000, 400, sensitivity=1, why=NEVER_NEGATIVE),
)
COUNTS = {Held.SAME: 7 + 10, Held.OTHER: 4 + 7}


@pytest.mark.parametrize("case", RISKS, ids=lambda case: case.name)
def test_risk(case: RiskCase) -> None:
    assert (case.theirs == case.ours) == (not case.why)
    if case.ours is None:
        return
    used = average_with_decay([(0.0, case.used)], 0.0, Decay(0.8, 30.0))
    node = SchedulableNode("n", case.capacity, 0.0)
    row = NodeRow.from_node(node, NodeLoad("prometheus", 0.0, used, cpu_deviation_millis=case.deviation))
    free = max(0.0, row.room.cpu - case.asks * row.room.of_milli)
    risk = compute_node_risk(row, free, 1.0, Risk(sensitivity=Number(case.sensitivity)))
    assert round(100 * (1 - risk)) == case.ours


def test_counts_are_those_that_are_stated() -> None:
    held = [case.held for case in SCORED] + [OTHER if case.why else Held.SAME for case in RISKS]
    assert Counter(held) == COUNTS


def test_deviation_is_never_negative() -> None:
    assert compute_deviation([(0.0, 40.0), (0.0, inf), (0.0, -36.0)], 40.0, 0.0, Decay(0.8, 30.0)) == 0.0


@pytest.mark.parametrize(("name", "value"), [("margin", "-1"), ("sensitivity", "-1"), ("sensitivity", "0")])
def test_policy_with_such_a_margin_or_sensitivity_is_refused(name: str, value: str) -> None:
    stanza = f"  placement: {{schedulerName: s}}\n  scheduling: {{risk: {{{name}: {value}}}}}\n"
    [problem] = list_problems(build_document(stanza), Purpose.LINT)
    assert f"scheduling.risk.{name}: {value}: " in problem


def test_risk_of_a_node_is_that_of_the_worse_resource_that_is_measured() -> None:
    node = SchedulableNode("n", 1000.0, GIB)
    both, cpu_alone = (
        NodeRow.from_node(node, NodeLoad("prometheus", 0.0, 400.0, memory, None)) for memory in (0.9 * GIB, None)
    )
    assert compute_node_risk(both, both.room.cpu, both.room.memory, Risk()) == pytest.approx(0.45)
    assert compute_node_risk(cpu_alone, both.room.cpu, 0.5, Risk()) == pytest.approx(0.2)
    assert compute_node_risk(NodeRow.from_node(node), 0.5, 0.5, Risk()) == 0.0
