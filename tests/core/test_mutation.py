"""The patch: f(f(x)) = f(x), minimal, it applies, nothing else changes, and no Pod escapes."""

from collections.abc import Sequence
from copy import deepcopy
from itertools import product
from typing import Any

import jsonpatch
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.nodes_and_taints import node_fits, seconds_tolerated, terms_of
from tests.core.strategies import (
    HASH,
    OUR_ANNOTATION,
    OUR_LABEL,
    PROPERTY,
    REGION,
    ZONE,
    Json,
    keys,
    names,
    pods,
    service_of,
    services,
    tolerations,
    values,
)
from webhook.core import validation
from webhook.core.decision import Code
from webhook.core.mutation import covers, required_expressions, rewrite, rule_for
from webhook.core.patch import Operation
from webhook.core.pod import Pod
from webhook.core.policy import Modes, Service
from webhook.core.stanzas import Mode, OnConflict, Placement


def read(raw: Json) -> Pod:
    return msgspec.json.decode(msgspec.json.encode(raw), type=Pod)


def patch_of(raw: Json, service: Service) -> tuple[Operation, ...]:
    return rewrite(read(raw), service, HASH)


def applied(raw: Json, patch: Sequence[Operation]) -> Json:
    """Apply by an independent library, as the API server does; deep copies, so that nothing is shared."""
    result: Json = jsonpatch.apply_patch(deepcopy(raw), deepcopy(msgspec.to_builtins(list(patch))))
    return result


def placement_of(service: Service) -> Placement:
    assert service.placement is not None
    return service.placement


def pruned(value: Any) -> Any:
    """Without what says nothing: null, {} and []."""
    if isinstance(value, dict):
        kept = {key: pruned(item) for key, item in value.items()}
        return {key: item for key, item in kept.items() if item not in (None, {}, [])}
    if isinstance(value, list):
        return [item for item in map(pruned, value) if item not in (None, {}, [])]
    return value


def others_business(raw: Json, service: Service) -> Any:
    """All of a Pod but what its service owns."""
    rest, placement = deepcopy(raw), placement_of(service)
    (rest["metadata"].get("labels") or {}).pop(OUR_LABEL, None)
    (rest["metadata"].get("annotations") or {}).pop(OUR_ANNOTATION, None)
    if placement.scheduler_name is not None:
        rest["spec"].pop("schedulerName", None)
    for key in placement.node_selector:
        (rest["spec"].get("nodeSelector") or {}).pop(key, None)
    ours = msgspec.json.decode(msgspec.json.encode(required_expressions(placement)))
    for term in terms_of(rest) or []:
        term["matchExpressions"] = [one for one in term.get("matchExpressions") or [] if one not in ours]
    mine = [msgspec.to_builtins(wanted) for wanted in placement.tolerations]
    rest["spec"]["tolerations"] = [one for one in rest["spec"].get("tolerations") or [] if one not in mine]
    return pruned(rest)


@PROPERTY
@given(pods, services)
def test_rewriting_twice_is_rewriting_once(raw: Json, service: Service) -> None:
    once = applied(raw, patch_of(raw, service))
    assert patch_of(once, service) == ()


@PROPERTY
@given(pods, services)
def test_a_rewritten_pod_passes_validation_but_for_the_users_own_contradictions(raw: Json, service: Service) -> None:
    placement = placement_of(service)
    found = validation.check(read(applied(raw, patch_of(raw, service))), service, hash_known=True)
    allowed: set[str] = set()
    own = raw["spec"].get("nodeSelector") or {}
    if rule_for(placement.on_conflict, "node_selector") is OnConflict.DENY:
        allowed |= {
            f"spec.nodeSelector[{key}]"
            for key, value in placement.node_selector.items()
            if key in own and own[key] != value
        }
    theirs = raw["spec"].get("schedulerName") == "their-scheduler" and placement.scheduler_name is not None
    if theirs and rule_for(placement.on_conflict, "scheduler_name") is OnConflict.DENY:
        allowed.add("spec.schedulerName")
    assert {finding.field for finding in found} == allowed
    assert {finding.code for finding in found} <= {Code.PLACEMENT_CONFLICT}


@PROPERTY
@given(pods, services)
def test_every_operation_of_a_patch_is_needed(raw: Json, service: Service) -> None:
    patch = patch_of(raw, service)
    for index in range(len(patch)):
        lacking = applied(raw, patch[:index] + patch[index + 1 :])
        assert patch_of(lacking, service) != (), patch[index]


@PROPERTY
@given(pods, services)
def test_what_the_policy_does_not_own_stays_as_it_was(raw: Json, service: Service) -> None:
    assert others_business(applied(raw, patch_of(raw, service)), service) == others_business(raw, service)


