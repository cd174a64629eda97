"""Admission of a Pod: the records of both halves, its service and why that one, and the fields that were written."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from webhook.core.admission.decision import Half, Verdict
from webhook.core.admission.exemptions import is_exempt_namespace, is_exempt_runtime_class
from webhook.core.admission.mutation import HASH_ANNOTATION
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.diagnosis.facts import PodFacts, Surroundings
from webhook.core.diagnosis.objects import ReportedPod
from webhook.core.diagnosis.report import AdmissionReport, RewrittenField, SlotReport
from webhook.core.kubernetes.controllers import find_claimed_owner_kind
from webhook.core.kubernetes.pod import Pod
from webhook.core.patch import parse_pointer
from webhook.core.placement import SERVICE_LABEL
from webhook.core.placement.node_terms import format_selector
from webhook.core.policy.matching import NAME_LABEL
from webhook.core.policy_fields import Mode
from webhook.core.reporting.decision_record import DecisionRecord
from webhook.core.rule_notes import Act, Note
from webhook.core.shares import read_slot


class AdmissionRecords(NamedTuple):
    """The records of one Pod's creation. The API server leaves out calls, and a replica may have lost its records."""

    mutate: DecisionRecord | None
    validate: DecisionRecord | None

    @property
    def last(self) -> DecisionRecord | None:
        return self.validate or self.mutate


def find_admission_records(facts: PodFacts) -> AdmissionRecords:
    """Return the newest creation of the Pod that the facts are about; of one that was never created, a dry run."""
    found = _find_records(facts, is_dry=False)
    return found if found.last is not None or facts.pod is not None else _find_records(facts, is_dry=True)


def _find_records(facts: PodFacts, *, is_dry: bool) -> AdmissionRecords:
    created = [
        record
        for record in facts.records
        if record.operation == "CREATE" and record.dry_run is is_dry and not record.workload
    ]
    validate = next((record for record in created if record.half is Half.VALIDATE and _is_about(record, facts)), None)
    if validate is not None:
        return AdmissionRecords(_find_mutating_record(validate, created), validate)
    return AdmissionRecords(next((record for record in created if _is_named(record, facts)), None), None)


def _is_about(record: DecisionRecord, facts: PodFacts) -> bool:
    uid = facts.uid or (facts.pod.metadata.uid if facts.pod is not None else "")
    if uid:
        return record.uid == uid
    return record.namespace == facts.namespace and record.name == facts.name


def _is_named(record: DecisionRecord, facts: PodFacts) -> bool:
    """Whether a mutating record, which has no uid, may be of this Pod: of a generated name only if it has an owner."""
    if record.half is not Half.MUTATE or record.namespace != facts.namespace or facts.uid:
        return False
    if facts.pod is None:
        return record.name == facts.name
    owners = {reference.uid for reference in facts.pod.metadata.owner_references or ()}
    is_same_owner = record.owner is None if not owners else record.owner is not None and record.owner.uid in owners
    return is_same_owner and record.name in {facts.name, facts.pod.metadata.generate_name}


def _find_mutating_record(validate: DecisionRecord, created: Sequence[DecisionRecord]) -> DecisionRecord | None:
    """Return the mutating record of a validating one: of the same trace, or else the newest before it."""
    candidates = [
        record
        for record in created
        if record.half is Half.MUTATE
        and record.namespace == validate.namespace
        and record.owner == validate.owner
        and record.name
        and validate.name.startswith(record.name)
        and record.at <= validate.at
    ]
    traced = [record for record in candidates if record.trace_id and record.trace_id == validate.trace_id]
    return next(iter(traced or candidates), None)


def report_admission(records: AdmissionRecords, around: Surroundings) -> AdmissionReport | None:
    """Return the admission by its records; None without any."""
    record = records.last
    if record is None:
        return None
    policy = around.find_policy(record.policy)
    return AdmissionReport(
        source="record",
        decision=record.decision,
        at=format_moment(record.at),
        service=record.service,
        why_service=explain_service(policy, record.service),
        policy=record.policy,
        user=record.user,
        replica=record.replica,
        codes=tuple(record.codes),
        status_code=record.status.code if record.is_denied else 0,
        message=record.status.message,
        exemption=record.exemption,
        degraded=records.mutate.degraded if records.mutate is not None else record.degraded,
        uncounted=record.uncounted,
        findings=tuple(
            f"{finding.mode}: {finding.code}: {finding.message}" for finding in _list_unenforced_findings(record)
        ),
        overrides=tuple(str(entry) for entry in record.override_entries),
        trace_id=record.trace_id,
        overload=records.mutate.overload if records.mutate is not None else record.overload,
        dry_run=record.dry_run,
    )


