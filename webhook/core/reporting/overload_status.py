"""Status of a server's overload."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from webhook.core.overload import OverloadCause
from webhook.core.reporting.status_rows import moment


@dataclass(frozen=True, slots=True)
class OverloadStatus:
    """Why a server is overloaded, by cause, since when, and how many Pods it has gated since; no cause: it is not."""

    causes: Mapping[OverloadCause, str] = field(default_factory=dict)
    since_us: int = 0
    gated: int = 0

    @property
    def document(self) -> dict[str, Any] | None:
        """Return the part of the status document; None without an overload."""
        if not self.causes:
            return None
        return {
            "since": moment(self.since_us),
            "reasons": [{"reason": cause, "message": text} for cause, text in self.causes.items()],
            "gatedPods": self.gated,
        }


NO_OVERLOAD = OverloadStatus()
