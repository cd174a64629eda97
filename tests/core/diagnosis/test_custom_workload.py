"""Objects of custom kinds: refusals that their controllers report, their templates, and why they have no Pods."""

from typing import Any

import msgspec
import pytest

from tests.core.admission.workloads import template
from tests.core.reviewing import policy_of
from tests.core.strategies import Json
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.diagnosis import PodFacts, Report, Surroundings, WorkloadFacts, diagnose_workload
from webhook.core.diagnosis.facts import CustomFacts
from webhook.core.diagnosis.objects import CustomOwner, ReportedEvent, ReportedOwner, ReportedPod
from webhook.core.kubernetes.api_groups import CustomKind
from webhook.core.kubernetes.pod import PodMetadata

NOW_US = 1_800_000_060_000_000  # 2027-01-15T08:01:00Z
EARLIER, AT, LATER = (f"2027-01-15T08:00:{seconds}Z" for seconds in ("10", "20", "30"))
TRAIN = "workloads: [{apiGroup: example.com, kind: Train, templates: [spec.leader, spec.workers.*.template]}]"
SERVICE = """
- name: web
  match: {namespaces: [shop], podSelector: {matchLabels: {app: web}}}
  placement: {schedulerName: podgate-scheduler}
"""
KNOWN = CompiledPolicy(policy_of(SERVICE, TRAIN))
THEIRS = template(schedulerName="theirs")
CONFLICT = "PlacementConflict: service web: spec.schedulerName is 'theirs', the policy sets 'podgate-scheduler'"
DENIED = (
    'admission webhook "validate-open.podgate.io" denied the request: QuotaExceeded: service web: pods in 1m: hard 1'
)


def owner(uid: str = "root", kind: str = "Train") -> CustomOwner:
    return CustomOwner(metadata=PodMetadata(name="mnist", uid=uid), kind=kind)


def event(message: str, at: str = AT, uid: str = "root", reason: str = "FailedCreatePod") -> ReportedEvent:
    about = {"kind": "Train", "name": "mnist", "uid": uid}
    document = {"involvedObject": about, "reason": reason, "message": message, "lastTimestamp": at, "type": "Warning"}
    return msgspec.convert(document, ReportedEvent)


