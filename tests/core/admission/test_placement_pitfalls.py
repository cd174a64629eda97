"""Known pitfalls of placement, each as users reported it."""

from copy import deepcopy
from typing import Any

import pytest

from tests.core.generating.policies import document
from tests.core.generating.vocabulary import HASH, OUR_ANNOTATION, OUR_LABEL, REGION, REQUIRED, ZONE, Json
from tests.core.oracle.nodes import Node, node_fits, terms_of
from tests.core.rewriting import applied, patch_of, plain, read, rewritten
from tests.core.strategies import service_of
from webhook.core.admission.validation import check
from webhook.core.document.loading import load_unproved
from webhook.core.document.yaml.problems import DocumentError
from webhook.core.findings import Code

IN_ZONE = {"key": ZONE, "operator": "In", "values": ["b"]}
ON_SSD = {"key": "disk", "operator": "In", "values": ["ssd"]}
NOT_READY = {
    "key": "node.kubernetes.io/not-ready",
    "operator": "Exists",
    "effect": "NoExecute",
    "tolerationSeconds": 300,
}
ELSEWHERE = Node("n1", {ZONE: "a", "disk": "ssd"})
THERE = Node("n2", {ZONE: "b", "disk": "ssd"})
PLACEMENT: Json = {
    "schedulerName": "podgate-scheduler",
    "nodeSelector": {"disk": "ssd"},
    "topology": [{"level": "Zone", "in": ["b"]}, {"level": "Region", "in": ["r"], "preferredWeight": 9}],
    "affinity": {"podAntiAffinity": {REQUIRED: [{"topologyKey": ZONE, "labelSelector": {"matchLabels": {"a": "1"}}}]}},
    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}],
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "priorityClassName": "payments-high",
    "runtimeClassName": "gvisor",
}


def pod(*terms: Json, **spec: Any) -> Json:
    if terms:
        spec["affinity"] = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}
    return {"metadata": {"namespace": "shop"}, "spec": {"containers": [{"name": "c"}], **spec}}


def placed(raw: Json, **placement: Any) -> Json:
    return rewritten(raw, service_of(placement))


IN_B = {"topology": [{"level": "Zone", "in": ["b"]}]}


def test_affinity_appended_as_a_new_ored_term_lets_pods_escape() -> None:
    """Koordinator's and others' way: our term beside the user's, of which a node needs to fit but one."""
    raw = pod({"matchExpressions": [ON_SSD]})
    assert node_fits(raw, ELSEWHERE)
    after = placed(raw, **IN_B)
    assert not node_fits(after, ELSEWHERE)
    assert node_fits(after, THERE)
    assert len(terms_of(after) or []) == 1


def test_a_later_webhook_that_appends_an_ored_term_is_found_out() -> None:
    after = placed(pod({"matchExpressions": [ON_SSD]}), **IN_B)
    (terms_of(after) or []).append({"matchExpressions": [ON_SSD]})
    (found,) = check(read(after), service_of(IN_B), hash_known=True)
    assert found.code is Code.PLACEMENT_UNFULFILLED
    assert "nodeSelectorTerms[1]" in found.field


@pytest.mark.parametrize("place", [0, 1, 2])
def test_only_the_last_term_was_narrowed(place: int) -> None:
    """Every term lets nodes in by itself: whichever is forgotten is the way out."""
    terms: list[Json] = [{"matchExpressions": [{"key": f"k{number}", "operator": "Exists"}]} for number in range(3)]
    after = placed(pod(*terms), **IN_B)
    assert not node_fits(after, Node("n", {f"k{place}": "", ZONE: "a"}))
    assert node_fits(after, Node("n", {f"k{place}": "", ZONE: "b"}))


def test_affinity_doubles_at_every_reinvocation() -> None:
    service = service_of(PLACEMENT)
    once = rewritten(pod({"matchExpressions": [ON_SSD]}), service)
    assert patch_of(once, service) == ()
    assert str(once["spec"]).count(REGION) == 1


def test_tolerations_are_repeated_on_reinvocation() -> None:
    """Also where a later plugin, DefaultTolerationSeconds say, has put its own between ours."""
    service = service_of(PLACEMENT)
    once = rewritten(pod(), service)
    once["spec"]["tolerations"].insert(0, NOT_READY)
    assert patch_of(once, service) == ()


