"""Validation: missing rewrites, their cause, strictness by mode, and forbidden UPDATEs."""

from typing import Any

import msgspec
import pytest

from tests.core.strategies import HASH, OUR_ANNOTATION, OUR_LABEL, ZONE, Json, service_of
from webhook.core.admission.decision import Finding
from webhook.core.admission.mutation import rewrite
from webhook.core.admission.validation import check, check_update
from webhook.core.findings import Code
from webhook.core.kubernetes.pod import Pod
from webhook.core.policy.model import FailureMode, Match, Modes, Service
from webhook.core.policy_fields import Mode, Quota

PLACEMENT = {
    "schedulerName": "podgate-scheduler",
    "nodeSelector": {"disk": "ssd"},
    "topology": [{"level": "Zone", "in": ["b", "g"]}],
    "tolerations": [{"key": "gpu", "operator": "Exists"}, {"key": "t", "value": "v", "effect": "NoSchedule"}],
}
PODGATES_METADATA = {"labels": {OUR_LABEL: "s"}, "annotations": {OUR_ANNOTATION: HASH}}


def pod(metadata: Json | None = None, **spec: Any) -> Pod:
    return msgspec.convert({"metadata": PODGATES_METADATA if metadata is None else metadata, "spec": spec}, Pod)


def zones(*terms: list[str] | None) -> Json:
    """Build an affinity of terms: each allows the given zones, or, for None, has an expression on another label."""
    built = [
        {"matchExpressions": [{"key": ZONE, "operator": "In", "values": allowed}]}
        if allowed is not None
        else {"matchExpressions": [{"key": "other", "operator": "Exists"}]}
        for allowed in terms
    ]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": built}}}


GOOD: Json = {
    "schedulerName": "podgate-scheduler",
    "nodeSelector": {"disk": "ssd", "theirs": "x"},
    "affinity": zones(["b"], ["g", "b"]),
    "tolerations": [{"operator": "Exists"}],
}


def get_only_finding(findings: tuple[Finding, ...]) -> Finding:
    assert len(findings) == 1, findings
    return findings[0]


def test_fulfilled_pod_has_no_findings() -> None:
    assert check(pod(**GOOD), service_of(PLACEMENT), hash_known=True) == ()


@pytest.mark.parametrize(
    ("change", "code", "field", "text"),
    [
        (
            {"schedulerName": "default-scheduler"},
            Code.PLACEMENT_UNFULFILLED,
            "spec.schedulerName",
            "'podgate-scheduler'",
        ),
        ({"schedulerName": None}, Code.PLACEMENT_UNFULFILLED, "spec.schedulerName", "is 'default-scheduler'"),
        ({"schedulerName": "theirs"}, Code.PLACEMENT_CONFLICT, "spec.schedulerName", "remove the field from the Pod"),
        ({"nodeSelector": None}, Code.PLACEMENT_UNFULFILLED, "spec.nodeSelector[disk]", "is missing, expected 'ssd'"),
        ({"nodeSelector": {"disk": "hdd"}}, Code.PLACEMENT_CONFLICT, "spec.nodeSelector[disk]", "is 'hdd'"),
        ({"affinity": None}, Code.PLACEMENT_UNFULFILLED, "nodeSelectorTerms", "missing, expected"),
        (
            {"affinity": zones(["b"], ["x"])},
            Code.PLACEMENT_UNFULFILLED,
            "nodeSelectorTerms[1]",
            "[1] allows other nodes",
        ),
        ({"affinity": zones(None, ["b"], None, None)}, Code.PLACEMENT_UNFULFILLED, "[0]", "[0] and 2 more allow other"),
        (
            {"tolerations": [{"key": "gpu", "operator": "Exists"}]},
            Code.PLACEMENT_UNFULFILLED,
            "spec.tolerations",
            "t=v:NoSchedule",
        ),
        (
            {"tolerations": [{"key": "t", "operator": "Exists"}]},
            Code.PLACEMENT_UNFULFILLED,
            "spec.tolerations",
            "gpu Exists:*",
        ),
    ],
)
def test_each_violated_field_is_a_finding_with_value_and_remedy(
    change: Json, code: Code, field: str, text: str
) -> None:
    found = get_only_finding(check(pod(**{**GOOD, **change}), service_of(PLACEMENT), hash_known=True))
    assert (found.code, found.mode) == (code, Mode.ENFORCE)
    assert found.field.endswith(field)
    assert text in found.message
    assert str(found).startswith(f"{code}: service s: ")


