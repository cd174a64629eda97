"""An Event as it is stored: about which object, why, in which words; its name says what makes it one.

`events.k8s.io/v1`: of the two APIs the one that wants to know who reports and what was done, and checks what it gets.
Both show the same objects: kubectl reads them by the older one, `v1`.
"""

from datetime import UTC, datetime
from enum import StrEnum
from hashlib import sha256
from typing import Any, NamedTuple

from webhook.adapters.kubernetes.api.objects import LABELS

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
    """The object that it is about. `kubectl describe` shows an Event only where the uid is the object's own."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str = ""


class Happening(NamedTuple):
    """One Event. What is of the same `occasion`, object and reason is the same one, whoever tells it."""

    regarding: Regarding
    kind: EventType
    reason: str
    action: str
    note: str
    occasion: str
    at_ns: int
    of_version: bool = True
    """Of a ConfigMap: whether it is about this state of it, and another one of the next."""

    @property
    def path(self) -> str:
        """Where it is created: in the namespace of its object."""
        return f"/apis/events.k8s.io/v1/namespaces/{self.regarding.namespace}/events"

    def body(self, instance: str) -> dict[str, Any]:
        """Return it as it travels; `instance` is which of the servers tells it."""
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
            "note": self.note,
            "regarding": {
                "apiVersion": about.api_version,
                "kind": about.kind,
                "namespace": about.namespace,
                "name": about.name,
                "uid": about.uid,
            },
        }

    def _name(self) -> str:
        """Return the object's name and a hash, so that of several servers that tell the same only one succeeds."""
        told = (*self.regarding, self.reason, self.occasion)
        digest = sha256("\0".join(told).encode()).hexdigest()[:_DIGITS]
        return f"{self.regarding.name[: _NAME_LENGTH_MAX - _DIGITS - 1].rstrip('-.')}.{digest}"


def minute_of(at_ns: int) -> int:
    """Return the minute since the Unix epoch."""
    return at_ns // 60_000_000_000


def in_bounds(note: str) -> str:
    """Return as much of it as an Event may hold."""
    raw = note.encode()
    return note if len(raw) <= NOTE_BYTES_MAX else raw[: NOTE_BYTES_MAX - 3].decode(errors="ignore") + "..."


def _micro_time(at_ns: int) -> str:
    seconds, rest_ns = divmod(at_ns, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest_ns // 1000:06d}Z"