@PROPERTY
@given(pods, services)
def test_the_users_terms_survive_in_number_order_and_content(raw: Json, service: Service) -> None:
    before, after = terms_of(raw), terms_of(applied(raw, patch_of(raw, service)))
    if before is None:
        return
    assert after is not None
    assert len(after) == len(before)
    for old, new in zip(before, after, strict=True):
        own = old.get("matchExpressions") or []
        assert new.get("matchFields") == old.get("matchFields")
        assert (new.get("matchExpressions") or [])[: len(own)] == own
        if not own and not old.get("matchFields"):
            assert new == old, "an empty term matches nothing: an expression in it would let nodes in"


@PROPERTY
@given(pods, services, names, st.dictionaries(keys, values))
def test_a_node_fits_the_rewritten_pod_iff_the_user_and_the_policy_both_allow_it(
    raw: Json, service: Service, name: str, labels: dict[str, str]
) -> None:
    required = [entry for entry in placement_of(service).topology if entry.preferred_weight is None]
    by_policy = all(entry.label in labels and labels[entry.label] in entry.values for entry in required)
    patched = applied(raw, patch_of(raw, service))
    assert node_fits(patched, name, labels) == (node_fits(raw, name, labels) and by_policy)


@PROPERTY
@given(pods, services)
def test_a_taint_is_tolerated_iff_the_user_or_the_policy_tolerates_it(raw: Json, service: Service) -> None:
    mine = [msgspec.to_builtins(wanted) for wanted in placement_of(service).tolerations]
    patched = applied(raw, patch_of(raw, service))["spec"].get("tolerations") or []
    theirs = raw["spec"].get("tolerations") or []
    for taint in product(
        ["gpu", "node.kubernetes.io/not-ready", "?"],
        ["", "a", "b", "4", "6"],
        ["NoSchedule", "PreferNoSchedule", "NoExecute"],
    ):
        either = seconds_tolerated(theirs, *taint) >= 0 or seconds_tolerated(mine, *taint) >= 0
        assert (seconds_tolerated(patched, *taint) >= 0) == either, taint


@PROPERTY
@given(tolerations(), tolerations())
def test_one_toleration_covers_another_only_if_it_bears_every_taint_as_long(own: Json, wanted: Json) -> None:
    pod = read({"metadata": {}, "spec": {"tolerations": [own, wanted]}})
    first, second = pod.spec.tolerations or ()
    second = msgspec.structs.replace(second, operator=second.operator or "Equal")
    if covers(first, second):
        for taint in product(
            ["gpu", "node.kubernetes.io/not-ready", "?"],
            ["", "a", "b", "4", "6"],
            ["NoSchedule", "PreferNoSchedule", "NoExecute"],
        ):
            assert seconds_tolerated([own], *taint) >= seconds_tolerated([wanted], *taint)


@PROPERTY
@given(pods, services, st.sampled_from([Mode.WARN, Mode.AUDIT, Mode.DISABLED]))
def test_a_placement_that_is_not_enforced_alters_label_and_annotation_only(
    raw: Json, service: Service, mode: Mode
) -> None:
    lenient = msgspec.structs.replace(service, modes=Modes(placement=mode))
    patched = applied(raw, patch_of(raw, lenient))
    assert patched["spec"] == raw["spec"]
    assert patched["metadata"]["labels"][OUR_LABEL] == "s"
    assert patched["metadata"]["annotations"][OUR_ANNOTATION] == HASH


@given(pods)
def test_a_service_with_every_mode_disabled_is_left_alone(raw: Json) -> None:
    off = Modes(Mode.DISABLED, Mode.DISABLED, Mode.DISABLED, Mode.DISABLED)
    assert patch_of(raw, service_of({"schedulerName": "podgate-scheduler"}, modes=off)) == ()


def pod(**spec: Any) -> Json:
    return {"metadata": {"labels": {OUR_LABEL: "s"}, "annotations": {OUR_ANNOTATION: HASH}}, "spec": spec}


def operations(raw: Json, **placement: Any) -> list[Json]:
    built: list[Json] = msgspec.to_builtins(list(patch_of(raw, service_of(placement))))
    return built


ZONES = [{"level": "Zone", "in": ["b", "g"]}]
IN_ZONES = {"key": ZONE, "operator": "In", "values": ["b", "g"]}
REQUIRED = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution"


def with_terms(*terms: Json) -> Json:
    return pod(
        affinity={
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
        }
    )


def test_keys_of_labels_are_escaped_as_json_pointers() -> None:
    raw = {"metadata": {"labels": {"app": "x"}, "annotations": {"a": "b"}}, "spec": {"nodeSelector": {"a/b": "2"}}}
    patch = patch_of(raw, service_of({"nodeSelector": {"a/b": "1", "c~d": "1"}, "onConflict": {"default": "Override"}}))
    assert [(one.op, one.path) for one in patch] == [
        ("add", "/metadata/labels/podgate.io~1service"),
        ("add", "/metadata/annotations/podgate.io~1policy-hash"),
        ("replace", "/spec/nodeSelector/a~1b"),
        ("add", "/spec/nodeSelector/c~0d"),
    ]


def test_a_tenants_own_label_and_hash_are_overwritten() -> None:
    forged = {"metadata": {"labels": {OUR_LABEL: "gold"}, "annotations": {OUR_ANNOTATION: "f" * 16}}, "spec": {}}
    assert [(one.op, one.value) for one in patch_of(forged, service_of({}))] == [("replace", "s"), ("replace", HASH)]


