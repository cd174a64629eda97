"""Reports of the extender: its calls as records, metrics and spans; sources of load that do not answer as log lines."""

from collections.abc import Callable, Mapping

from webhook.app.telemetry import Telemetry
from webhook.app.telemetry.watched_resources import OnUnread
from webhook.core.kubernetes.pod import Pod
from webhook.core.scheduling.extender_api import CallResult
from webhook.core.scheduling.node_selection import ServiceRules
from webhook.core.scheduling.scheduling_record import FilterAttempt, PreemptAttempt, ScoreAttempt
from webhook.extender.load_refresher import LoadReports
from webhook.extender.scheduling_records import SchedulingRecords
from webhook.extender.wake_loop import SchedulerWakeReports
from webhook.support.condition import Condition


class SchedulingReports:
    """A `SchedulingObserver`."""

    def __init__(self, telemetry: Telemetry, now_seconds: Callable[[], float]) -> None:
        self._metrics = telemetry.metrics.scheduling
        self._said = telemetry.logs.write_event
        self._now_seconds = now_seconds
        self.records = SchedulingRecords(self._metrics.count_evicted_record)
        self._build_unread_report = telemetry.resources.build_unread_report
        self._on_unread: dict[str, OnUnread] = {}
        self._traced = None if telemetry.traces is None else telemetry.traces.scheduling()

    def on_filtered(self, pod: Pod, service: ServiceRules, attempt: FilterAttempt) -> None:
        for refusal in attempt.refused:
            self._metrics.count_refused(service.service, refusal.rule, refusal.count)
        self.records.on_filtered(pod, service, attempt)
        self._trace(pod, service, attempt)

    def on_scored(self, pod: Pod, service: ServiceRules, attempt: ScoreAttempt) -> None:
        self.records.on_scored(pod, service, attempt)
        self._trace(pod, service, attempt)

    def on_preempted(self, pod: Pod, service: ServiceRules, attempt: PreemptAttempt) -> None:
        self.records.on_preempted(pod, service, attempt)
        self._trace(pod, service, attempt)

    def _trace(self, pod: Pod, service: ServiceRules, attempt: FilterAttempt | ScoreAttempt | PreemptAttempt) -> None:
        if self._traced is not None:
            self._traced.on_decided(pod, service, attempt)

    def on_call_ended(self, verb: str, result: CallResult, duration_ns: int) -> None:
        """Receive the result of a call, and how long it took."""
        self._metrics.count_call(verb, result, duration_ns)
        if self._traced is not None:
            self._traced.on_answered(verb, duration_ns)

    def on_bound(self, uid: str, node: str, at_seconds: float) -> None:
        self.records.on_bound(uid, node, at_seconds)

    def build_wake_reports(self) -> SchedulerWakeReports:
        """Return the callbacks of the wake loop."""

        def on_trouble(reason: str) -> None:
            self._said("warning", "kube-scheduler is not woken, refused Pods wait up to five minutes", reason=reason)

        def on_alone(reason: str) -> None:
            self._said("info", "waiting Pods are woken all at once, not one by one", reason=reason)

        metrics = self._metrics
        return SchedulerWakeReports(
            metrics.on_woken,
            metrics.on_wake_failed,
            metrics.count_unanswered_wakes,
            Condition(on_trouble, lambda _: self._said("info", "kube-scheduler is woken again")),
            Condition(on_alone, lambda _: self._said("info", "waiting Pods are woken one by one again")),
        )

    def build_refresh_reports(self) -> LoadReports:
        """Return the callbacks of the refresher."""

        def on_measured(source: str, took_seconds: float) -> None:
            self._metrics.set_source_read(source, self._now_seconds(), took_seconds)

        def on_trouble(reason: str) -> None:
            self._said("warning", "a source of load does not answer, using the next one", reason=reason)

        def on_over(reason: str) -> None:
            self._said("info", "a source of load answers again", reason=reason)

        def on_unread(source: str, reasons: Mapping[str, str]) -> None:
            if source not in self._on_unread:
                self._on_unread[source] = self._build_unread_report(source)
            self._on_unread[source](reasons)

        return LoadReports(on_measured, self._metrics.count_source_failure, on_unread, on_trouble, on_over)
