"""Overrides for tests: documents, a fixed clock, and an observer that records its calls."""

from collections.abc import Sequence

from webhook.core.kubernetes.timestamps import parse_microseconds
from webhook.core.overrides import Override

END = "2026-12-01T04:00:00Z"
END_US = parse_microseconds(END)


def entry(service: str = "payment-api", factor: str = "3", until: str = END, reason: str = "INC-1") -> str:
    return f"- {{service: {service}, quotaFactor: {factor}, until: {until}, reason: {reason}}}\n"


class FixedClock:
    """A fixed clock, an hour before the end of these entries."""

    def __init__(self) -> None:
        self.us = END_US - 3_600_000_000

    def now_us(self) -> int:
        return self.us


class OverridesRecorder:
    """Observes overrides; any other call fails."""

    def __init__(self) -> None:
        self.loaded: list[list[str]] = []
        self.failed: list[tuple[str, ...]] = []
        self.changes: list[str] = []

    def on_overrides_loaded(self, live: Sequence[Override]) -> None:
        self.loaded.append([entry.service for entry in live])

    def on_overrides_failed(self, errors: Sequence[str]) -> None:
        self.failed.append(tuple(errors))

    def on_override_changed(self, service: str, former: Override | None, now: Override | None) -> None:
        self.changes.append(f"{service} {'ended' if now is None else 'began' if former is None else 'changed'}")
