"""Causes in a workload: paused, suspended, not yet due, ended, or in a namespace that is being deleted."""

from collections.abc import Sequence
from typing import NamedTuple

from webhook.core.diagnosis.facts import Surroundings, WorkloadFacts
from webhook.core.diagnosis.objects import ReportedEvent, ReportedMaker, ReportedNamespace, ReportedOwner
from webhook.core.diagnosis.report import Fate

_CRON_PROBLEMS = frozenset(
    {"FailedCreate", "InvalidSchedule", "UnparseableSchedule", "UnknownTimeZone", "MissSchedule", "TooManyMissedTimes"}
)
_CRON_STARTS = "SuccessfulCreate"
_CONTROLLERS = (("its controllers", ("replicasets", "jobs")),)
_POD_TELLERS = (("its Pods", ("pods",)), ("its Events", ("events",)))
"""Sources that tell why Pods are missing, with their names in `Surroundings.unread`."""
_REMAINS = frozenset({"NamespaceContentRemaining", "NamespaceFinalizersRemaining", "NamespaceDeletionContentFailure"})


class WorkloadState(NamedTuple):
    """Why a workload has no Pods, or none of its present template."""

    token: Fate
    summary: str
    remedy: str = ""


def find_hold(facts: WorkloadFacts, around: Surroundings) -> WorkloadState | None:
    """Return what holds the whole workload, whatever its Pods do; None if nothing does."""
    namespace = around.namespace
    if namespace is not None and namespace.metadata.deletion_timestamp is not None:
        return _explain_terminating(namespace)
    maker = facts.maker
    if maker is not None and maker.kind == "Deployment" and maker.spec.paused and not _is_rolled_out(maker, facts):
        return WorkloadState(
            Fate.IDLE,
            "paused (spec.paused): Pods of its present template are not created",
            f"kubectl rollout resume deployment/{facts.name} -n {facts.namespace}",
        )
    suspended = maker if maker is not None else next(iter(facts.owners), None)
    if suspended is not None and suspended.spec.suspend and suspended.kind in {"Job", "CronJob"}:
        return _explain_suspension(facts, "no Pods run" if suspended.kind == "Job" else "no new Jobs are created")
    return None


def explain_absence(facts: WorkloadFacts) -> WorkloadState:
    """Return why a workload that is not held has no Pods."""
    wanted = sum(owner.wanted for owner in facts.owners)
    if not wanted:
        return _explain_idleness(facts)
    ended = _find_end(facts)
    if ended is not None:
        return ended
    return WorkloadState(Fate.UNKNOWN, f"none of {wanted} Pods exists, and nothing says why")


def _explain_idleness(facts: WorkloadFacts) -> WorkloadState:
    """Return why a workload wants no Pods at the moment."""
    stopped = next((owner for owner in facts.owners if _has_no_parallelism(owner)), None)
    if stopped is not None:
        return _explain_no_parallelism(stopped)
    if facts.maker is not None and facts.maker.kind == "CronJob":
        return _explain_not_due(facts, facts.maker)
    if facts.maker is not None and not facts.owners:
        text = "it has no ReplicaSet, and nothing says why"
        return WorkloadState(Fate.UNKNOWN, text, "see that kube-controller-manager runs")
    return _find_end(facts) or _explain_no_wish(facts)


def _explain_no_wish(facts: WorkloadFacts) -> WorkloadState:
    kinds = {owner.kind for owner in facts.owners}
    if kinds == {"DaemonSet"}:
        return WorkloadState(
            Fate.IDLE,
            "it wants no Pods: no node fits its Pods",
            "compare the nodes' labels and taints with its template",
        )
    if kinds == {"Job"}:
        succeeded = sum(owner.status.succeeded or 0 for owner in facts.owners)
        return WorkloadState(Fate.IDLE, f"it wants no more Pods: {succeeded} have succeeded")
    return WorkloadState(Fate.IDLE, "it wants no Pods: spec.replicas is 0", _suggest_scaling(facts))


def explain_unreadable(facts: WorkloadFacts, around: Surroundings) -> WorkloadState | None:
    """Return that it is unknown why Pods are missing because something could not be read; None otherwise."""
    wanted = sum(owner.wanted for owner in facts.owners)
    has_all = facts.maker is None or bool(facts.owners)
    for what, names in (_POD_TELLERS if wanted else ()) if has_all else _CONTROLLERS:
        if why := around.explain_unread(*names):
            text = f"{what} cannot be read, so why Pods are missing cannot be told: {why}"
            return WorkloadState(Fate.UNKNOWN, text)
    return None


