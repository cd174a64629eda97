"""Filters and scores against the second opinion, on generated nodes and rules."""

import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.core.scheduling import second_opinion
from webhook.core.kubernetes.pod import Container, Pod, PodMetadata, PodSpec
from webhook.core.kubernetes.quantity import Number
from webhook.core.policy_fields.scheduling import Hot, Pressure, Risk, Scheduling, ScoreWeights, WhenUnknown
from webhook.core.scheduling.assumed_load import PodLoad
from webhook.core.scheduling.hot_node_filters import _NO_ZONE, make_filters
from webhook.core.scheduling.measured_load import NodeLoad
from webhook.core.scheduling.node_table import NodeRow, SchedulableNode
from webhook.core.scheduling.scores import SCORE_MAX, compute_terms
from webhook.extender.extender import NOT_LISTED

POD = Pod(PodMetadata(name="p"), PodSpec(containers=(Container(name="c"),)))
ROUNDING = 1e-9
amounts = st.one_of(st.none(), st.floats(0, 2e4))
shares = st.one_of(st.none(), st.floats(0, 1))
thresholds = st.sampled_from([0.01, 0.3, 0.5, 0.8, 0.9, 1.0])
loads = st.fixed_dictionaries(
    {
        "source": st.sampled_from(["prometheus", "metricsAPI", "requests"]),
        "cpu": amounts,
        "memory": amounts,
        "latency": st.one_of(st.none(), st.floats(0, 2)),
        **{f"{name}_pressure": shares for name in ("cpu", "memory", "io")},
        **{f"{name}_deviation": amounts for name in ("cpu", "memory")},
    }
)
nodes = st.fixed_dictionaries(
    {
        "load": st.one_of(st.none(), loads),
        "cpu": st.sampled_from([0.0, 1000.0, 8000.0, 64000.0]),
        "memory": st.sampled_from([0.0, 1000.0, 16000.0]),
        "assumed": st.fixed_dictionaries({"cpu": st.floats(0, 5000), "memory": st.floats(0, 5000)}),
    }
)
rules = st.fixed_dictionaries(
    {},
    optional={
        "hot": st.dictionaries(st.sampled_from(["cpu", "memory", "combined"]), thresholds),
        "pressure": st.dictionaries(st.sampled_from(["cpu", "memory", "io"]), thresholds),
        "whenUnknown": st.sampled_from(["Admit", "Refuse"]),
        "ownDemand": st.booleans(),
    },
)
weights = st.fixed_dictionaries({name: st.floats(-1, 1) for name in ("cpu", "memory", "latency", "topology", "risk")})
risks = st.fixed_dictionaries({name: st.sampled_from([0.1, 0.5, 1.0, 2.0, 10.0]) for name in ("margin", "sensitivity")})


def row_of(node: dict[str, Any]) -> NodeRow:
    load = node["load"]
    measured = None
    if load is not None:
        pressures = {name: load[name] for name in ("cpu_pressure", "memory_pressure", "io_pressure")}
        varies = {"cpu_deviation_millis": load["cpu_deviation"], "memory_deviation_bytes": load["memory_deviation"]}
        measured = NodeLoad(load["source"], 0.0, load["cpu"], load["memory"], load["latency"], **pressures, **varies)
    assumed = PodLoad(node["assumed"]["cpu"], node["assumed"]["memory"])
    return NodeRow.from_node(SchedulableNode("n", node["cpu"], node["memory"]), measured, assumed)


@given(nodes, rules, st.floats(0, 5000), st.floats(0, 5000))
def test_filters_refuse_what_the_second_opinion_refuses_and_say_it_without_a_percent_sign(
    node: dict[str, Any], written: dict[str, Any], cpu: float, memory: float
) -> None:
    asked = {"cpu": cpu, "memory": memory}
    assume(all(abs(excess) > ROUNDING for excess in second_opinion.list_excesses(node, written, asked)))
    hot = {name: Number(value) for name, value in written.get("hot", {}).items()}
    stanza = Scheduling(
        hot=Hot(**hot, own_demand=written.get("ownDemand", True)),
        pressure=Pressure(**{name: Number(value) for name, value in written.get("pressure", {}).items()}),
        when_unknown=WhenUnknown(written.get("whenUnknown", "Admit")),
    )
    found = make_filters(POD, stanza, PodLoad(cpu, memory)).find_refusal(row_of(node))
    assert (found is not None) == second_opinion.is_refused(node, written, asked), found
    if found is not None:
        assert "%" not in found.reason, "the scheduler would read it as a format"
        assert found.reason.startswith("node(s) ")


@given(nodes, weights, risks, st.sampled_from([0.0, 1 / 3, 2 / 3, 1.0]), st.floats(0, 5000), st.floats(0, 5000))
def test_scores_are_those_of_the_second_opinion_and_integers_within_the_extenders_range(
    node: dict[str, Any], factors: dict[str, float], risk: dict[str, float], near: float, cpu: float, memory: float
) -> None:
    written = ScoreWeights(**{name: Number(value) for name, value in factors.items()})
    how = Risk(**{name: Number(value) for name, value in risk.items()})
    found = compute_terms(row_of(node), PodLoad(cpu, memory), written, lambda _: near, how)
    expected = second_opinion.compute_score(node, {"cpu": cpu, "memory": memory}, factors, near, risk)
    assert json.dumps(found.score).isdigit(), "one float voids the whole answer"
    assert 0 <= found.score <= SCORE_MAX
    assert abs(found.score - expected) <= 0.5 + 1e-6


def test_default_weights_put_the_worst_node_at_0_and_the_best_at_10() -> None:
    worst = row_of(
        {"load": build_load(8000, 1000, 1.0), "cpu": 8000, "memory": 1000, "assumed": {"cpu": 0, "memory": 0}}
    )
    best = row_of({"load": build_load(0, 0, 0.0), "cpu": 8000, "memory": 1000, "assumed": {"cpu": 0, "memory": 0}})
    none = PodLoad(0, 0)
    assert compute_terms(worst, none, ScoreWeights(), lambda _: 0.0).score == 0
    assert compute_terms(best, none, ScoreWeights(), lambda _: 1.0).score == 10


def build_load(cpu: float, memory: float, latency: float) -> dict[str, Any]:
    pressures = dict.fromkeys(("cpu_pressure", "memory_pressure", "io_pressure"))
    steady = {"cpu_deviation": None, "memory_deviation": None}
    return {"source": "prometheus", "cpu": cpu, "memory": memory, "latency": latency, **pressures, **steady}


@pytest.mark.parametrize("text", [_NO_ZONE.reason, NOT_LISTED])
def test_fixed_texts_have_no_percent_sign(text: str) -> None:
    assert "%" not in text, "the scheduler would read it as a format"
