"""Fields that are written only into Pods without their own: as if the policy did not set them for other Pods."""

import msgspec
import pytest
from hypothesis import given

from tests.core.oracle import policy
from tests.core.strategies import PROPERTY, Json, Pair, pairs, service_of
from webhook.core.admission.mutation import place_pod
from webhook.core.kubernetes.pod import Pod
from webhook.core.placement import find_violations
from webhook.core.rule_notes import explain

BOTH = ["topologySpreadConstraints", "podAntiAffinity"]
SPREAD = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
OWN = {**SPREAD, "topologyKey": "rack"}


def decode_pod(document: Json) -> Pod:
    return msgspec.json.decode(msgspec.json.encode(document), type=Pod)


@PROPERTY
@given(pairs)
def test_pod_with_fields_of_its_own_is_placed_as_if_the_policy_had_none(pair: Pair) -> None:
    pod = decode_pod(pair.pod)
    placement = {**pair.placement, "ifAbsent": BOTH}
    service, expected = service_of(placement), service_of(policy.drop_absent_fields(placement, pair.pod))
    assert place_pod(pod, service) == place_pod(pod, expected)
    assert service.placement_plan is not None
    assert expected.placement_plan is not None
    assert find_violations(pod, service.placement_plan) == find_violations(pod, expected.placement_plan)


@pytest.mark.parametrize(("own", "words"), [(OWN, "left to the Pod's own (ifAbsent)"), (SPREAD, "already so")])
def test_note_says_that_the_pod_keeps_its_own(own: Json, words: str) -> None:
    service = service_of({"topologySpreadConstraints": [SPREAD], "ifAbsent": BOTH[:1]})
    pod = {"metadata": {}, "spec": {"containers": [], "topologySpreadConstraints": [own]}}
    notes = explain(pod, service, "0" * 16)
    assert [note.words for note in notes if note.rule.startswith("placement.")] == [words]