@pytest.mark.parametrize(("rule", "codes"), [("Keep", []), ("Override", [Code.PLACEMENT_UNFULFILLED] * 2)])
def test_conflicting_fields_are_findings_under_override_and_allowed_under_keep(rule: str, codes: list[Code]) -> None:
    service = service_of({**PLACEMENT, "onConflict": {"default": rule}})
    found = check(pod(**{**GOOD, "schedulerName": "theirs", "nodeSelector": {"disk": "hdd"}}), service, hash_known=True)
    assert [finding.code for finding in found] == codes


def test_many_terms_yield_one_finding_per_requirement() -> None:
    """A tenant chooses the number of terms: neither the response nor the work may grow with its square."""
    many = pod(**{**GOOD, "affinity": zones(*[None] * 1_000)})
    found = get_only_finding(check(many, service_of(PLACEMENT), hash_known=True))
    assert len(str(found)) < 300
    assert "999 more" in found.message


def test_pod_with_more_than_1000_terms_is_refused_and_not_rewritten() -> None:
    many = pod(**{**GOOD, "affinity": zones(*[["b"]] * 1_001)})
    found = get_only_finding(check(many, service_of(PLACEMENT), hash_known=True))
    assert found.code is Code.PLACEMENT_CONFLICT
    assert "1001 terms, at most 1000" in found.message
    assert rewrite(many, service_of(PLACEMENT), HASH) == ()


@pytest.mark.parametrize(
    ("metadata", "priority", "fields"),
    [
        ({"uid": "u", "managedFields": [{"fieldsV1": {"f:spec": {}}}]}, None, ["spec.priority"]),
        ({"uid": "u", "managedFields": [{"fieldsV1": {"f:spec": {}}}]}, 1000, []),
        ({"managedFields": [{"fieldsV1": {"f:spec": {}}}]}, None, []),  # no UID: the Pod is not being stored
        ({"uid": "u"}, None, []),  # no managedFields: a Pod from a file
    ],
)
def test_priority_class_without_a_priority_is_a_finding_on_a_pod_to_be_stored(
    metadata: Json, priority: int | None, fields: list[str]
) -> None:
    """No plugin computes the priority of a class written in the last round: the Pod would be stored without one."""
    raw = {"metadata": PODGATES_METADATA | metadata, "spec": {"priorityClassName": "high", "priority": priority}}
    late = msgspec.json.decode(msgspec.json.encode(raw), type=Pod)
    found = check(late, service_of({"priorityClassName": "high"}), hash_known=True)
    assert [finding.field for finding in found] == fields


CLOSED = FailureMode.CLOSED


@pytest.mark.parametrize(
    ("metadata", "missing"),
    [
        ({}, "label podgate.io/service and annotation podgate.io/policy-hash missing"),
        ({"labels": {OUR_LABEL: "s"}}, "(annotation podgate.io/policy-hash missing)"),
        ({"annotations": {OUR_ANNOTATION: HASH}}, "(label podgate.io/service missing)"),
    ],
)
def test_missing_rewrite_is_one_finding_that_names_the_missing_keys(metadata: Json, missing: str) -> None:
    found = get_only_finding(check(pod(metadata), service_of(PLACEMENT, failure_mode=CLOSED), hash_known=True))
    assert (found.code, found.mode) == (Code.MUTATION_MISSING, Mode.ENFORCE)
    assert missing in found.message


def test_fields_of_a_pod_with_unknown_policy_hash_are_checked_without_mutation_missing() -> None:
    found = check(pod({}), service_of(PLACEMENT, failure_mode=CLOSED), hash_known=False)
    assert {finding.code for finding in found} == {Code.PLACEMENT_UNFULFILLED}
    assert check(pod({}, **GOOD), service_of(PLACEMENT, failure_mode=CLOSED), hash_known=False) == ()


AUDIT = Modes(placement=Mode.AUDIT)


@pytest.mark.parametrize(
    ("service", "mode"),
    [
        (service_of({}, failure_mode=CLOSED), Mode.ENFORCE),
        (service_of({}), Mode.WARN),
        (service_of({}, failure_mode=CLOSED, modes=Modes(placement=Mode.WARN)), Mode.WARN),
        (service_of({}, failure_mode=CLOSED, modes=AUDIT), Mode.AUDIT),
        (service_of({}, modes=AUDIT), Mode.AUDIT),
        (service_of({}, failure_mode=CLOSED, modes=AUDIT, quota=Quota()), Mode.ENFORCE),
        (Service("s", Match(any_namespace=True), failure_mode=CLOSED), Mode.ENFORCE),
    ],
)
def test_missing_rewrite_has_the_mode_of_the_strictest_stanza_in_force(service: Service, mode: Mode) -> None:
    assert get_only_finding(check(pod({}), service, hash_known=True)).mode is mode
    if service.failure_mode is CLOSED:
        assert get_only_finding(check_update(pod(), pod({"annotations": {OUR_ANNOTATION: HASH}}), service)).mode is mode


