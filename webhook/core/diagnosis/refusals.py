"""Refusals of Pods that never existed, from conditions and Events of their controller, and whether they are over.

Kubernetes refreshes neither the condition nor the Event of a failure that is over, and writes whole seconds.
"""

import re
from collections.abc import Sequence

from msgspec import Struct

from webhook.core.admission.decision import Half
from webhook.core.diagnosis.facts import Surroundings, WorkloadFacts
from webhook.core.diagnosis.objects import ReportedEvent, ReportedOwner
from webhook.core.findings import Code
from webhook.core.pods.ownership import parse_moment_us
from webhook.core.reporting.decision_record import DecisionRecord

_DENIED = re.compile(r'admission webhook "(?P<webhook>[^"]+)" denied the request: (?P<text>.*)', re.DOTALL)
_NOT_CALLED = re.compile(r'failed calling webhook "(?P<webhook>[^"]+)": (?P<text>.*)', re.DOTALL)
_NAMED = re.compile(r"[Cc]reate Pod (?P<pod>\S+) in StatefulSet ")
_OURS = ".podgate.io"
_KEEPS_A_CONDITION = frozenset({"ReplicaSet", "ReplicationController"})


class CreateFailure(Struct, frozen=True):
    """The newest refusal of a controller's Pod. `code`: the denial's, "" if Podgate did not refuse it."""

    at: str
    message: str
    code: str
    webhook: str = ""
    was_called: bool = True
    """Whether the webhook answered: otherwise the API server could not call it."""
    pod: str = ""
    """The Pod's name, if the controller tells it."""

    @property
    def is_ours(self) -> bool:
        return self.was_called and self.webhook.endswith(_OURS)

    @property
    def by(self) -> str:
        """Who refused it, "" for Podgate."""
        if self.is_ours:
            return ""
        return "the API server cannot call Podgate: " if self.webhook.endswith(_OURS) else "not by Podgate: "


def find_refusal(owner: ReportedOwner, events: Sequence[ReportedEvent]) -> CreateFailure | None:
    """Return why a controller cannot create Pods; None if it can, or if nothing tells."""
    if owner.wanted <= owner.present:
        return None
    failures = [
        event for event in events if event.reason == "FailedCreate" and event.involved_object.uid == owner.metadata.uid
    ]
    newest = max(failures, key=lambda event: event.at, default=None)
    held = next((condition for condition in owner.status.conditions or () if condition.type == "ReplicaFailure"), None)
    if held is not None and held.status == "True":
        # Kubernetes keeps the first message in the condition while each attempt fails; the Event has the newest.
        since = held.last_transition_time or ""
        if newest is not None and parse_moment_us(newest.at) >= parse_moment_us(since):
            return parse_failure(newest.at, newest.message or "")
        return parse_failure(since, held.message or "")
    if newest is None or (held is None and owner.kind in _KEEPS_A_CONDITION):
        return None  # an Event lives for an hour, the condition as long as the failure
    return parse_failure(newest.at, newest.message or "")


def find_custom_refusal(owner: ReportedOwner, events: Sequence[ReportedEvent]) -> CreateFailure | None:
    """Return the newest refusal of a Pod that the controller of a custom kind reports; None if it reports none."""
    told = [event for event in events if event.involved_object.uid == owner.metadata.uid and event.type == "Warning"]
    for event in sorted(told, key=lambda event: event.at, reverse=True):
        found = parse_failure(event.at, event.message or "")
        if found.webhook or (event.reason or "").startswith("FailedCreate"):
            return found
    return None


def parse_failure(at: str, message: str) -> CreateFailure:
    """Return what a controller reports about a Pod that it could not create."""
    found, named = _DENIED.search(message), _NAMED.search(message)
    not_called, pod = _NOT_CALLED.search(message), "" if named is None else named["pod"]
    if not_called is not None:
        return CreateFailure(at, not_called["text"], "", not_called["webhook"], was_called=False, pod=pod)
    if found is None:
        return CreateFailure(at, message.removeprefix("Error creating: "), "", pod=pod)
    webhook, text = found["webhook"], found["text"]
    code = text.partition(":")[0]
    return CreateFailure(at, text, code if code in set(Code) else "", webhook, pod=pod)


_SECOND_US = 1_000_000


def find_newest_record(facts: WorkloadFacts) -> DecisionRecord | None:
    """Return the newest record of a Pod that was to be created."""
    return next((record for record in facts.records if record.half is Half.VALIDATE and not record.dry_run), None)


def is_over(found: CreateFailure, owner: ReportedOwner, of_owner: WorkloadFacts, around: Surroundings) -> bool:
    """Return whether the controller has tried again since a failure, or created a Pod; `of_owner`: its own facts."""
    return _has_newer_pod(found, owner, of_owner) or _has_newer_record(found, of_owner, around)


def _has_newer_pod(found: CreateFailure, owner: ReportedOwner, of_owner: WorkloadFacts) -> bool:
    said_us = parse_moment_us(found.at)
    # A controller with one attempt at a time creates a Pod only after the failure, also in the same second.
    is_alone = owner.kind == "Job" and owner.wanted <= 1
    for pod_facts in of_owner.pods:
        created_us = 0 if pod_facts.pod is None else parse_moment_us(pod_facts.pod.metadata.creation_timestamp)
        is_same = is_alone or pod_facts.name == found.pod
        if created_us and created_us >= (_truncate_to_second(said_us) if is_same else said_us + _SECOND_US):
            return True
    return False


def _has_newer_record(found: CreateFailure, of_owner: WorkloadFacts, around: Surroundings) -> bool:
    newest = find_newest_record(of_owner)
    if newest is None:
        return False
    # Our own denial has a record: in the same second the newest record is of this attempt, or of a later one.
    said_us = parse_moment_us(found.at)
    since_us = _truncate_to_second(said_us) if found.is_ours else said_us + _SECOND_US
    if round(newest.at.timestamp() * 1_000_000) < since_us:
        return False
    # Others refuse Pods after we have admitted them: then there is a record, and no Pod.
    return (
        newest.is_denied or "pods" in around.unread or any(pod_facts.uid == newest.uid for pod_facts in of_owner.pods)
    )


def _truncate_to_second(at_us: int) -> int:
    return at_us - at_us % _SECOND_US
