"""Known pitfalls of admission webhooks that set placement: Podgate has none of them."""

from copy import deepcopy
from typing import Any

import pytest

from tests.core.generating.policies import document
from tests.core.generating.vocabulary import HASH, OUR_ANNOTATION, OUR_LABEL, PREFERRED, REGION, REQUIRED, ZONE, Json
from tests.core.oracle.nodes import Node, is_node_match, terms_of
from tests.core.rewriting import apply_json_patch, decode_patch, decode_pod, patch_of, rewrite_pod
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
NODE_IN_A = Node("n1", {ZONE: "a", "disk": "ssd"})
NODE_IN_B = Node("n2", {ZONE: "b", "disk": "ssd"})
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


def place_pod(raw: Json, **placement: Any) -> Json:
    return rewrite_pod(raw, service_of(placement))


IN_B = {"topology": [{"level": "Zone", "in": ["b"]}]}


def test_topology_is_added_to_the_users_terms_and_not_as_an_ored_term() -> None:
    """Koordinator and others append a term of their own: a node needs to match only one of the terms."""
    raw = pod({"matchExpressions": [ON_SSD]})
    assert is_node_match(raw, NODE_IN_A)
    after = place_pod(raw, **IN_B)
    assert not is_node_match(after, NODE_IN_A)
    assert is_node_match(after, NODE_IN_B)
    assert len(terms_of(after) or []) == 1


def test_ored_term_appended_by_a_later_webhook_is_a_finding() -> None:
    after = place_pod(pod({"matchExpressions": [ON_SSD]}), **IN_B)
    (terms_of(after) or []).append({"matchExpressions": [ON_SSD]})
    (found,) = check(decode_pod(after), service_of(IN_B), hash_known=True)
    assert found.code is Code.PLACEMENT_UNFULFILLED
    assert "nodeSelectorTerms[1]" in found.field


@pytest.mark.parametrize("place", [0, 1, 2])
def test_every_term_is_narrowed(place: int) -> None:
    """A node needs to match only one term: each that is not narrowed admits other nodes."""
    terms: list[Json] = [{"matchExpressions": [{"key": f"k{number}", "operator": "Exists"}]} for number in range(3)]
    after = place_pod(pod(*terms), **IN_B)
    assert not is_node_match(after, Node("n", {f"k{place}": "", ZONE: "a"}))
    assert is_node_match(after, Node("n", {f"k{place}": "", ZONE: "b"}))


def test_reinvocation_does_not_repeat_affinity() -> None:
    service = service_of(PLACEMENT)
    first = rewrite_pod(pod({"matchExpressions": [ON_SSD]}), service)
    assert patch_of(first, service) == ()
    assert str(first["spec"]).count(REGION) == 1


def test_reinvocation_does_not_repeat_tolerations() -> None:
    """Also if a later plugin, such as DefaultTolerationSeconds, has inserted its own toleration."""
    service = service_of(PLACEMENT)
    first = rewrite_pod(pod(), service)
    first["spec"]["tolerations"].insert(0, NOT_READY)
    assert patch_of(first, service) == ()


def test_tolerations_of_the_user_and_default_ones_are_kept() -> None:
    own = [{"key": "mine", "operator": "Exists", "effect": "NoSchedule"}, NOT_READY]
    after = place_pod(pod(tolerations=own), tolerations=[{"key": "gpu", "operator": "Exists"}])
    assert after["spec"]["tolerations"][:2] == own
    assert len(after["spec"]["tolerations"]) == 3


def test_node_selector_terms_of_the_user_are_kept() -> None:
    own = [
        {"matchExpressions": [ON_SSD]},
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["x"]}]},
    ]
    after = terms_of(place_pod(pod(*own), **IN_B))
    assert after == [{"matchExpressions": [ON_SSD, IN_ZONE]}, {**own[1], "matchExpressions": [IN_ZONE]}]


def test_zone_of_the_user_is_kept_and_the_contradiction_is_a_finding() -> None:
    """Gatekeeper's Assign overwrites it: a Pod with a volume in zone a is placed in zone b."""
    in_a = {"key": ZONE, "operator": "In", "values": ["a"]}
    raw = pod({"matchExpressions": [in_a]}, nodeSelector={ZONE: "a"})
    after = place_pod(raw, **IN_B)
    assert after["spec"]["nodeSelector"] == {ZONE: "a"}
    assert in_a in (terms_of(after) or [{}])[0]["matchExpressions"]
    assert not is_node_match(after, NODE_IN_B)
    found = check(decode_pod(after), service_of(IN_B), hash_known=True)
    assert [finding.code for finding in found] == [Code.PLACEMENT_CONTRADICTION], "the user is warned"


def test_term_with_another_zone_expression_is_narrowed() -> None:
    """A term that has an expression with the zone key, but another value, is narrowed too."""
    expressions = ({"operator": "In", "values": ["a"]}, {"operator": "Exists"}, {"operator": "NotIn", "values": ["b"]})
    for expression in expressions:
        after = place_pod(pod({"matchExpressions": [{"key": ZONE, **expression}]}), **IN_B)
        assert not is_node_match(after, NODE_IN_A), expression


