"""Helpers of the `readiness_log` tests that other tests use, too."""

from typing import Any


class LogLines:
    """A log that collects its lines in memory."""

    def __init__(self) -> None:
        self.written: list[tuple[str, str, Any]] = []

    def write_event(self, level: str, message: str, /, **fields: Any) -> None:
        self.written.append((level, message, fields.get("reasons")))
