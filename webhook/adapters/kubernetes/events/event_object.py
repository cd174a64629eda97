"""Event object: its subject, reason, note, and a name by which replicas deduplicate it.

It uses `events.k8s.io/v1`, which, unlike the older `v1`, requires reporter and action and validates them. Both APIs
show the same objects; kubectl reads `v1`.
"""

from datetime import UTC, datetime
from enum import StrEnum
from hashlib import sha256
from typing import Any, NamedTuple

from webhook.adapters.kubernetes.api.objects import LABELS
from webhook.core.plain_text import escape_line

REPORTER = "podgate.io/podgate"
NOTE_BYTES_MAX = 1024
_INSTANCE_LENGTH_MAX = 128
_NAME_LENGTH_MAX = 253
_DIGITS = 16


class EventType(StrEnum):
    """The `type` of an Event."""

    NORMAL = "Normal"
    WARNING = "Warning"


class Regarding(NamedTuple):
    """The object that an Event is about. `kubectl describe` shows the Event only if the uid matches the object's."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str = ""


class Happening(NamedTuple):
    """One Event. Those of the same object, reason and `occasion` are the same Event, whichever server sends them."""

    regarding: Regarding
    kind: EventType
    reason: str
    action: str
    note: str
    occasion: str
    at_ns: int
    of_version: bool = True
    """For a ConfigMap without a uid yet: whether the Event is repeated for each resourceVersion."""

    @property
    def path(self) -> str:
        """API path at which the Event is created, in its object's namespace."""
        return f"/apis/events.k8s.io/v1/namespaces/{self.regarding.namespace}/events"

    def body(self, instance: str) -> dict[str, Any]:
        """Return the request body; `instance` is the reporting server."""
        about = self.regarding
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": self._name(), "namespace": about.namespace, "labels": LABELS},
            "eventTime": _micro_time(self.at_ns),
            "reportingController": REPORTER,
            "reportingInstance": instance[:_INSTANCE_LENGTH_MAX],
            "action": self.action,
            "reason": self.reason,
            "type": self.kind,
            "note": clip_note(self.note),
            "regarding": {
                "apiVersion": about.api_version,
                "kind": about.kind,
                "namespace": about.namespace,
                "name": about.name,
                "uid": about.uid,
            },
        }

    def _name(self) -> str:
        """Return the object's name and a hash, so that only one of several servers can create the same Event."""
        identity = (*self.regarding, self.reason, self.occasion)
        digest = sha256("\0".join(identity).encode()).hexdigest()[:_DIGITS]
        return f"{self.regarding.name[: _NAME_LENGTH_MAX - _DIGITS - 1].rstrip('-.')}.{digest}"


def minute_of(at_ns: int) -> int:
    """Return the minute since the Unix epoch."""
    return at_ns // 60_000_000_000


def clip_note(note: str) -> str:
    """Return the note, printable and truncated to an Event's maximum length."""
    note = escape_line(note)
    raw = note.encode()
    return note if len(raw) <= NOTE_BYTES_MAX else raw[: NOTE_BYTES_MAX - 3].decode(errors="ignore") + "..."


def _micro_time(at_ns: int) -> str:
    seconds, rest_ns = divmod(at_ns, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest_ns // 1000:06d}Z"