def _suggest_scaling(facts: WorkloadFacts) -> str:
    kind = facts.kind.lower()
    return f"kubectl scale {kind}/{facts.name} -n {facts.namespace} --replicas=N"


def _has_no_parallelism(owner: ReportedOwner) -> bool:
    return owner.kind == "Job" and owner.spec.parallelism == 0 and not (owner.is_over or owner.spec.suspend)


def _explain_no_parallelism(job: ReportedOwner) -> WorkloadState:
    patch = """--type=merge -p '{"spec":{"parallelism":1}}'"""
    place = f"job/{job.metadata.name} -n {job.metadata.namespace}"
    return WorkloadState(
        Fate.IDLE,
        "it wants no Pods: spec.parallelism is 0",
        f"kubectl patch {place} {patch}, or as many as shall run at once",
    )


def _is_rolled_out(maker: ReportedMaker, facts: WorkloadFacts) -> bool:
    """Whether a paused Deployment has a ReplicaSet of its present template; one that wants no Pods needs none."""
    wants = any(owner.wanted for owner in facts.owners) or not facts.owners
    return not wants or bool(maker.status.updated_replicas)


def _explain_suspension(facts: WorkloadFacts, text: str) -> WorkloadState:
    kind = facts.kind.lower()
    patch = """--type=merge -p '{"spec":{"suspend":false}}'"""
    return WorkloadState(
        Fate.IDLE,
        f"suspended (spec.suspend): {text}",
        f"kubectl patch {kind}/{facts.name} -n {facts.namespace} {patch}, unless a queue such as Kueue resumes it",
    )


def _explain_not_due(facts: WorkloadFacts, maker: ReportedMaker) -> WorkloadState:
    problem = _find_problem(maker, facts.events)
    if problem is not None:
        return WorkloadState(
            Fate.FAILED,
            f"it creates no Job: {problem.reason}: {' '.join((problem.message or '').split())}",
            "correct spec.schedule, spec.timeZone or spec.jobTemplate as the message says",
        )
    zone = f" {maker.spec.time_zone}" if maker.spec.time_zone else ""
    last = maker.status.last_schedule_time
    when = f"last at {last}" if last else f"never since it was created at {maker.metadata.creation_timestamp}"
    return WorkloadState(Fate.IDLE, f"not due: its schedule is {maker.spec.schedule!r}{zone}; it was due {when}")


def _find_problem(maker: ReportedMaker, events: Sequence[ReportedEvent]) -> ReportedEvent | None:
    told = [
        event
        for event in events
        if event.involved_object.uid == maker.metadata.uid and event.reason in {*_CRON_PROBLEMS, _CRON_STARTS}
    ]
    newest = max(told, key=lambda event: (event.at, event.reason == _CRON_STARTS), default=None)
    return None if newest is None or newest.reason == _CRON_STARTS else newest


def _find_end(facts: WorkloadFacts) -> WorkloadState | None:
    return next((found for owner in facts.owners if (found := _explain_end(owner)) is not None), None)


def _explain_end(owner: ReportedOwner) -> WorkloadState | None:
    if owner.kind != "Job":
        return None
    for condition in owner.status.conditions or ():
        if condition.status == "True" and condition.type == "Failed":
            text = ": ".join(text for text in (condition.reason, condition.message) if text)
            return WorkloadState(Fate.FAILED, text or "the Job failed", "correct its Pod template and create it again")
        if condition.status == "True" and condition.type == "Complete":
            return WorkloadState(Fate.SUCCEEDED, "the Job is complete")
    return None


def _explain_terminating(namespace: ReportedNamespace) -> WorkloadState:
    remains = [
        f"{condition.message}"
        for condition in namespace.status.conditions or ()
        if condition.type in _REMAINS and condition.status == "True" and condition.message
    ]
    name = namespace.metadata.name
    text = (
        f"namespace {name} has been terminating since {namespace.metadata.deletion_timestamp}, so no Pod can be created"
    )
    return WorkloadState(
        Fate.TERMINATING,
        "; ".join((text, *remains)),
        f"wait until kubectl get namespace {name} finds nothing, then create the namespace and the workload again",
    )
