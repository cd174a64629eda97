"""Recent attempts of a controller to create a Pod: whether a failure that Kubernetes still tells is over by now.

Kubernetes refreshes neither the condition nor the Event of a failure that is over, and writes whole seconds.
"""

from webhook.core.admission.decision import Half
from webhook.core.diagnosis.facts import Surroundings, WorkloadFacts
from webhook.core.diagnosis.objects import ReportedOwner
from webhook.core.diagnosis.refusals import CreateFailure
from webhook.core.pods.ownership import moment_us
from webhook.core.reporting.decision_record import DecisionRecord

_SECOND_US = 1_000_000


def newest_record(facts: WorkloadFacts) -> DecisionRecord | None:
    """Return the newest record of a Pod that was to be created."""
    return next((one for one in facts.records if one.half is Half.VALIDATE and not one.dry_run), None)


def is_over(found: CreateFailure, owner: ReportedOwner, of_owner: WorkloadFacts, around: Surroundings) -> bool:
    """Return whether the controller has tried again since a failure, or has created a Pod; `of_owner` are its own."""
    return _has_newer_pod(found, owner, of_owner) or _has_newer_record(found, of_owner, around)


def _has_newer_pod(found: CreateFailure, owner: ReportedOwner, of_owner: WorkloadFacts) -> bool:
    said_us = moment_us(found.at)
    # Of a controller with one attempt at a time, a Pod of the same second is the newer of both.
    is_alone = owner.kind == "Job" and owner.wanted <= 1
    for one in of_owner.pods:
        created_us = 0 if one.pod is None else moment_us(one.pod.metadata.creation_timestamp)
        is_same = is_alone or one.name == found.pod
        if created_us and created_us >= (_second(said_us) if is_same else said_us + _SECOND_US):
            return True
    return False


def _has_newer_record(found: CreateFailure, of_owner: WorkloadFacts, around: Surroundings) -> bool:
    newest = newest_record(of_owner)
    if newest is None:
        return False
    # Our own denial has a record: in the same second the newest record is of this attempt, or of a later one.
    said_us = moment_us(found.at)
    since_us = _second(said_us) if found.is_ours else said_us + _SECOND_US
    if round(newest.at.timestamp() * 1_000_000) < since_us:
        return False
    # Others refuse Pods after we have admitted them: then there is a record, and no Pod.
    return newest.is_denied or "pods" in around.unread or any(one.uid == newest.uid for one in of_owner.pods)


def _second(at_us: int) -> int:
    return at_us - at_us % _SECOND_US