def pod(at: str = EARLIER, name: str = "mnist-0") -> PodFacts:
    references = [{"kind": "Train", "name": "mnist", "uid": "root", "controller": True}]
    document = {
        "metadata": {
            "name": name,
            "uid": name,
            "creationTimestamp": at,
            "ownerReferences": references,
            "labels": {"app": "web"},
        },
        "spec": {"nodeName": "n1", "containers": [{"name": "c"}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }
    return PodFacts("shop", name, name, msgspec.convert(document, ReportedPod))


def report(
    spec: Json | None = None,
    *events: ReportedEvent,
    around: Surroundings | None = None,
    owners: tuple[CustomOwner, ...] = (),
    **facts: Any,
) -> Report:
    document = {"metadata": {"name": "mnist", "uid": "root"}, "spec": spec or {}}
    custom = CustomFacts(CustomKind("example.com", "v1", "trains", "Train"), document, (owner(), *owners))
    workload = WorkloadFacts("Train", "shop", "mnist", events=events, custom=custom, **facts)
    found = diagnose_workload(workload, around or Surroundings(NOW_US, in_force=KNOWN))
    assert found is not None
    return found


def test_a_refusal_that_its_controller_reports_is_told_as_of_a_deployment() -> None:
    found = report({}, event(f"Error creating: {DENIED}"))
    assert (found.token, found.is_denied, found.pods) == ("Denied", True, {"Denied": 1})
    assert found.summary == "1 of 1 Pods: QuotaExceeded: service web: pods in 1m: hard 1"
    assert found.admission is not None
    assert found.admission.codes == ("QuotaExceeded",)


def test_a_refusal_of_an_object_that_it_has_made_is_its_own() -> None:
    found = report({}, event(DENIED, uid="made"), owners=(owner("made", "Cluster"),))
    assert found.token == "Denied"
    assert report({}, event(DENIED, uid="another")).token == "Unknown"


def test_a_refusal_by_others_is_theirs() -> None:
    found = report({}, event('pods "mnist-0" is forbidden: exceeded quota: compute, requested: pods=1'))
    assert found.summary.startswith("1 of 1 Pods: not by Podgate: ")
    assert found.remedy == "raise ResourceQuota compute in namespace shop, or end Pods that it counts"


@pytest.mark.parametrize(("created", "token"), [(EARLIER, "Denied"), (LATER, "Running")])
def test_a_refusal_is_over_once_a_pod_is_created(created: str, token: str) -> None:
    found = report({}, event(DENIED), pods=(pod(created),))
    assert found.token == token
    assert found.pods == ({"Denied": 1, "Running": 1} if token == "Denied" else {"Running": 1})


def test_other_warnings_of_its_controller_are_no_refusals() -> None:
    assert report({}, event("reconciler failed", reason="Failed")).token == "Unknown"


def test_a_controller_between_is_explained_as_ever() -> None:
    spec = {"parallelism": 2, "completions": 2}
    job = msgspec.convert({"metadata": {"name": "mnist-0", "uid": "j1"}, "kind": "Job", "spec": spec}, ReportedOwner)
    refused = event(f"Error creating: {DENIED}", uid="j1", reason="FailedCreate")
    custom = CustomFacts(CustomKind("example.com", "v1", "trains", "Train"), {}, (owner(),))
    workload = WorkloadFacts("Train", "shop", "mnist", (job,), (refused,), custom=custom)
    found = diagnose_workload(workload, Surroundings(NOW_US, in_force=KNOWN))
    assert found is not None
    assert (found.token, found.pods) == ("Denied", {"Denied": 2})


def test_without_pods_it_is_judged_by_its_templates() -> None:
    found = report({"leader": template(), "workers": [{"template": THEIRS}]})
    assert (found.token, found.is_denied) == ("Denied", True)
    assert found.summary.startswith(f"it has no Pods yet; those of spec.workers.0.template will be denied: {CONFLICT}")
    assert found.admission is not None
    assert (found.admission.source, found.admission.service) == ("policy", "web")
    assert [(shown.place, shown.decision, shown.service, shown.codes) for shown in found.templates] == [
        ("spec.leader", "Admit", "web", ()),
        ("spec.workers.0.template", "Deny", "web", ("PlacementConflict",)),
    ]


def test_templates_are_shown_beside_its_pods() -> None:
    found = report({"leader": THEIRS}, pods=(pod(),))
    assert (found.token, [shown.decision for shown in found.templates]) == ("Running", ["Deny"])


def test_a_template_of_no_service_is_unmatched() -> None:
    found = report({"leader": template({"app": "other"})})
    assert [shown.decision for shown in found.templates] == ["Unmatched"]
    assert found.summary == "it has no Pods, and nothing says why: the policy refuses none of its templates"


@pytest.mark.parametrize(
    ("spec", "field"), [({"suspend": True}, "suspend"), ({"runPolicy": {"suspend": True}}, "runPolicy.suspend")]
)
def test_a_suspended_object_is_idle(spec: Json, field: str) -> None:
    found = report({**spec, "leader": THEIRS})
    assert (found.token, found.summary) == ("Idle", f"suspended (spec.{field}): no Pods run")


def test_a_kind_that_is_not_known_has_a_remedy() -> None:
    around = Surroundings(NOW_US, in_force=CompiledPolicy(policy_of(SERVICE)))
    found = report({"leader": THEIRS}, around=around)
    assert found.summary == "it has no Pods, and nothing says why; Podgate does not know this kind"
    assert found.remedy == "say where a Train has Pod templates: workloads of the policy"
    assert found.templates == ()


def test_what_could_not_be_read_is_no_absence() -> None:
    around = Surroundings(NOW_US, in_force=KNOWN, unread={"pods": "you may not list pods in shop"})
    found = report({"leader": THEIRS}, around=around)
    assert found.summary.startswith("its Pods cannot be read, so why Pods are missing cannot be told: you may not list")
