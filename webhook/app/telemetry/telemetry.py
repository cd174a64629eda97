"""Telemetry of a process: metrics, logs and traces as one observer, and report callbacks for other parts."""

import time
from collections.abc import Callable, Mapping

from webhook.adapters.logs import Logs
from webhook.adapters.metrics import Metrics
from webhook.adapters.recorder import Recorder
from webhook.app.telemetry.traces import find_role, open_process_traces
from webhook.app.telemetry.watched_resources import WatchedResources
from webhook.authentication.jwks_refresher import RefreshReports
from webhook.authentication.reasons import REASONS
from webhook.controller import ControllerReports
from webhook.controller.release.queue_reader import QueueReader
from webhook.core.policy_fields import OutcomeSource
from webhook.core.quota import UnseenPod
from webhook.core.reporting.status import ReplicaAssignment, WebhooksStatus
from webhook.errors import StoreFailure
from webhook.fallback import FallbackReports
from webhook.observers import TurnObservers
from webhook.outcomes.aggregator import OutcomeReports
from webhook.ports import StoreReports, WatchReports
from webhook.ports.traces import TraceSampler, sample_none
from webhook.settings import ProcessSettings, Settings
from webhook.support.condition import Condition

_NAMES_SHOWN = 5


class Telemetry:
    """Metrics, logs, traces and recorder. Opened first and closed last, so that nothing goes unreported."""

    def __init__(self, settings: ProcessSettings, version: str) -> None:
        serving = settings if isinstance(settings, Settings) else None  # a controller reviews nothing
        self.metrics = Metrics(version, find_role(settings), REASONS)
        self.logs = Logs(sample_every=serving.log_sample if serving else 0)
        self.traces = open_process_traces(settings, version)
        self.pod_observers = () if self.traces is None else (self.traces.starts(),)
        if serving and self.traces is not None:
            self.metrics.watch_trace_parents(self.traces.count_sampled_parents)
        self.resources = WatchedResources(self.metrics, self.logs)
        self.watches = self.resources.statuses
        self.build_watch_reports, self.forget_watch = self.resources.build_reports, self.resources.forget
        self.files: dict[str, str] = {}
        """The current error of each watched file by name, "" where its content is in use."""
        self.store_trouble = ""
        """The current error of the shared store, "" without one."""
        self.store_mode = ""
        """The rules that services follow while the store is unavailable, "" if none does."""
        self.replicas = ReplicaAssignment()
        self.webhooks: WebhooksStatus | None = None
        """The result of the last comparison of the webhook configurations; None unless this process leads."""
        self.queue: QueueReader | None = None  # None unless this process leads
        self._recorder = self._open_recorder(serving) if serving else None
        self.observer = TurnObservers(self.metrics, self.logs, *filter(None, (self.traces, self._recorder)))
        self.observer.join(self.metrics.rollout)

    @property
    def sample(self) -> TraceSampler:
        """Decides which reviews are traced."""
        return sample_none if self.traces is None else self.traces.sample

    def _open_recorder(self, settings: Settings) -> Recorder | None:
        if settings.record is None:
            return None

        def on_trouble(reason: str) -> None:
            self.logs.write_event("error", "the recording is incomplete", file=str(settings.record), reason=reason)

        def on_over(reason: str) -> None:
            self.logs.write_event("info", "recording resumed", file=str(settings.record), reason=reason)

        limits = settings.record_sample, settings.record_max_bytes
        reports = WatchReports(lambda: None, on_trouble, on_over)
        recorder = Recorder(settings.record, *limits, reports, lambda: time.time_ns() // 1000)
        self.metrics.watch_record(recorder.counts)
        return recorder

    def watch_namespaces(self, labels: Callable[[str], Mapping[str, str] | None]) -> None:
        """Record the labels that `labels` returns for Namespaces, if reviews are recorded."""
        if self._recorder is not None:
            self._recorder.watch_namespaces(labels)

    def build_file_reports(self, what: str) -> Callable[[str | None], None]:
        """Return the callback for each reading of changed files: it receives the error, None for valid files."""
        is_start = True

        def read(wrong: str | None) -> None:
            nonlocal is_start
            self.files[what] = wrong or ""
            self.metrics.files.count_load(what, time.time(), is_good=wrong is None)
            if wrong is not None:
                self.logs.write_event("error", f"{what} rejected, the last good one stays in use", reason=wrong)
            elif not is_start:
                self.logs.write_event("info", f"{what} loaded")
            is_start = False

        return read

    def build_fetch_reports(self, source: str) -> RefreshReports:
        """Return the callbacks for key fetches from one source."""

        def log(level: str, message: str) -> Callable[[str], None]:
            return lambda reason: self.logs.write_event(level, message, source=source, reason=reason)

        log_failure = log("warning", "key fetch failed, using cached keys")
        failure = Condition(
            log_failure, log("info", "key fetch recovered"), on_changed=lambda _, reason: log_failure(reason)
        )

        def on_fetched() -> None:
            self.metrics.keys.count_fetch(source, time.time())
            failure.leave()

        def on_failed(reason: str) -> None:
            self.metrics.keys.count_failed_fetch(source)
            failure.enter(reason)

        return RefreshReports(on_fetched, on_failed, log("error", "keys expired, tokens signed with them are rejected"))

    def build_unusable_keys(self, source: str) -> Condition[str]:
        """Return the condition of faulty keys in a published key set: they are ignored."""

        def on_ignored(faults: str) -> None:
            self.logs.write_event("info", "unusable keys ignored", source=source, reason=faults)

        def usable(_: str) -> None:
            self.logs.write_event("info", "all keys are usable", source=source)

        return Condition(on_ignored, usable, on_changed=lambda _, faults: on_ignored(faults))

    def build_event_reports(self) -> WatchReports:
        """Return the callbacks for failures to write Events."""

        def on_trouble(reason: str) -> None:
            self.logs.write_event("warning", "Events are not written", reason=reason)

        def on_over(reason: str) -> None:
            self.logs.write_event("info", "Events are written again", reason=reason)

        return WatchReports(lambda: None, on_trouble, on_over)

    def build_store_reports(self) -> StoreReports:
        """Return the callbacks for failures of the shared store; each of its servers may fail on its own."""
        troubles: list[StoreFailure] = []

        def show() -> None:
            self.store_trouble = "; ".join(dict.fromkeys(map(str, troubles)))
            self.metrics.set_store_up(up=not troubles)

        def on_single(failure: StoreFailure) -> None:
            self.metrics.count_store_failure(failure)
            self.logs.write_event(
                "error", "store operation failed; applying whenStoreUnavailable or failureMode", reason=str(failure)
            )

        def on_trouble(failure: StoreFailure) -> None:
            self.metrics.count_store_failure(failure)
            troubles.append(failure)
            show()
            self.logs.write_event(
                "error",
                "the store does not respond; applying whenStoreUnavailable or failureMode",
                reason=str(failure),
            )

        def on_over(failure: StoreFailure) -> None:
            troubles.remove(failure)
            show()
            self.logs.write_event("info", "the store responds again", reason=str(failure))

        return StoreReports(lambda: None, on_trouble, on_over, on_single)

    def build_announcement_reports(self) -> StoreReports:
        """Return the callbacks for the subscription to breaker announcements."""

        def on_trouble(failure: StoreFailure) -> None:
            self.metrics.count_store_failure(failure)
            self.logs.write_event("warning", "breaker announcements failed, polling each second", reason=str(failure))

        def on_over(failure: StoreFailure) -> None:
            self.logs.write_event("info", "breaker announcements recovered", reason=str(failure))

        return StoreReports(lambda: None, on_trouble, on_over)

    def build_fallback_reports(self) -> FallbackReports:
        """Return the callbacks for the fallback and its reconciliation."""
        by_rule: dict[str, list[str]] = {}

        def on_fallback(service: str, rule: str, on: bool) -> None:  # noqa: FBT001  called with positional arguments
            self.metrics.set_fallback(service, rule, on=on)
            services = by_rule.setdefault(rule, [])
            if on:
                services.append(service)
            else:
                services.remove(service)
            self.store_mode = "; ".join(
                f"{rule}: {_format_names(names)}" for rule, names in sorted(by_rule.items()) if names
            )

        def on_loss() -> None:
            self.metrics.count_store_loss()
            self.logs.write_event(
                "error", "the store may have lost acknowledged writes; re-submitting the last minute's charges"
            )

        return FallbackReports(
            on_fallback,
            self.metrics.count_booked,
            self.metrics.count_dropped_booking,
            self.metrics.count_cached_denial,
            on_loss,
        )

    def build_controller_reports(self) -> ControllerReports:
        """Return the callbacks for the controller's findings."""
        ledger, outcomes = self.metrics.ledger, self.metrics.outcomes

        def on_refunded(service: str, pod: UnseenPod, cause: str) -> None:
            ledger.count_refund(service, cause)
            if self.traces is not None:
                self.traces.on_refunded(service, pod, cause)

        return ControllerReports(
            on_refunded=on_refunded,
            on_unproven=ledger.count_unproven,
            on_charged_afterwards=ledger.count_late_charge,
            on_raised=ledger.count_late_raise,
            on_label_ignored=ledger.count_ignored_label,
            on_drift=ledger.set_drift,
            on_pool_drift=ledger.set_pool_drift,
            on_watched=ledger.set_watched,
            on_started=lambda service, result: outcomes.on_outcomes_counted(service, OutcomeSource.POD_START, result),
            on_start_dropped=outcomes.on_outcomes_dropped,
            on_quota_events_suppressed=ledger.count_excused,
            on_transition=self.observer.on_transition,
        )

    def build_outcome_reports(self) -> OutcomeReports:
        """Return the callbacks for pushed outcomes."""
        outcomes, after = self.metrics.outcomes, self.observer.wrap_after_reviews
        handlers = outcomes.on_outcomes_counted, outcomes.on_outcomes_dropped, outcomes.on_outcomes_refused
        if self._recorder is None:
            return OutcomeReports(*handlers)
        return OutcomeReports(*handlers, on_outcomes_recorded=after(self._recorder.on_outcomes_recorded))

    def set_replicas(self, replicas: ReplicaAssignment) -> None:
        """Set the number of servers that share the limits while the store is unavailable."""
        if replicas != self.replicas:
            self.logs.write_event(
                "info",
                "replica count changed: limits are divided by it",
                replicas=replicas.count,
                ordinal=replicas.ordinal,
            )
        self.replicas = replicas
        self.metrics.set_replicas(replicas.count)

    def close(self) -> None:
        """Send what is still buffered; this takes as long as the receiver needs."""
        if self._recorder is not None:
            self._recorder.close()
        if self.traces is not None:
            self.traces.shutdown()


def _format_names(names: list[str]) -> str:
    shown = ", ".join(sorted(names)[:_NAMES_SHOWN])
    return f"{shown} and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else shown
