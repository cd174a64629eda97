"""Status of a server's decision records."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DecisionsStatus:
    """Records of this server: kept, written to the shared store, dropped before that, and the current error.

    `written` is None without a shared store.
    """

    kept: int
    written: int | None = None
    dropped: int = 0
    error: str = ""

    @property
    def document(self) -> dict[str, int | str | None]:
        """Return the part of the status document."""
        return {"kept": self.kept, "written": self.written, "dropped": self.dropped, "error": self.error or None}


NO_DECISIONS = DecisionsStatus(0)
