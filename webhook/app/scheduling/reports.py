"""Reports of the extender: its calls as records, metrics and spans; sources of load that do not answer as log lines."""

from collections.abc import Callable

from webhook.app.telemetry import Telemetry
from webhook.core.kubernetes.pod import Pod
from webhook.core.scheduling.extender_api import CallResult
from webhook.core.scheduling.node_selection import ServiceRules
from webhook.core.scheduling.scheduling_record import FilterAttempt, PreemptAttempt, ScoreAttempt
from webhook.extender.load_refresher import LoadReports
from webhook.extender.scheduling_records import SchedulingRecords
from webhook.support.condition import Condition


class SchedulingReports:
    """A `SchedulingObserver`."""

    def __init__(self, telemetry: Telemetry, now_seconds: Callable[[], float]) -> None:
        self._metrics = telemetry.metrics.scheduling
        self._said = telemetry.logs.said
        self._now_seconds = now_seconds
        self.records = SchedulingRecords(self._metrics.record_evicted)
        self._traced = None if telemetry.traces is None else telemetry.traces.scheduling()

    def filtered(self, pod: Pod, service: ServiceRules, attempt: FilterAttempt) -> None:
        for refusal in attempt.refused:
            self._metrics.refused(service.service, refusal.rule, refusal.count)
        self.records.filtered(pod, service, attempt)
        self._decided(pod, service, attempt)

    def scored(self, pod: Pod, service: ServiceRules, attempt: ScoreAttempt) -> None:
        self.records.scored(pod, service, attempt)
        self._decided(pod, service, attempt)

    def preempted(self, pod: Pod, service: ServiceRules, attempt: PreemptAttempt) -> None:
        self.records.preempted(pod, service, attempt)
        self._decided(pod, service, attempt)

    def _decided(self, pod: Pod, service: ServiceRules, attempt: FilterAttempt | ScoreAttempt | PreemptAttempt) -> None:
        if self._traced is not None:
            self._traced.decided(pod, service, attempt)

    def ended(self, verb: str, result: CallResult, duration_ns: int) -> None:
        """Receive the result of a call, and how long it took."""
        self._metrics.called(verb, result, duration_ns)
        if self._traced is not None:
            self._traced.answered(verb, duration_ns)

    def bound(self, uid: str, node: str, at_seconds: float) -> None:
        self.records.bound(uid, node, at_seconds)

    def of_wakes(self) -> Condition[str]:
        """Return the condition that kube-scheduler cannot be woken."""

        def on_trouble(reason: str) -> None:
            self._said("warning", "kube-scheduler is not woken, refused Pods wait up to five minutes", reason=reason)

        return Condition(on_trouble, lambda _: self._said("info", "kube-scheduler is woken again"))

    def of_refreshes(self) -> LoadReports:
        """Return the callbacks of the refresher."""

        def on_measured(source: str, took_seconds: float) -> None:
            self._metrics.source_read(source, self._now_seconds(), took_seconds)

        def on_trouble(reason: str) -> None:
            self._said("warning", "a source of load does not answer, using the next one", reason=reason)

        def on_over(reason: str) -> None:
            self._said("info", "a source of load answers again", reason=reason)

        return LoadReports(on_measured, self._metrics.source_failed, on_trouble, on_over)
