"""Tasks of the leader in the cluster: the interface between its loop and one thing to reconcile."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from certs.cluster.api import Api
from certs.errors import CertsError

MADE, MENDED, OTHER = "made", "mended", "other"


@dataclass(frozen=True, slots=True)
class Action:
    """One write. `kind` is MADE (a certificate), MENDED (a change by another writer was undone), or OTHER."""

    kind: str
    what: str
    """Name of the object."""
    text: str


@dataclass(frozen=True, slots=True)
class TaskResult:
    """Result of one call of `reconcile`."""

    action: Action | None = None
    errors: tuple[str, ...] = ()
    ends: Mapping[str, datetime] = field(default_factory=dict)
    """Expiry of the certificates, by the name of their Secret."""
    is_overtaken: bool = False

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to do now."""
        return self.action is None and not self.is_overtaken


class Task(Protocol):
    """One thing to reconcile. Its state is in the cluster, because another process may lead next time."""

    async def reconcile(self, api: Api, now: datetime) -> TaskResult:
        """Take one step that is due, if any is. Failures of the cluster are returned as errors, not raised."""
        ...


def message_of(error: CertsError) -> str:
    return f"{error}: {error.remedy}" if error.remedy else str(error)
