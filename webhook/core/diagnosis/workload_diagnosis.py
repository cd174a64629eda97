"""Diagnosis of a workload: its existing Pods, its refused Pods, and the most severe state of both."""

import re
from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from webhook.core.admission.decision import Verdict
from webhook.core.admission.denials import format_utc
from webhook.core.diagnosis.custom_workload import explain_custom_absence, judge_templates
from webhook.core.diagnosis.denial_causes import explain_other_denial
from webhook.core.diagnosis.facts import PodFacts, Surroundings, WorkloadFacts
from webhook.core.diagnosis.objects import ReportedOwner, ReportedPod
from webhook.core.diagnosis.pod_diagnosis import choose_denial_token, diagnose
from webhook.core.diagnosis.refusals import (
    CreateFailure,
    find_custom_refusal,
    find_newest_record,
    find_refusal,
    is_over,
)
from webhook.core.diagnosis.report import AdmissionReport, Fate, Report, ReportSubject
from webhook.core.diagnosis.workload_causes import explain_absence, explain_unreadable, find_hold
from webhook.core.pods.ownership import parse_moment_us

_COULD_PASS = re.compile(r"could pass from ([0-9TZ:.-]+Z)(?!, if)")
_RETRIES_SOON_US = 15_000_000
"""A controller that has not tried again within this time after there was room is late."""
_AGED_US = 60_000_000
"""A refusal of this age is shown with its time."""


def diagnose_workload(facts: WorkloadFacts, around: Surroundings) -> Report | None:
    """Return the report on a workload; None if neither the cluster nor a record knows it."""
    report = _diagnose(facts, around)
    if report is None or facts.custom is None:
        return report
    return replace(report, templates=judge_templates(facts.custom, facts.namespace, around))


def _diagnose(facts: WorkloadFacts, around: Surroundings) -> Report | None:
    pods = [
        (report, pod_facts)
        for pod_facts in facts.pods
        if (report := diagnose(pod_facts, around, is_brief=True)) is not None
    ]
    reports = [report for report, _ in pods]
    refused, missing = _report_refused(facts, around)
    if facts.maker is None and facts.custom is None and not facts.owners and not reports and refused is None:
        return None
    wanted = sum(owner.wanted for owner in facts.owners)
    counts = Counter(str(report.token) for report in reports)
    if refused is not None and missing:
        counts[str(refused.token)] += missing
    worst: Report | None = min((*reports, *(() if refused is None else (refused,))), key=_get_severity, default=None)
    whole = next((diagnose(pod_facts, around) for report, pod_facts in pods if report is worst), None)
    worst = whole or worst
    subject = ReportSubject(facts.kind, facts.namespace, facts.name)
    held = find_hold(facts, around)
    if worst is None and held is None and facts.custom is not None and not facts.owners:
        return explain_custom_absence(facts, facts.custom, around, subject)
    if worst is None:
        token, text, remedy = held or explain_unreadable(facts, around) or explain_absence(facts)
        return Report(token, text, subject, remedy, unread=dict(around.unread))
    if held is not None and worst.token.severity >= held.token.severity:
        of_pods = ", ".join(f"{count} {name}" for name, count in counts.items())
        worst = replace(worst, token=held.token, summary=f"{held.summary}; Pods: {of_pods}", remedy=held.remedy)
        return replace(worst, subject=subject, pods=dict(counts))
    if refused is None and (why := _explain_missing(facts, reports, around)):
        worst = replace(worst, summary=f"{worst.summary}; {why}")
    total = max(wanted, sum(counts.values()))
    of_how_many = f"{counts[str(worst.token)] or 1} of {total} Pods: " if total else ""
    which = "" if worst is refused or total <= 1 else f"{worst.subject.name} "
    found: Report = replace(
        worst,
        summary=f"{of_how_many}{which}{worst.summary}",
        subject=replace(subject, uid=facts.owners[0].metadata.uid if len(facts.owners) == 1 else ""),
        pods={token.value: counts[token.value] for token in Fate if counts[token.value]},
    )
    return found


def _explain_missing(facts: WorkloadFacts, reports: Sequence[Report], around: Surroundings) -> str:
    """Return why a controller has fewer Pods than it wants although none was refused, "" if it has them all."""
    owner = next((controller for controller in facts.owners if controller.wanted > controller.present), None)
    if owner is None:
        return ""
    unready = [
        report.subject.name for report in reports if report.token not in {Fate.RUNNING, Fate.EXEMPT, Fate.UNMATCHED}
    ]
    if owner.is_in_order and unready:
        name = owner.metadata.name
        return f"{name}-{owner.present} is created once {min(unready)} is Ready (podManagementPolicy OrderedReady)"
    if owner.kind == "Job":
        return "the Job's controller creates the next Pod after its back-off"
    unread = around.explain_unread("events")
    why = f"why cannot be told: {unread}" if unread else "nothing newer says why"
    return f"{owner.wanted - owner.present} more are not created yet, and {why}"


def _get_severity(report: Report) -> int:
    return report.token.severity


