"""Diagnosis of one Pod: its admission by the records, and its state by the cluster."""

from collections.abc import Sequence
from dataclasses import replace as replace_dataclass

import msgspec
from msgspec.structs import replace

from webhook.core.admission.decision import Verdict
from webhook.core.admission.mutation import has_queue_gate
from webhook.core.diagnosis.admission import (
    AdmissionRecords,
    find_admission_records,
    infer_admission,
    infer_slot,
    list_rewritten_fields,
    report_admission,
    report_slot,
)
from webhook.core.diagnosis.container_states import report_containers
from webhook.core.diagnosis.facts import PodFacts, Surroundings
from webhook.core.diagnosis.node_fit import report_nodes
from webhook.core.diagnosis.objects import ReportedEvent, ReportedPod
from webhook.core.diagnosis.pending_causes import judge_pod_state, list_gates, report_scheduling
from webhook.core.diagnosis.recomputation import NotRecomputableError, list_rule_notes, recompute
from webhook.core.diagnosis.removal_causes import explain_removal
from webhook.core.diagnosis.report import (
    AdmissionReport,
    Fate,
    NodesReport,
    Report,
    ReportSubject,
    StartReport,
)
from webhook.core.diagnosis.waiting import describe_ending, describe_kept_expiry, find_ending_event, infer_expiry
from webhook.core.findings import Code
from webhook.core.policy.model import Service
from webhook.core.quota import STANDING
from webhook.core.reporting.limit_record import RecordedLimit
from webhook.core.rule_notes import Note
from webhook.core.rule_notes.explain import trace

_EVENTS_MAX = 5
_FINE = frozenset({Fate.RUNNING, Fate.SUCCEEDED})
_EXEMPT_BY = {
    "namespace": "namespace {namespace} is exempt (exemptions.namespaces, or a system namespace)",
    "username": "its user {user} is exempt (exemptions.usernames)",
    "runtimeClass": "its runtimeClassName is exempt (exemptions.runtimeClasses)",
    "daemonSet": "Pods of DaemonSets are exempt (exemptions.daemonSets)",
    "mirror": "it is a mirror Pod of a kubelet",
}


def diagnose(facts: PodFacts, around: Surroundings, *, is_brief: bool = False) -> Report | None:
    """Return the report on one Pod; None if neither the cluster nor a record nor an Event knows it.

    `is_brief`: without nodes and rules, which take most of the time, to choose among many Pods.
    """
    records = find_admission_records(facts)
    around = replace_dataclass(around, nodes=None) if is_brief else around
    if facts.pod is None:
        report = (
            _diagnose_by_event(facts, around) if records.last is None else _diagnose_by_records(facts, records, around)
        )
    else:
        report = _diagnose_pod(facts, facts.pod, records, around)
    return report if report is None or is_brief else _add_variants(_add_rules(report, records, around), around)


def _add_variants(report: Report, around: Surroundings) -> Report:
    """Add the present variants of the service to the report on a Pod that has a slot."""
    if report.slot is None or report.admission is None:
        return report
    return replace(report, shares=around.variants.get(report.admission.service, ()))


def _diagnose_by_event(facts: PodFacts, around: Surroundings) -> Report | None:
    """Return the report on a Pod without records that was deleted while it waited."""
    event = find_ending_event(facts, facts.uid)
    if event is None:
        gone = explain_removal(facts.events, facts.uid)
        subject = ReportSubject("Pod", facts.namespace, facts.name, facts.uid)
        return gone and Report(Fate.FAILED, gone.text, subject, gone.remedy, unread=dict(around.unread))
    token, summary = describe_ending(event)
    subject = ReportSubject("Pod", facts.namespace, event.involved_object.name, event.involved_object.uid)
    return Report(token, summary, subject, unread=dict(around.unread))


def _diagnose_by_records(facts: PodFacts, records: AdmissionRecords, around: Surroundings) -> Report | None:
    """Return the report on a Pod that was refused, or is not in the cluster."""
    admission, record = report_admission(records, around), records.last
    if admission is None or record is None:
        return None
    owner = f"{record.owner.kind}/{record.owner.name}" if record.owner is not None else ""
    subject = ReportSubject("Pod", record.namespace, record.name, record.uid, owner)
    token, summary = _judge_decision(admission, record.namespace, record.limits)
    if record.dry_run:
        summary = f"dry run, nothing was created: {summary}"
        report = Report(token, summary, subject, admission=admission, unread=dict(around.unread))
        return _add_figures(report, records)
    policy = around.find_policy(record.policy)
    unread = "" if record.is_denied else around.explain_unread(f"pod {facts.name}", "pods", "cluster")
    if token is Fate.WAITING_FOR_QUOTA and (event := find_ending_event(facts, record.uid)) is not None:
        token, summary = describe_ending(event)
    elif (
        token is Fate.WAITING_FOR_QUOTA and not unread and (ended := infer_expiry(record, facts, policy, around.now_us))
    ):
        token, summary = Fate.EXPIRED, ended
    gone = explain_removal(facts.events, record.uid) if token is not Fate.EXPIRED and not record.is_denied else None
    if gone is not None:
        report = Report(Fate.FAILED, gone.text, subject, gone.remedy, admission=admission, unread=dict(around.unread))
        return _add_figures(report, records)
    if not record.is_denied and token not in {Fate.EXPIRED, Fate.DROPPED}:
        summary = f"{summary}; {f'whether it exists cannot be told: {unread}' if unread else 'it does not exist'}"
    report = Report(token, summary, subject, admission=admission, unread=dict(around.unread))
    return _add_figures(report, records)


