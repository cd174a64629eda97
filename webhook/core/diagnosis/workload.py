"""Diagnosis of a workload: the Pods that it has, those that were refused, and the most severe of both."""

from collections import Counter

from msgspec.structs import replace

from webhook.core.admission.decision import Half, Verdict
from webhook.core.diagnosis.diagnose import denied_token, diagnose
from webhook.core.diagnosis.facts import PodFacts, Surroundings, WorkloadFacts
from webhook.core.diagnosis.objects import ReportedOwner
from webhook.core.diagnosis.refusals import CreateFailure, refusal
from webhook.core.diagnosis.report import AdmissionReport, Fate, Report, ReportSubject


def diagnose_workload(facts: WorkloadFacts, around: Surroundings) -> Report | None:
    """Return the report on a workload; None if neither the cluster nor a record knows it."""
    pods = [(report, one) for one in facts.pods if (report := diagnose(one, around, is_brief=True)) is not None]
    reports = [report for report, _ in pods]
    refused, missing = _refused(facts, around)
    if not facts.owners and not reports and refused is None:
        return None
    wanted = sum(owner.wanted for owner in facts.owners)
    counts = Counter(str(one.token) for one in reports)
    if refused is not None and missing:
        counts[str(refused.token)] += missing
    worst: Report | None = min((*reports, *(() if refused is None else (refused,))), key=_severity, default=None)
    whole = next((diagnose(one, around) for report, one in pods if report is worst), None)
    worst = whole or worst
    subject = ReportSubject(facts.kind, facts.namespace, facts.name)
    if worst is None:
        text = "it wants no Pods" if not wanted else f"none of {wanted} Pods exists, and nothing says why"
        return Report(Fate.UNKNOWN, text, subject, unread=dict(around.unread))
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


def _severity(report: Report) -> int:
    return report.token.severity


def _refused(facts: WorkloadFacts, around: Surroundings) -> tuple[Report | None, int]:
    """Return the report on the newest refused Pod, and how many Pods are missing; without the cluster 0."""
    if not facts.owners:
        return _newest(facts, around), 0
    for owner in facts.owners:
        found = refusal(owner, facts.events)
        missing = owner.wanted - owner.present
        if found is not None:
            return _by_refusal(facts, owner, found, around), missing
        of_owner = _of_owner(facts, owner)
        if missing > 0 and of_owner.records:
            return _by_records(of_owner, around), missing
    return None, 0


def _of_owner(facts: WorkloadFacts, owner: ReportedOwner) -> WorkloadFacts:
    """Return facts with the records of one controller's Pods only."""
    records = tuple(one for one in facts.records if one.owner is not None and one.owner.uid == owner.metadata.uid)
    return WorkloadFacts(facts.kind, facts.namespace, facts.name, records=records)


def _by_records(facts: WorkloadFacts, around: Surroundings) -> Report | None:
    """Return the report on the newest Pod of the records, if that was refused."""
    report = _newest(facts, around)
    return report if report is not None and report.is_denied else None


def _newest(facts: WorkloadFacts, around: Surroundings) -> Report | None:
    newest = next((one for one in facts.records if one.half is Half.VALIDATE and not one.dry_run), None)
    if newest is None:
        return None
    return diagnose(PodFacts(facts.namespace, newest.name, newest.uid, records=facts.records), around)


def _by_refusal(facts: WorkloadFacts, owner: ReportedOwner, found: CreateFailure, around: Surroundings) -> Report:
    """Return the report on a refusal: with the figures of its record, if there is one."""
    of_owner = _of_owner(facts, owner)
    report = _by_records(of_owner, around) if found.is_ours else None
    if report is not None and report.admission is not None and report.admission.codes[:1] == (found.code,):
        return report
    admission = AdmissionReport(
        "event", Verdict.DENY, at=found.at, codes=(found.code,) if found.code else (), message=found.message
    )
    subject = ReportSubject(
        "Pod", facts.namespace, f"{owner.metadata.name}-", owner=f"{owner.kind}/{owner.metadata.name}"
    )
    token = denied_token(admission.codes)
    text = f"{found.by}{found.message.removeprefix(f'{token}: ')}"
    return Report(token, text, subject, admission=admission, unread=dict(around.unread))
