"""Degrade: requirements stay, preferences are omitted, no Pod is denied for it, and closing restores them."""

from typing import Any

import msgspec
import pytest
from hypothesis import assume, given

from tests.core.generating.policies import Governed, governed
from tests.core.generating.vocabulary import PREFERRED, REQUIRED
from tests.core.oracle_comparison import oracle_faults
from tests.core.placement.examples import IN_ZONES, ZONES, pod
from tests.core.rewriting import applied, read, rewritten
from tests.core.strategies import HASH, ZONE, Json, Pair, examples, pairs, service_of
from webhook.core.admission.mutation import rewrite
from webhook.core.admission.validation import check
from webhook.core.policy.model import Service
from webhook.core.proof.corpus import CORPUS, Sample

NEAR = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "cache"}}}
SPREADS = "topologySpreadConstraints"
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
"""A placement with every field, both required and preferred where possible."""


def degraded(raw: Json, service: Service) -> dict[str, Any]:
    return applied(raw, rewrite(read(raw), service, HASH, degraded=True))


def without_preferences(placement: Json) -> Governed:
    """Return the policy of a placement without its preferences."""
    affinity = {
        kind: {REQUIRED: terms[REQUIRED]}
        for kind, terms in placement.get("affinity", {}).items()
        if (terms or {}).get(REQUIRED)
    }
    topology = [entry for entry in placement.get("topology", []) if "preferredWeight" not in entry]
    spreads = [
        constraint
        for constraint in placement.get("topologySpreadConstraints") or []
        if constraint["whenUnsatisfiable"] == "DoNotSchedule"
    ]
    empty = {
        name for name, left in (("podAntiAffinity", affinity.get("podAntiAffinity")), (SPREADS, spreads)) if not left
    }
    if_absent = [name for name in placement.get("ifAbsent") or [] if name not in empty]
    kept = {"affinity": affinity, "topology": topology, SPREADS: spreads, "ifAbsent": if_absent}
    return governed({**placement, **{name: value for name, value in kept.items() if name in placement}})


@examples(100)
@given(pairs)
def test_degraded_rewrite_equals_that_of_the_policy_without_preferences(pair: Pair) -> None:
    required = without_preferences(pair.placement)
    patch = rewrite(read(pair.pod), pair.service, HASH, degraded=True)
    assert patch == rewrite(read(pair.pod), required.service, HASH)
    assert oracle_faults(Pair(pair.pod, required), applied(pair.pod, patch)) == []


@examples(100)
@given(pairs)
def test_degraded_rewrite_is_idempotent_and_keeps_a_full_rewrite(pair: Pair) -> None:
    for patched in (degraded(pair.pod, pair.service), rewritten(pair.pod, pair.service)):
        assert rewrite(read(patched), pair.service, HASH, degraded=True) == ()


@examples(100)
@given(pairs)
def test_validation_findings_are_equal_after_degraded_and_full_rewrites(pair: Pair) -> None:
    found, expected = (
        check(read(after), pair.service, hash_known=True)
        for after in (degraded(pair.pod, pair.service), rewritten(pair.pod, pair.service))
    )
    assert found == expected


@examples(100)
@given(pairs)
def test_later_rewrite_adds_the_omitted_preferences(pair: Pair) -> None:
    assume(not pair.placement.get("ifAbsent"))  # the required ones that were written are then the Pod's own
    later = rewritten(degraded(pair.pod, pair.service), pair.service)
    assert spreads_sorted(later) == spreads_sorted(rewritten(pair.pod, pair.service))
    assert rewritten(later, pair.service) == later


def spreads_sorted(raw: Json) -> Json:
    """Return a Pod with sorted spread constraints: their order has no meaning."""
    found = sorted(raw["spec"].get("topologySpreadConstraints") or [], key=msgspec.json.encode)
    return {**raw, "spec": {**raw["spec"], "topologySpreadConstraints": found}}


@pytest.mark.parametrize("sample", CORPUS, ids=lambda sample: sample.name)
def test_corpus_pods_have_equal_findings_after_degraded_and_full_rewrites(sample: Sample) -> None:
    service, raw = service_of(RICH), msgspec.json.decode(sample.raw)
    after, full = degraded(raw, service), rewritten(raw, service)
    assert check(read(after), service, hash_known=True) == check(read(full), service, hash_known=True)
    assert rewrite(read(after), service, HASH, degraded=True) == ()
    assert rewritten(after, service) != after, "preferences were omitted"


def test_degraded_rewrite_omits_all_preferences_and_nothing_else() -> None:
    spec = degraded(pod(), service_of(RICH))["spec"]
    affinity = spec.pop("affinity")
    assert {kind: set(terms) for kind, terms in affinity.items()} == {
        "nodeAffinity": {REQUIRED},
        "podAffinity": {REQUIRED},
    }
    assert [constraint["whenUnsatisfiable"] for constraint in spec.pop("topologySpreadConstraints")] == [
        "DoNotSchedule"
    ]
    assert spec == {
        "schedulerName": "podgate-scheduler",
        "nodeSelector": {"disk-type": "ssd"},
        "tolerations": RICH["tolerations"],
        "priorityClassName": "high",
        "runtimeClassName": "gvisor",
    }


def test_preferences_of_the_pod_itself_are_kept() -> None:
    own = {"maxSkew": 5, "topologyKey": ZONE, "whenUnsatisfiable": "ScheduleAnyway"}
    service = service_of(
        {"topologySpreadConstraints": [spread("ScheduleAnyway")], "onConflict": {"default": "Override"}}
    )
    assert degraded(pod(topologySpreadConstraints=[own]), service)["spec"] == {"topologySpreadConstraints": [own]}
    [overridden] = rewritten(pod(topologySpreadConstraints=[own]), service)["spec"]["topologySpreadConstraints"]
    assert overridden["maxSkew"] == 1


def test_placement_without_preferences_has_one_plan() -> None:
    service = service_of({"nodeSelector": {"a": "b"}, "topologySpreadConstraints": [spread("DoNotSchedule")]})
    assert service.degraded_placement_plan is service.placement_plan
    assert Service("s", service.match).degraded_placement_plan is None