def _judge_decision(
    admission: AdmissionReport, namespace: str, limits: Sequence[RecordedLimit] = ()
) -> tuple[Fate, str]:
    match admission.decision:
        case Verdict.DENY:
            token = choose_denial_token(admission.codes, limits)
            return token, admission.message.removeprefix(f"{token}: ")
        case Verdict.EXEMPT:
            return Fate.EXEMPT, describe_exemption(admission, namespace)
        case Verdict.QUEUE:
            return Fate.WAITING_FOR_QUOTA, f"since {admission.at}, of service {admission.service}"
        case Verdict.UNMATCHED:
            return Fate.UNMATCHED, "no service of the policy matches it"
    return Fate.ADMITTED, f"{admission.at} by service {admission.service}"


def choose_denial_token(codes: Sequence[str], limits: Sequence[RecordedLimit] = ()) -> Fate:
    """Return the token of a denial by its first code, and by the limits that it exceeded."""
    code = codes[0] if codes else ""
    if code == Code.BREAKER_OPEN:
        return Fate.BREAKER_OPEN
    over = {limit.window for limit in limits if limit.over}
    return Fate.WAITING_FOR_LIVE_PODS if code == Code.QUOTA_EXCEEDED and over == {STANDING} else Fate.DENIED


def describe_exemption(admission: AdmissionReport, namespace: str) -> str:
    text = _EXEMPT_BY.get(admission.exemption, admission.exemption)
    return text.format(namespace=namespace, user=admission.user)


def _diagnose_pod(facts: PodFacts, pod: ReportedPod, records: AdmissionRecords, around: Surroundings) -> Report:
    admission = report_admission(records, around) or infer_admission(pod, facts.namespace, around)
    service = _find_service(admission, around)
    unknown = "" if admission is None or around.find_policy(admission.policy) is not None else admission.policy
    is_placed = pod.spec.node_name or around.nodes is None
    nodes = None if is_placed else _compare_nodes(pod, records, service, around, unknown)
    state = judge_pod_state(pod, nodes, around.now_us, facts.waiting, facts.scheduled, facts.events, around.hosts)
    token, summary, remedy = state
    if admission is not None and token in _FINE and admission.decision in {Verdict.EXEMPT, Verdict.UNMATCHED}:
        token, why = _judge_decision(admission, facts.namespace)
        summary = f"{why}; {state.token} {summary}"
    if token is Fate.WAITING_FOR_QUOTA and (ended := describe_kept_expiry(facts, pod, admission, around)):
        token, summary = Fate.EXPIRED, ended
    owners = [reference for reference in pod.metadata.owner_references or () if reference.controller]
    owner = f"{owners[0].kind}/{owners[0].name}" if owners else ""
    warnings = sorted((event for event in facts.events if _tells_more(event)), key=lambda event: event.at, reverse=True)
    report = Report(
        token,
        summary,
        ReportSubject("Pod", facts.namespace, pod.metadata.name, pod.metadata.uid, owner, facts.owners),
        remedy,
        admission=admission,
        gates=list_gates(pod),
        queue=facts.waiting,
        scheduling=report_scheduling(pod),
        extender=facts.scheduled,
        nodes=nodes,
        start=StartReport(
            pod.status.phase,
            report_containers(pod),
            tuple(f"{event.at} {event.reason}: {event.message}" for event in warnings[:_EVENTS_MAX]),
        ),
        unread=dict(around.unread),
    )
    if admission is not None:
        report = replace(report, slot=infer_slot(pod, admission.service))
    return _add_figures(report, records)


def _tells_more(event: ReportedEvent) -> bool:
    """Whether an Event is a warning that the Pod's conditions do not repeat."""
    return event.type == "Warning" and event.reason != "FailedScheduling"


def _find_service(admission: AdmissionReport | None, around: Surroundings) -> Service | None:
    policy = around.find_policy(admission.policy) if admission is not None else None
    return policy.services.get(admission.service) if policy is not None and admission is not None else None


def _compare_nodes(
    pod: ReportedPod, records: AdmissionRecords, service: Service | None, around: Surroundings, unknown_policy: str
) -> NodesReport:
    before = records.mutate.pod if records.mutate is not None else None
    original = None if before is None else before.spec
    return report_nodes(pod.spec, original, service, around.nodes or (), unknown_policy)


def _add_figures(report: Report, records: AdmissionRecords) -> Report:
    validate, slot = records.validate, report_slot(records) or report.slot
    if validate is None:
        return replace(report, slot=slot)
    return replace(report, slot=slot, quota=tuple(validate.limits), breaker=validate.breaker)


def _add_rules(report: Report, records: AdmissionRecords, around: Surroundings) -> Report:
    """Add what the rules of the policy found and wrote."""
    last = records.last
    if last is None:
        return report
    notes, stored = _list_notes(records, around), msgspec.json.decode(last.recorded)
    return replace(report, rewritten=list_rewritten_fields(notes, stored), rules=_trace_rules(records, notes, around))


def _list_notes(records: AdmissionRecords, around: Surroundings) -> tuple[Note, ...]:
    """Return what each rule did, () if the policy or the mutating record is not known."""
    mutate = records.mutate
    policy = around.find_policy(mutate.policy) if mutate is not None else None
    return () if mutate is None or policy is None else list_rule_notes(mutate, policy)


def _trace_rules(
    records: AdmissionRecords, notes: tuple[Note, ...], around: Surroundings
) -> tuple[dict[str, str], ...]:
    """Return the finding of each stage and rule, as `review --explain` does; () for a Pod too large for a record."""
    known = [
        (record, policy)
        for record in records
        if record is not None and (policy := around.find_policy(record.policy)) is not None
    ]
    final = records.validate.pod if records.validate is not None else None
    is_gated = final is not None and has_queue_gate(final)
    try:
        return tuple(trace([recompute(record, policy, is_gated=is_gated) for record, policy in known], notes))
    except NotRecomputableError:
        return ()