def _report_refused(facts: WorkloadFacts, around: Surroundings) -> tuple[Report | None, int]:
    """Return the report on the newest refused Pod, and how many Pods are missing; without the cluster 0."""
    if not facts.owners:
        newest = None if facts.custom is not None else _report_newest(facts, around)
        return (newest, 0) if newest is not None else _report_custom_refusal(facts, around)
    for owner in facts.owners:
        missing = owner.wanted - owner.present
        report = _report_owner_refusal(facts, owner, around) if missing > 0 else None
        if report is not None:
            return _add_age(report, owner, around.now_us), missing
    return _report_custom_refusal(facts, around)


def _report_custom_refusal(facts: WorkloadFacts, around: Surroundings) -> tuple[Report | None, int]:
    """Return why the controller of a custom kind could not create its last Pod; how many it misses is not known."""
    for owner in () if facts.custom is None else facts.custom.owners:
        of_owner, found = _select_owner_facts(facts, owner), find_custom_refusal(owner, facts.events)
        if found is None or is_over(found, owner, of_owner, around):
            report = _report_by_records(of_owner, around)
        else:
            report = _report_by_refusal(facts, owner, found, around)
        if report is not None:
            return _add_age(report, owner, around.now_us), 1
    return None, 0


def _report_owner_refusal(facts: WorkloadFacts, owner: ReportedOwner, around: Surroundings) -> Report | None:
    """Return why a controller could not create its last Pod; None if it could, or if nothing tells."""
    of_owner, found = _select_owner_facts(facts, owner), find_refusal(owner, facts.events)
    if found is None or is_over(found, owner, of_owner, around):
        return _report_by_records(of_owner, around)
    return _report_by_refusal(facts, owner, found, around)


def _select_owner_facts(facts: WorkloadFacts, owner: ReportedOwner) -> WorkloadFacts:
    """Return facts with the Pods of one controller, and their records, only."""
    uid = owner.metadata.uid
    records = tuple(record for record in facts.records if record.owner is not None and record.owner.uid == uid)
    pods = tuple(
        pod_facts for pod_facts in facts.pods if pod_facts.pod is not None and uid in _list_owner_uids(pod_facts.pod)
    )
    return WorkloadFacts(facts.kind, facts.namespace, facts.name, pods=pods, records=records)


def _list_owner_uids(pod: ReportedPod) -> set[str]:
    return {reference.uid for reference in pod.metadata.owner_references or () if reference.controller}


def _report_by_records(facts: WorkloadFacts, around: Surroundings) -> Report | None:
    """Return the report on the newest Pod of the records, if that was refused."""
    report = _report_newest(facts, around)
    return report if report is not None and report.is_denied else None


def _report_newest(facts: WorkloadFacts, around: Surroundings) -> Report | None:
    newest = find_newest_record(facts)
    if newest is None:
        return None
    return diagnose(PodFacts(facts.namespace, newest.name, newest.uid, records=facts.records), around)


def _report_by_refusal(
    facts: WorkloadFacts, owner: ReportedOwner, found: CreateFailure, around: Surroundings
) -> Report:
    """Return the report on a refusal: with the figures of its record, if there is one."""
    of_owner = _select_owner_facts(facts, owner)
    report = _report_by_records(of_owner, around) if found.is_ours else None
    if report is not None and report.admission is not None and report.admission.codes[:1] == (found.code,):
        return report
    admission = AdmissionReport(
        "event", Verdict.DENY, at=found.at, codes=(found.code,) if found.code else (), message=found.message
    )
    subject = ReportSubject(
        "Pod", facts.namespace, f"{owner.metadata.name}-", owner=f"{owner.kind}/{owner.metadata.name}"
    )
    token = choose_denial_token(admission.codes)
    if not found.is_ours:
        text, remedy = explain_other_denial(facts, found, around)
        return Report(token, text, subject, remedy, admission=admission, unread=dict(around.unread))
    text = found.message.removeprefix(f"{token}: ")
    return Report(token, text, subject, admission=admission, unread=dict(around.unread))


def _add_age(report: Report, owner: ReportedOwner, now_us: int) -> Report:
    """Add to a report on a refusal its age, or that the controller has not tried again since there was room."""
    at = report.admission.at if report.admission is not None else ""
    free_us, at_us = _find_free_at_us(report), parse_moment_us(at)
    if at_us and free_us and now_us - free_us > _RETRIES_SOON_US:
        code = next(iter(report.admission.codes if report.admission is not None else ()), "")
        summary = (
            f"the last attempt of {owner.kind}/{owner.metadata.name}, at {at}, was denied ({code}); it could pass since"
            f" {format_utc(free_us)}, and the controller has not tried again: it waits longer after each denial"
        )
        return replace(report, token=Fate.WAITING_FOR_RETRY, summary=summary)
    if not at_us:
        return replace(report, summary=f"{report.summary} (reported at an unknown time, maybe long ago)")
    age_us = now_us - at_us
    return replace(report, summary=f"{report.summary} (reported at {at})") if age_us > _AGED_US else report


def _find_free_at_us(report: Report) -> int:
    """Return since when the Pod of a denial by quota could pass; 0 if that is not known."""
    over = [limit for limit in report.quota if limit.over]
    if over:
        return 0 if any(not limit.free_at for limit in over) else max(parse_moment_us(limit.free_at) for limit in over)
    message = "" if report.admission is None else report.admission.message
    found = _COULD_PASS.search(message)
    return 0 if found is None else parse_moment_us(found[1])
