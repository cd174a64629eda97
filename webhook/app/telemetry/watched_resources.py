"""Health of watched resources: contact, troubles, and the objects that cannot be read, in status, metrics and log."""

import time
from collections.abc import Callable, Mapping

from webhook.adapters.logs import Logs
from webhook.adapters.metrics import Metrics
from webhook.core.reporting.status import WatchStatus
from webhook.ports import WatchReports

_OBJECTS_SHOWN = 5
OnUnread = Callable[[Mapping[str, str]], None]
"""Receives the objects that cannot be read now: the reasons by name."""


class WatchedResources:
    """Statuses by resource, and the callbacks that keep them."""

    def __init__(self, metrics: Metrics, logs: Logs) -> None:
        self._metrics = metrics.watches
        self._log = logs.write_event
        self.statuses: dict[str, WatchStatus] = {}
        self._unread: dict[str, Mapping[str, str]] = {}

    def build_reports(self, resource: str) -> WatchReports:
        """Return the callbacks for the watch on one resource."""
        contact_us: int | None = None
        troubles: list[str] = []
        self._metrics.count_failure(resource, 0)  # starts at 0, so that the first failure is an increase
        note_unread = self.build_unread_report(resource)

        def show() -> None:
            unread = _describe_objects(self._unread.get(resource, {}))
            self.statuses[resource] = WatchStatus(contact_us, "; ".join([*troubles, *unread]))

        def on_contact() -> None:
            nonlocal contact_us
            now_seconds = time.time()
            contact_us = int(now_seconds * 1_000_000)
            self._metrics.set_contact(resource, now_seconds)
            show()

        def on_trouble(reason: str) -> None:
            troubles.append(reason)
            self._metrics.count_failure(resource)
            self._log("warning", "watch failed, using cached objects", resource=resource, reason=reason)
            show()

        def on_over(reason: str) -> None:
            troubles.remove(reason)
            self._log("info", "watch recovered", resource=resource, reason=reason)
            show()

        def on_unread(reasons: Mapping[str, str]) -> None:
            note_unread(reasons)
            show()

        show()
        return WatchReports(on_contact, on_trouble, on_over, on_unread)

    def build_unread_report(self, resource: str) -> OnUnread:
        """Return the callback for the objects of a resource that cannot be read."""
        self._metrics.set_unread(resource, 0)

        def on_unread(reasons: Mapping[str, str]) -> None:
            known = self._unread.get(resource, {})
            self._unread[resource] = reasons
            self._metrics.set_unread(resource, len(reasons))
            if added := {name: reason for name, reason in reasons.items() if name not in known}:
                said = "objects are not understood, what was known of them stays"
                self._log("warning", said, resource=resource, count=len(reasons), objects=_describe_objects(added))
            if gone := sorted(known.keys() - reasons.keys()):
                said = "objects are understood again, or gone"
                self._log("info", said, resource=resource, count=len(reasons), objects=gone[:_OBJECTS_SHOWN])

        return on_unread

    def list_unread(self) -> list[str]:
        """Return the objects that cannot be read now, with their resource and the reason."""
        return [f"{resource} {text}" for resource, found in self._unread.items() for text in _describe_objects(found)]

    def forget(self, resource: str) -> None:
        """Forget a watch that this process no longer needs: without contact it would look broken."""
        self.statuses.pop(resource, None)
        self._unread.pop(resource, None)
        self._metrics.end(resource)


def _describe_objects(reasons: Mapping[str, str]) -> list[str]:
    shown = [f"{name}: {reason}" for name, reason in sorted(reasons.items())[:_OBJECTS_SHOWN]]
    return [*shown, *([f"{len(reasons) - _OBJECTS_SHOWN} more"] if len(reasons) > _OBJECTS_SHOWN else [])]
