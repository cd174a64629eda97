"""Refusals of Pods that never existed, from the conditions and Events of the controller that could not create them."""

import re
from collections.abc import Sequence

from msgspec import Struct

from webhook.core.diagnosis.objects import ReportedEvent, ReportedOwner
from webhook.core.findings import Code
from webhook.core.pods.ownership import moment_us

_DENIED = re.compile(r'admission webhook "(?P<webhook>[^"]+)" denied the request: (?P<text>.*)', re.DOTALL)
_NOT_CALLED = re.compile(r'failed calling webhook "(?P<webhook>[^"]+)": (?P<text>.*)', re.DOTALL)
_NAMED = re.compile(r"[Cc]reate Pod (?P<pod>\S+) in StatefulSet ")
_OURS = ".podgate.io"
_KEEPS_A_CONDITION = frozenset({"ReplicaSet", "ReplicationController"})


class CreateFailure(Struct, frozen=True):
    """The newest refusal of a controller's Pod. `code`: the denial's, "" if somebody else refused it."""

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


def refusal(owner: ReportedOwner, events: Sequence[ReportedEvent]) -> CreateFailure | None:
    """Return why a controller cannot create Pods; None if it can, or if nothing tells."""
    if owner.wanted <= owner.present:
        return None
    failures = [one for one in events if one.reason == "FailedCreate" and one.involved_object.uid == owner.metadata.uid]
    newest = max(failures, key=lambda one: one.at, default=None)
    held = next((one for one in owner.status.conditions or () if one.type == "ReplicaFailure"), None)
    if held is not None and held.status == "True":
        # Kubernetes keeps the first message in the condition while each attempt fails; the Event has the newest.
        since = held.last_transition_time or ""
        if newest is not None and moment_us(newest.at) >= moment_us(since):
            return create_failure(newest.at, newest.message or "")
        return create_failure(since, held.message or "")
    if newest is None or (held is None and owner.kind in _KEEPS_A_CONDITION):
        return None  # an Event lives for an hour, the condition as long as the failure
    return create_failure(newest.at, newest.message or "")


def create_failure(at: str, message: str) -> CreateFailure:
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
