"""Metrics, logs and traces of a server, as one observer; and what they are told beside reviews."""

import time
from collections.abc import Callable

from webhook.adapters.logs import Logs
from webhook.adapters.metrics import Metrics
from webhook.adapters.traces import open_traces
from webhook.observers import Observers
from webhook.ports import WatchReports
from webhook.settings import Settings
from webhook.status import WatchHealth


class Telemetry:
    """Opened first and closed last: whatever happens between is told."""

    def __init__(self, settings: Settings, version: str) -> None:
        self.metrics = Metrics(version)
        self.logs = Logs(sample_every=settings.log_sample)
        self._traces = open_traces(settings.otlp_endpoint, settings.trace_ratio, version)
        self.watches: dict[str, WatchHealth] = {}
        self.store_trouble = ""
        """Why the shared store gives no answer, "" where it does."""
        self.observer = Observers(self.metrics, self.logs, *([self._traces] if self._traces else []))

    def refused_files(self, what: str) -> Callable[[str], None]:
        """Return whom to tell that changed files were found bad."""

        def refused(reason: str) -> None:
            self.metrics.file_refused(what)
            self.logs.said("error", f"{what} refused, the last good one stays", reason=reason)

        return refused

    def watched(self, resource: str) -> WatchReports:
        """Return whom to tell how the watch on a kind of object fares."""
        contact_us: int | None = None
        troubles: list[str] = []

        def show() -> None:
            self.watches[resource] = WatchHealth(contact_us, "; ".join(troubles))

        def contact() -> None:
            nonlocal contact_us
            now_seconds = time.time()
            contact_us = int(now_seconds * 1_000_000)
            self.metrics.kubernetes_contact(resource, now_seconds)
            show()

        def trouble(reason: str) -> None:
            troubles.append(reason)
            self.metrics.kubernetes_failed(resource)
            self.logs.said("warning", "watch failed, what is known stays", resource=resource, reason=reason)
            show()

        def over(reason: str) -> None:
            troubles.remove(reason)
            self.logs.said("info", "watch recovered", resource=resource, reason=reason)
            show()

        show()
        return WatchReports(contact, trouble, over)

    def store_reports(self) -> WatchReports:
        """Return whom to tell how the shared store fares."""

        def trouble(reason: str) -> None:
            self.store_trouble = reason
            self.metrics.store_failed()
            self.logs.said("error", "the store does not answer, each service goes by its own rule", reason=reason)

        def over(reason: str) -> None:
            self.store_trouble = ""
            self.metrics.store_recovered()
            self.logs.said("info", "the store answers again", reason=reason)

        return WatchReports(lambda: None, trouble, over)

    def close(self) -> None:
        """Send what is still to be sent; takes as long as the receiver does."""
        if self._traces is not None:
            self._traces.shutdown()