@pytest.mark.parametrize("own", [[], [{"weight": 1, "podAffinityTerm": {"topologyKey": REGION}}]])
def test_terms_that_mean_the_same_in_the_pods_namespace_are_written_once(own: list[Json]) -> None:
    """A scheduler adds up the weights of preferred terms: written twice, they would count twice."""
    named, its_own = {"topologyKey": ZONE, "namespaces": ["shop"]}, {"topologyKey": ZONE}
    terms = [{"weight": 100, "podAffinityTerm": term} for term in (named, its_own)]
    affinity = {"podAntiAffinity": {PREFERRED: terms, REQUIRED: [named, its_own]}}
    raw = pod(affinity={"podAntiAffinity": {PREFERRED: own}})
    in_shop = place_pod(raw, affinity=affinity)["spec"]["affinity"]["podAntiAffinity"]
    assert in_shop == {PREFERRED: [*own, terms[0]], REQUIRED: [named]}
    raw["metadata"]["namespace"] = "other"
    elsewhere = place_pod(raw, affinity=affinity)["spec"]["affinity"]["podAntiAffinity"]
    assert elsewhere == {PREFERRED: [*own, *terms], REQUIRED: [named, its_own]}


def test_terms_that_mean_the_same_with_the_pods_labels_are_written_once() -> None:
    """The API server merges the values of `matchLabelKeys` and `mismatchLabelKeys` into the selector."""

    def term(values: list[str]) -> Json:
        selector = {"matchExpressions": [{"key": "app", "operator": "In", "values": values}]}
        return {"topologyKey": ZONE, "labelSelector": selector, "mismatchLabelKeys": ["app"]}

    own, wanted = ({"weight": 1, "podAffinityTerm": term(values)} for values in (["x", "y"], ["y"]))
    affinity = {"podAntiAffinity": {PREFERRED: [wanted]}}
    raw = pod(affinity={"podAntiAffinity": {PREFERRED: [own]}})
    raw["metadata"]["labels"] = {"app": "x"}
    assert place_pod(raw, affinity=affinity)["spec"]["affinity"]["podAntiAffinity"] == {PREFERRED: [own]}
    raw["metadata"]["labels"] = {"app": "y"}
    assert place_pod(raw, affinity=affinity)["spec"]["affinity"]["podAntiAffinity"] == {PREFERRED: [own, wanted]}


def test_changes_of_another_mutator_cause_no_new_patch() -> None:
    """Podgate adds entries and never moves or replaces others: their additions and order cause no patch."""
    service = service_of(PLACEMENT)
    found = rewrite_pod(pod({"matchExpressions": [ON_SSD]}), service)
    for number in range(5):
        spec = found["spec"]
        spec["tolerations"].insert(0, {"key": f"other-{number}", "operator": "Exists"})
        spec["nodeSelector"][f"other-{number}"] = "x"
        for term in terms_of(found) or []:
            term["matchExpressions"].reverse()
        spec["topologySpreadConstraints"].reverse()
        assert patch_of(found, service) == ()


def test_patch_depends_on_pod_and_policy_only() -> None:
    """An annotation with the ID of the call would differ in each round."""
    raw, service = pod(), service_of(PLACEMENT)
    assert patch_of(raw, service) == patch_of(deepcopy(raw), service)
    after = rewrite_pod(raw, service)
    assert after["metadata"]["annotations"] == {OUR_ANNOTATION: HASH}
    assert after["metadata"]["labels"] == {OUR_LABEL: "s"}


def test_partly_applied_patch_is_a_finding() -> None:
    """The validating half reports each operation of a patch that was undone or not applied."""
    raw, service = pod({"matchExpressions": [{"key": "arch", "operator": "Exists"}]}), service_of(PLACEMENT)
    patch = decode_patch(patch_of(raw, service))
    required = [item for item in patch if "preferred" not in item["path"] and "preferred" not in str(item.get("value"))]
    for operation in required:
        incomplete = apply_json_patch(raw, [item for item in patch if item is not operation])
        assert check(decode_pod(incomplete), service, hash_known=True), operation
    assert check(decode_pod(apply_json_patch(raw, patch)), service, hash_known=True) == ()


def test_priority_and_preemption_policy_are_removed_with_a_new_priority_class() -> None:
    """The first round sets priority 0; the second refuses a Pod whose priority is not that of its new class."""
    filled = {"priority": 0, "preemptionPolicy": "PreemptLowerPriority"}
    after = place_pod(pod(**filled), priorityClassName="payments-high")
    assert after["spec"]["priorityClassName"] == "payments-high"
    assert not {"priority", "preemptionPolicy"} & set(after["spec"])


def test_misspelled_policy_field_is_an_error() -> None:
    with pytest.raises(DocumentError, match="toplogy"):
        load_unproved(document({"toplogy": IN_B["topology"]}), None)