def test_label_of_another_service_is_refused() -> None:
    forged = {"labels": {OUR_LABEL: "gold"}, "annotations": {OUR_ANNOTATION: HASH}}
    found = get_only_finding(check(pod(forged, **GOOD), service_of(PLACEMENT), hash_known=True))
    assert found.code is Code.IMMUTABLE
    assert "is 'gold', expected 's'" in found.message


def test_label_of_another_service_is_refused_where_the_rewrite_is_missing() -> None:
    forged = pod({"labels": {OUR_LABEL: "gold"}}, **GOOD)
    missing, label = check(forged, service_of(PLACEMENT), hash_known=True)
    assert (missing.code, missing.mode, label.code, label.mode) == (
        Code.MUTATION_MISSING,
        Mode.WARN,
        Code.IMMUTABLE,
        Mode.ENFORCE,
    )
    assert label.message.endswith("is 'gold', expected 's': leave the label out, Podgate writes it")


OFF = Modes(Mode.DISABLED, Mode.DISABLED, Mode.DISABLED, Mode.DISABLED)


def test_service_with_all_modes_disabled_has_no_findings() -> None:
    service = service_of(PLACEMENT, modes=OFF, failure_mode=CLOSED)
    assert check(pod({}), service, hash_known=True) == ()
    assert check_update(pod(), pod({}), service) == ()


def test_placement_findings_have_the_mode_of_placement_and_disabled_has_none() -> None:
    for mode in (Mode.WARN, Mode.AUDIT):
        found = check(pod(), service_of(PLACEMENT, modes=Modes(placement=mode)), hash_known=True)
        assert {finding.mode for finding in found} == {mode}
        assert len(found) == 5
    assert check(pod(), service_of(PLACEMENT, modes=Modes(placement=Mode.DISABLED)), hash_known=True) == ()


@pytest.mark.parametrize(
    ("changed", "fields"),
    [
        (PODGATES_METADATA, []),
        ({**PODGATES_METADATA, "labels": {OUR_LABEL: "gold"}}, ["metadata.labels[podgate.io/service]"]),
        ({**PODGATES_METADATA, "annotations": {OUR_ANNOTATION: "x"}}, ["metadata.annotations[podgate.io/policy-hash]"]),
        ({"labels": None}, ["metadata.labels[podgate.io/service]", "metadata.annotations[podgate.io/policy-hash]"]),
        ({**PODGATES_METADATA, "labels": {OUR_LABEL: "s", "app": "new"}}, []),
    ],
)
def test_update_of_podgates_label_or_annotation_is_refused(changed: Json, fields: list[str]) -> None:
    found = check_update(pod(), pod(changed), service_of(PLACEMENT))
    assert [finding.field for finding in found] == fields
    assert all(finding.code is Code.IMMUTABLE and "was '" in finding.message for finding in found)


GATED: Json = {**GOOD, "schedulingGates": [{"name": "example.com/gate"}]}
PLAIN = {key: value for key, value in GATED.items() if key not in {"affinity", "nodeSelector"}}


@pytest.mark.parametrize(
    ("old", "new", "fields"),
    [
        (GATED, GATED, []),
        (GATED, GOOD, []),
        (GATED, {**GATED, "affinity": zones(["b"])}, []),
        (GATED, {**GATED, "nodeSelector": {"disk": "ssd", "more": "x"}}, []),
        (GATED, {**GATED, "affinity": None}, ["nodeSelectorTerms"]),
        (GATED, {**GATED, "affinity": zones(["b"], None)}, ["nodeSelectorTerms[1]"]),
        (GATED, {**GATED, "nodeSelector": {}}, ["spec.nodeSelector[disk]"]),
        (GATED, {**GATED, "nodeSelector": {"disk": "hdd"}}, ["spec.nodeSelector[disk]"]),
        (GATED, {**GOOD, "affinity": zones(None)}, ["nodeSelectorTerms[0]"]),
        (GOOD, {**GOOD, "affinity": None}, []),
        # an UPDATE that tightens is admitted although the old Pod does not fulfil the policy
        (PLAIN, {**PLAIN, "affinity": zones(None)}, []),
        (PLAIN, {**PLAIN, "nodeSelector": {"disk": "hdd"}}, []),
        ({**GATED, "affinity": zones(None)}, {**GATED, "affinity": zones(None, ["x"])}, []),
    ],
)
def test_a_gated_pod_may_be_tightened_but_not_loosened(old: Json, new: Json, fields: list[str]) -> None:
    found = check_update(pod(**old), pod(**new), service_of(PLACEMENT))
    assert [
        finding.field.rsplit(".", 1)[-1] if "Terms" in finding.field else finding.field for finding in found
    ] == fields
