"""Degrade: requirements stay, preferences are omitted, no Pod is denied for it, and closing restores them."""

from typing import Any

import msgspec
import pytest
from hypothesis import given

from tests.core.generating.policies import Governed, governed
from tests.core.generating.vocabulary import PREFERRED, REQUIRED
from tests.core.oracle_comparison import found_wrong
from tests.core.placement.examples import IN_ZONES, ZONES, pod
from tests.core.rewriting import applied, read, rewritten
from tests.core.strategies import HASH, ZONE, Json, Pair, examples, pairs, service_of
from webhook.core.admission.mutation import rewrite
from webhook.core.admission.validation import check
from webhook.core.policy.model import Service
from webhook.core.proof.corpus import CORPUS, Sample

NEAR = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "cache"}}}
HOST = {**NEAR, "topologyKey": "kubernetes.io/hostname"}


def spread(when: str) -> Json:
    return {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": when}


RICH: Json = {
    "schedulerName": "podgate-scheduler",
    "nodeSelector": {"disk-type": "ssd"},
    "topology": [*ZONES, {"level": "Region", "in": ["r"], "preferredWeight": 50}],
    "affinity": {
        "nodeAffinity": {PREFERRED: [{"weight": 1, "preference": {"matchExpressions": [IN_ZONES]}}]},
        "podAffinity": {REQUIRED: [NEAR], PREFERRED: [{"weight": 1, "podAffinityTerm": HOST}]},
        "podAntiAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": HOST}]},
    },
    "topologySpreadConstraints": [spread("DoNotSchedule"), spread("ScheduleAnyway")],
    "tolerations": [{"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}],
    "priorityClassName": "high",
    "runtimeClassName": "gvisor",
    "onConflict": {"default": "Override"},
}
"""A placement of every kind of field, with something required and something preferred wherever both can be."""


def degraded(raw: Json, service: Service) -> dict[str, Any]:
    return applied(raw, rewrite(read(raw), service, HASH, degraded=True))


def without_preferences(placement: Json) -> Governed:
    """Return the policy that its user would have written, had he preferred nothing."""
    affinity = {
        kind: {REQUIRED: terms[REQUIRED]}
        for kind, terms in placement.get("affinity", {}).items()
        if (terms or {}).get(REQUIRED)
    }
    topology = [entry for entry in placement.get("topology", []) if "preferredWeight" not in entry]
    spreads = [
        one for one in placement.get("topologySpreadConstraints") or [] if one["whenUnsatisfiable"] == "DoNotSchedule"
    ]
    kept = {"affinity": affinity, "topology": topology, "topologySpreadConstraints": spreads}
    return governed({**placement, **{name: value for name, value in kept.items() if name in placement}})


@examples(100)
@given(pairs)
def test_it_does_what_the_policy_without_its_preferences_would_do(pair: Pair) -> None:
    required = without_preferences(pair.placement)
    patch = rewrite(read(pair.pod), pair.service, HASH, degraded=True)
    assert patch == rewrite(read(pair.pod), required.service, HASH)
    assert found_wrong(Pair(pair.pod, required), applied(pair.pod, patch)) == []


@examples(100)
@given(pairs)
def test_degrading_twice_is_degrading_once_and_leaves_a_whole_pod_alone(pair: Pair) -> None:
    for once in (degraded(pair.pod, pair.service), rewritten(pair.pod, pair.service)):
        assert rewrite(read(once), pair.service, HASH, degraded=True) == ()


@examples(100)
@given(pairs)
def test_the_validating_half_says_the_same_of_a_degraded_pod_as_of_a_whole_one(pair: Pair) -> None:
    found, usual = (
        check(read(after), pair.service, hash_known=True)
        for after in (degraded(pair.pod, pair.service), rewritten(pair.pod, pair.service))
    )
    assert found == usual


@examples(100)
@given(pairs)
def test_a_later_call_adds_what_was_left_out(pair: Pair) -> None:
    later = rewritten(degraded(pair.pod, pair.service), pair.service)
    assert spreads_sorted(later) == spreads_sorted(rewritten(pair.pod, pair.service))
    assert rewritten(later, pair.service) == later


def spreads_sorted(raw: Json) -> Json:
    """Return a Pod in which the order of spread constraints, which means nothing, is always the same."""
    found = sorted(raw["spec"].get("topologySpreadConstraints") or [], key=msgspec.json.encode)
    return {**raw, "spec": {**raw["spec"], "topologySpreadConstraints": found}}


@pytest.mark.parametrize("sample", CORPUS, ids=lambda sample: sample.name)
def test_each_pod_of_the_corpus_passes_degraded_as_it_does_whole(sample: Sample) -> None:
    service, raw = service_of(RICH), msgspec.json.decode(sample.raw)
    after, whole = degraded(raw, service), rewritten(raw, service)
    assert check(read(after), service, hash_known=True) == check(read(whole), service, hash_known=True)
    assert rewrite(read(after), service, HASH, degraded=True) == ()
    assert rewritten(after, service) != after, "something was left out"


def test_all_that_is_preferred_is_left_out_and_nothing_else() -> None:
    spec = degraded(pod(), service_of(RICH))["spec"]
    affinity = spec.pop("affinity")
    assert {kind: set(terms) for kind, terms in affinity.items()} == {
        "nodeAffinity": {REQUIRED},
        "podAffinity": {REQUIRED},
    }
    assert [one["whenUnsatisfiable"] for one in spec.pop("topologySpreadConstraints")] == ["DoNotSchedule"]
    assert spec == {
        "schedulerName": "podgate-scheduler",
        "nodeSelector": {"disk-type": "ssd"},
        "tolerations": RICH["tolerations"],
        "priorityClassName": "high",
        "runtimeClassName": "gvisor",
    }


def test_what_a_pod_prefers_itself_is_left_as_it_is() -> None:
    own = {"maxSkew": 5, "topologyKey": ZONE, "whenUnsatisfiable": "ScheduleAnyway"}
    service = service_of(
        {"topologySpreadConstraints": [spread("ScheduleAnyway")], "onConflict": {"default": "Override"}}
    )
    assert degraded(pod(topologySpreadConstraints=[own]), service)["spec"] == {"topologySpreadConstraints": [own]}
    [overridden] = rewritten(pod(topologySpreadConstraints=[own]), service)["spec"]["topologySpreadConstraints"]
    assert overridden["maxSkew"] == 1


def test_a_placement_that_prefers_nothing_has_one_plan() -> None:
    service = service_of({"nodeSelector": {"a": "b"}, "topologySpreadConstraints": [spread("DoNotSchedule")]})
    assert service.degraded_placement_plan is service.placement_plan
    assert Service("s", service.match).degraded_placement_plan is None
