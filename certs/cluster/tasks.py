"""What a leader sees to in the cluster, as its loop knows it: a Duty looks, does one thing, and says how all stands."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from certs.cluster.api import Api
from certs.errors import CertsError

MADE, MENDED, OTHER = "made", "mended", "other"


@dataclass(frozen=True, slots=True)
class Done:
    """One thing that was done; `kind` is MADE (a certificate), MENDED (what somebody else had changed), or OTHER."""

    kind: str
    what: str
    """Which object."""
    text: str


@dataclass(frozen=True, slots=True)
class Looked:
    """What came of one look."""

    done: Done | None = None
    troubles: tuple[str, ...] = ()
    ends: Mapping[str, datetime] = field(default_factory=dict)
    """When what is kept expires, by the name of its Secret."""
    is_overtaken: bool = False

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to do now."""
        return self.done is None and not self.is_overtaken


class Duty(Protocol):
    """Sees to one thing. What it must not forget is in the cluster: next time another process may be the leader."""

    async def look(self, api: Api, now: datetime) -> Looked:
        """Do one thing that is due, if any is. Never raises for what the cluster does: that is a trouble."""
        ...


def told(error: CertsError) -> str:
    return f"{error}: {error.remedy}" if error.remedy else str(error)