def test_the_users_tolerations_and_the_default_ones_are_replaced() -> None:
    own = [{"key": "mine", "operator": "Exists", "effect": "NoSchedule"}, NOT_READY]
    after = placed(pod(tolerations=own), tolerations=[{"key": "gpu", "operator": "Exists"}])
    assert after["spec"]["tolerations"][:2] == own
    assert len(after["spec"]["tolerations"]) == 3


def test_the_users_node_selector_terms_are_replaced() -> None:
    own = [
        {"matchExpressions": [ON_SSD]},
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["x"]}]},
    ]
    after = terms_of(placed(pod(*own), **IN_B))
    assert after == [{"matchExpressions": [ON_SSD, IN_ZONE]}, {**own[1], "matchExpressions": [IN_ZONE]}]


def test_a_users_own_zone_is_overwritten() -> None:
    """Gatekeeper's assign: a Pod for zone a that lands in b, where its volume is not."""
    in_a = {"key": ZONE, "operator": "In", "values": ["a"]}
    raw = pod({"matchExpressions": [in_a]}, nodeSelector={ZONE: "a"})
    after = placed(raw, **IN_B)
    assert after["spec"]["nodeSelector"] == {ZONE: "a"}
    assert in_a in (terms_of(after) or [{}])[0]["matchExpressions"]
    assert not node_fits(after, THERE)
    found = check(read(after), service_of(IN_B), hash_known=True)
    assert [finding.code for finding in found] == [Code.PLACEMENT_CONTRADICTION], "and somebody is told"


def test_a_guard_on_the_key_alone_lets_another_zone_through() -> None:
    """What says something of zones, but not what we ask, is no reason to leave a Pod alone."""
    wrong = ({"operator": "In", "values": ["a"]}, {"operator": "Exists"}, {"operator": "NotIn", "values": ["b"]})
    for one in wrong:
        after = placed(pod({"matchExpressions": [{"key": ZONE, **one}]}), **IN_B)
        assert not node_fits(after, ELSEWHERE), one


def test_two_mutators_that_undo_each_other_never_converge() -> None:
    """We add to what is there, and never move or rewrite it: what others add is no reason to start anew."""
    service = service_of(PLACEMENT)
    found = rewritten(pod({"matchExpressions": [ON_SSD]}), service)
    for number in range(5):
        spec = found["spec"]
        spec["tolerations"].insert(0, {"key": f"other-{number}", "operator": "Exists"})
        spec["nodeSelector"][f"other-{number}"] = "x"
        for term in terms_of(found) or []:
            term["matchExpressions"].reverse()
        spec["topologySpreadConstraints"].reverse()
        assert patch_of(found, service) == ()


def test_an_id_of_the_call_in_an_annotation_breaks_idempotence() -> None:
    """What we write depends on Pod and policy alone."""
    raw, service = pod(), service_of(PLACEMENT)
    assert patch_of(raw, service) == patch_of(deepcopy(raw), service)
    after = rewritten(raw, service)
    assert after["metadata"]["annotations"] == {OUR_ANNOTATION: HASH}
    assert after["metadata"]["labels"] == {OUR_LABEL: "s"}


def test_a_pod_is_admitted_half_mutated() -> None:
    """Whatever part of a patch is undone or was never applied, the validating half says so."""
    raw, service = pod({"matchExpressions": [{"key": "arch", "operator": "Exists"}]}), service_of(PLACEMENT)
    patch = plain(patch_of(raw, service))
    required = [one for one in patch if "preferred" not in one["path"] and "preferred" not in str(one.get("value"))]
    for operation in required:
        half = applied(raw, [one for one in patch if one is not operation])
        assert check(read(half), service, hash_known=True), operation
    assert check(read(applied(raw, patch)), service, hash_known=True) == ()


def test_a_priority_class_without_its_priority_is_refused_by_the_api_server() -> None:
    """The first round has filled in priority 0, and the second computes another from our class: it must find none."""
    filled = {"priority": 0, "preemptionPolicy": "PreemptLowerPriority"}
    after = placed(pod(**filled), priorityClassName="payments-high")
    assert after["spec"]["priorityClassName"] == "payments-high"
    assert not {"priority", "preemptionPolicy"} & set(after["spec"])


def test_a_typo_in_the_configuration_is_silently_ignored() -> None:
    with pytest.raises(DocumentError, match="toplogy"):
        load_unproved(document({"toplogy": IN_B["topology"]}), None)