def test_each_of_several_terms_is_narrowed_not_only_the_last() -> None:
    other = {"key": "disk", "operator": "Exists"}
    raw = with_terms({"matchExpressions": [other]}, {"matchExpressions": [IN_ZONES]}, {"matchExpressions": [other]})
    assert operations(raw, topology=ZONES) == [
        {"op": "add", "path": f"{REQUIRED}/nodeSelectorTerms/0/matchExpressions/-", "value": IN_ZONES},
        {"op": "add", "path": f"{REQUIRED}/nodeSelectorTerms/2/matchExpressions/-", "value": IN_ZONES},
    ]


def test_a_daemon_sets_match_fields_are_joined_not_replaced() -> None:
    raw = with_terms({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]})
    assert operations(raw, topology=ZONES) == [
        {"op": "add", "path": f"{REQUIRED}/nodeSelectorTerms/0/matchExpressions", "value": [IN_ZONES]}
    ]


@pytest.mark.parametrize("empty", [{}, {"matchExpressions": None}, {"matchExpressions": []}, {"matchFields": []}])
def test_an_empty_term_matches_nothing_and_stays_empty(empty: Json) -> None:
    assert operations(with_terms(empty), topology=ZONES) == []


def test_a_narrower_choice_of_the_user_stands_and_a_wider_one_is_narrowed() -> None:
    narrow, wide = {**IN_ZONES, "values": ["g"]}, {**IN_ZONES, "values": ["b", "x"]}
    assert operations(with_terms({"matchExpressions": [narrow]}), topology=ZONES) == []
    assert len(operations(with_terms({"matchExpressions": [wide]}), topology=ZONES)) == 1


@pytest.mark.parametrize("operator", ["NotIn", "Exists", "DoesNotExist"])
def test_only_in_implies_a_required_value(operator: str) -> None:
    own = {"key": ZONE, "operator": operator, "values": ["b"]}
    assert len(operations(with_terms({"matchExpressions": [own]}), topology=ZONES)) == 1


def test_entries_of_one_label_are_intersected_and_preferred_ones_do_not_bind() -> None:
    topology = [*ZONES, {"level": "Zone", "in": ["g", "h"]}, {"level": "Region", "in": ["r"], "preferredWeight": 9}]
    expected = {"key": ZONE, "operator": "In", "values": ["g"]}
    assert operations(pod(), topology=topology)[0]["value"]["nodeAffinity"] == {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [expected]}]}
    }
    assert REGION not in str(operations(pod(), topology=topology))


@pytest.mark.parametrize(
    ("own", "rule", "expected"),
    [
        (None, "Deny", [("add", "podgate-scheduler")]),
        ("", "Deny", [("replace", "podgate-scheduler")]),
        ("default-scheduler", "Deny", [("replace", "podgate-scheduler")]),
        ("podgate-scheduler", "Deny", []),
        ("their-scheduler", "Deny", []),
        ("their-scheduler", "Keep", []),
        ("their-scheduler", "Override", [("replace", "podgate-scheduler")]),
    ],
)
def test_the_schedulers_name_by_rule(own: str | None, rule: str, expected: list[tuple[str, str]]) -> None:
    raw = pod(schedulerName=own) if own is not None else pod()
    found = operations(raw, schedulerName="podgate-scheduler", onConflict={"schedulerName": rule})
    assert [(one["op"], one["value"]) for one in found] == expected


NOT_READY = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}


def test_a_longer_toleration_stands_before_the_default_one_which_would_win() -> None:
    """DefaultTolerationSeconds runs before webhooks, and eviction goes by the first toleration that fits."""
    raw = pod(tolerations=[{"key": "gpu", "operator": "Exists"}, {**NOT_READY, "tolerationSeconds": 300}])
    wanted = {**NOT_READY, "tolerationSeconds": 3600}
    patched = applied(raw, patch_of(raw, service_of({"tolerations": [wanted]})))
    taint = (NOT_READY["key"], "", "NoExecute")
    assert seconds_tolerated(patched["spec"]["tolerations"], *taint) == 3600
    assert patch_of(patched, service_of({"tolerations": [wanted]})) == ()


@pytest.mark.parametrize("seconds", [{}, {"tolerationSeconds": 300}, {"tolerationSeconds": 301}])
def test_what_the_pod_bears_long_enough_is_not_added_again(seconds: Json) -> None:
    raw = pod(tolerations=[{**NOT_READY, **seconds}])
    assert operations(raw, tolerations=[{**NOT_READY, "tolerationSeconds": 300}]) == []


def test_a_toleration_that_another_one_covers_is_not_added() -> None:
    narrow, broad = {"key": "gpu", "value": "a", "effect": "NoSchedule"}, {"key": "gpu", "operator": "Exists"}
    assert operations(pod(), tolerations=[narrow, broad, broad])[0]["value"] == [broad]