def report_slot(records: AdmissionRecords) -> SlotReport | None:
    """Return the slot by the records: the mutating one knows why; None without any."""
    found = next((record.slot for record in records if record is not None and record.slot is not None), None)
    return None if found is None else SlotReport("record", found.number, found.variant, found.intended, found.reason)


def infer_slot(pod: ReportedPod, service: str) -> SlotReport | None:
    """Return the slot that a Pod of a service carries; None without."""
    carried = read_slot(Pod(pod.metadata, pod.spec))
    if carried is None or not service:
        return None
    return SlotReport("pod", carried.slot, carried.variant, carried.intended if carried.fell_back else "")


def _list_unenforced_findings(record: DecisionRecord) -> Iterator[Any]:
    return (finding for finding in record.findings if finding.mode is not Mode.ENFORCE)


def infer_admission(pod: ReportedPod, namespace: str, around: Surroundings) -> AdmissionReport | None:
    """Return what the Pod's label and annotation, or the policy in force, say of its admission; None if nothing."""
    service, carried = (
        (pod.metadata.labels or {}).get(SERVICE_LABEL),
        (pod.metadata.annotations or {}).get(HASH_ANNOTATION, ""),
    )
    if service and carried:
        return AdmissionReport(
            "pod",
            Verdict.ADMIT,
            service=service,
            policy=carried,
            why_service=explain_service(around.find_policy(carried), service),
        )
    policy = around.in_force
    if policy is None:
        return None
    exemption = _find_exemption(pod, namespace, policy)
    if exemption:
        return AdmissionReport("policy", Verdict.EXEMPT, policy=policy.hash, exemption=exemption)
    labels = {NAME_LABEL: namespace, **around.namespace_labels}
    kind = find_claimed_owner_kind(pod.metadata.owner_references, pod.metadata.labels)
    owner = policy.matcher.find_owner(namespace, labels, pod.metadata.labels or {}, kind)
    if owner is None and not (_needs_labels(policy) and around.explain_unread(f"namespace {namespace}")):
        return AdmissionReport("policy", Verdict.UNMATCHED, policy=policy.hash)
    return None


def _needs_labels(policy: CompiledPolicy) -> bool:
    """Whether services match by labels of namespaces."""
    return any(service.match.namespace_selector is not None for service in policy.services.values())


def _find_exemption(pod: ReportedPod, namespace: str, policy: CompiledPolicy) -> str:
    """Return why the policy exempts a Pod, as far as the Pod itself shows: not who created it."""
    if is_exempt_namespace(namespace, policy.policy):
        return "namespace"
    if is_exempt_runtime_class(Pod(pod.metadata, pod.spec), policy.policy):
        return "runtimeClass"
    owners = pod.metadata.owner_references or ()
    if policy.policy.exemptions.daemon_sets and any(owner.kind == "DaemonSet" and owner.controller for owner in owners):
        return "daemonSet"
    return ""


def explain_service(policy: CompiledPolicy | None, service: str) -> str:
    """Return where the policy lists a service, and what it matches."""
    if policy is None or service not in policy.services:
        return ""
    match = policy.services[service].match
    place = [listed.name for listed in policy.policy.services].index(service)
    parts = ["any namespace"] if match.any_namespace else []
    parts += [f"namespaces {', '.join(match.namespaces)}"] if match.namespaces else []
    if match.namespace_selector is not None:
        parts.append(f"namespaceSelector {format_selector(match.namespace_selector).removeprefix('for Pods of ')}")
    if match.pod_selector is not None:
        parts.append(f"podSelector {format_selector(match.pod_selector).removeprefix('for Pods of ')}")
    parts += [f"ownerKinds {', '.join(match.owner_kinds)}"] if match.owner_kinds else []
    return f"services[{place}]: {'; '.join(parts)}"


def list_rewritten_fields(notes: Sequence[Note], stored: Any) -> tuple[RewrittenField, ...]:
    """Return each field that a rule wrote, with its value in the `stored` Pod; without those of the service itself."""
    return tuple(
        RewrittenField(
            mark.place,
            note.rule,
            "" if mark.is_removal else _format_value(stored, mark.pointer),
            mark.words,
            mark.is_removal,
        )
        for note in notes
        if note.act in {Act.WROTE, Act.LEFT} and note.rule != "service"
        for mark in note.marks
    )


def _format_value(document: Any, pointer: str) -> str:
    """Return a value as compact JSON, a text without quotes; "" if it is not there."""
    for token in parse_pointer(pointer):
        if isinstance(document, dict):
            document = document.get(token)
        elif isinstance(document, list) and token.isdecimal() and int(token) < len(document):
            document = document[int(token)]
        else:
            return ""
    if document is None:
        return ""
    return document if isinstance(document, str) else msgspec.json.encode(document).decode()


def format_moment(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03d}Z"
