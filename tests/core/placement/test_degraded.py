"""Degrade: requirements stay, preferences are omitted, no Pod is denied for it, and closing restores them."""

from typing import Any

import msgspec
import pytest
from hypothesis import assume, given

from tests.core.generating.policies import Governed, decode_placement
from tests.core.generating.vocabulary import PREFERRED, REQUIRED
from tests.core.oracle_comparison import find_oracle_faults
from tests.core.placement.examples import IN_ZONES, ZONES, pod
from tests.core.rewriting import apply_json_patch, decode_pod, rewrite_pod
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


def rewrite_degraded(raw: Json, service: Service) -> dict[str, Any]:
    return apply_json_patch(raw, rewrite(decode_pod(raw), service, HASH, degraded=True))


def drop_preferences(placement: Json) -> Governed:
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
    return decode_placement({**placement, **{name: value for name, value in kept.items() if name in placement}})


@examples(100)
@given(pairs)
def test_degraded_rewrite_equals_that_of_the_policy_without_preferences(pair: Pair) -> None:
    required = drop_preferences(pair.placement)
    patch = rewrite(decode_pod(pair.pod), pair.service, HASH, degraded=True)
    assert patch == rewrite(decode_pod(pair.pod), required.service, HASH)
    assert find_oracle_faults(Pair(pair.pod, required), apply_json_patch(pair.pod, patch)) == []


@examples(100)
@given(pairs)
def test_degraded_rewrite_is_idempotent_and_keeps_a_full_rewrite(pair: Pair) -> None:
    for patched in (rewrite_degraded(pair.pod, pair.service), rewrite_pod(pair.pod, pair.service)):
        assert rewrite(decode_pod(patched), pair.service, HASH, degraded=True) == ()


@examples(100)
@given(pairs)
def test_validation_findings_are_equal_after_degraded_and_full_rewrites(pair: Pair) -> None:
    found, expected = (
        check(decode_pod(after), pair.service, hash_known=True)
        for after in (rewrite_degraded(pair.pod, pair.service), rewrite_pod(pair.pod, pair.service))
    )
    assert found == expected


@examples(100)
@given(pairs)
def test_later_rewrite_adds_the_omitted_preferences(pair: Pair) -> None:
    assume(not pair.placement.get("ifAbsent"))  # the required ones that were written are then the Pod's own
    later = rewrite_pod(rewrite_degraded(pair.pod, pair.service), pair.service)
    assert sort_spreads(later) == sort_spreads(rewrite_pod(pair.pod, pair.service))
    assert rewrite_pod(later, pair.service) == later


def sort_spreads(raw: Json) -> Json:
    """Return a Pod with sorted spread constraints: their order has no meaning."""
    found = sorted(raw["spec"].get("topologySpreadConstraints") or [], key=msgspec.json.encode)
    return {**raw, "spec": {**raw["spec"], "topologySpreadConstraints": found}}


@pytest.mark.parametrize("sample", CORPUS, ids=lambda sample: sample.name)
def test_corpus_pods_have_equal_findings_after_degraded_and_full_rewrites(sample: Sample) -> None:
    service, raw = service_of(RICH), msgspec.json.decode(sample.raw)
    after, full = rewrite_degraded(raw, service), rewrite_pod(raw, service)
    assert check(decode_pod(after), service, hash_known=True) == check(decode_pod(full), service, hash_known=True)
    assert rewrite(decode_pod(after), service, HASH, degraded=True) == ()
    assert rewrite_pod(after, service) != after, "preferences were omitted"


def test_degraded_rewrite_omits_all_preferences_and_nothing_else() -> None:
    spec = rewrite_degraded(pod(), service_of(RICH))["spec"]
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
    assert rewrite_degraded(pod(topologySpreadConstraints=[own]), service)["spec"] == {
        "topologySpreadConstraints": [own]
    }
    [overridden] = rewrite_pod(pod(topologySpreadConstraints=[own]), service)["spec"]["topologySpreadConstraints"]
    assert overridden["maxSkew"] == 1


def test_placement_without_preferences_has_one_plan() -> None:
    service = service_of({"nodeSelector": {"a": "b"}, "topologySpreadConstraints": [spread("DoNotSchedule")]})
    assert service.degraded_placement_plan is service.placement_plan
    assert Service("s", service.match).degraded_placement_plan is None
