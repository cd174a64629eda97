"""Unjudged Pods: an observer of the watch that reports new Pods of services which were admitted without a review.

The API server did not call: the webhooks are absent or lead elsewhere, and failurePolicy Ignore admitted the Pods.
"""

from collections.abc import Callable
from dataclasses import dataclass

from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.kubernetes.pod import Pod
from webhook.core.pods.ownership import OwnedPod

_GRACE_US = 10_000_000
"""After a change of the policy: servers and webhook configurations follow within seconds."""
_MINUTE_US = 60_000_000
_REMEMBERED_MAX = 10_000


@dataclass(frozen=True, slots=True)
class UnjudgedReports:
    """Callbacks for Pods without a review."""

    on_pod: Callable[[str], None]
    """Each one, by its service."""
    on_service: Callable[[str, str], None]
    """A service and one of its Pods, as NAMESPACE/NAME: at most once a minute for each service."""


class UnjudgedPods:
    """A `PodObserver`. A review of a new Pod leaves the service's label, unless all modes are Disabled."""

    def __init__(self, reports: UnjudgedReports, now_us: Callable[[], int]) -> None:
        self._reports = reports
        self._now_us = now_us
        self._compiled: CompiledPolicy | None = None
        self._since_us = 0
        """Pods that are older may be older than their service, or than this leader."""
        self._reported: set[str] = set()
        self._told_us: dict[str, int] = {}
        """When `on_service` was called last, by service."""

    def on_list_begun(self, compiled: CompiledPolicy | None) -> None:
        if compiled is not self._compiled:
            self._compiled, self._since_us = compiled, self._now_us() + _GRACE_US

    def on_listed(self, pod: Pod, found: OwnedPod | None) -> None:
        self.on_changed(pod, found)

    def on_list_complete(self) -> None:
        """Do nothing: each Pod of a list is judged by itself."""

    def on_changed(self, pod: Pod, found: OwnedPod | None) -> None:
        if found is None or found.is_labelled or not found.is_sure or found.created_at_us < self._since_us:
            return
        uid, service = pod.metadata.uid, found.service
        if uid in self._reported or len(self._reported) >= _REMEMBERED_MAX or self._is_disabled(service):
            return
        self._reported.add(uid)
        self._reports.on_pod(service)
        now_us = self._now_us()
        if now_us - self._told_us.get(service, -_MINUTE_US) >= _MINUTE_US:
            self._told_us[service] = now_us
            self._reports.on_service(service, f"{found.namespace}/{found.name}")

    def on_deleted(self, uid: str) -> None:
        self._reported.discard(uid)

    def _is_disabled(self, service: str) -> bool:
        return self._compiled is None or self._compiled.services[service].modes.is_all_disabled()
