"""Reports of background loops to log and metrics: releases, overload, woken controllers, status objects, rollout."""

import time
from collections.abc import Callable, Sequence

from webhook.app.telemetry import Telemetry
from webhook.controller import StatusReports, WakeReports
from webhook.controller.pod_waker import PodWakeReports, PodWakeResult
from webhook.controller.release.gated_pods import GatedPod
from webhook.controller.release.loop import ReleaseReports
from webhook.controller.rollout.reports import RolloutReports
from webhook.controller.shares.reports import EvictionCause, VariantReports
from webhook.core.overload import OverloadLimits
from webhook.core.pods.variant_pod import VariantPod
from webhook.core.quota import QueuePlan
from webhook.core.reporting.queue_document import QueueDepth, describe_expiry
from webhook.core.rollout.changes import RolloutChange
from webhook.fallback.overload_monitor import OverloadMonitor
from webhook.ports import Clock, PlaceEvents
from webhook.ports.traces import TracedPod
from webhook.settings import Settings
from webhook.support.condition import Condition


def build_overload_monitor(settings: Settings, telemetry: Telemetry, clock: Clock) -> OverloadMonitor:
    """Return a monitor that observes all reviews, and reports overloads to the other observers."""
    limits = OverloadLimits(
        round(settings.overload_p99_seconds * 1e9),
        settings.overload_failures,
        round(settings.overload_window_seconds * 1e6),
        settings.overload_minimum,
    )
    monitor = OverloadMonitor(limits, clock, lambda: telemetry.store_trouble, telemetry.observer.on_overload_changed)
    telemetry.observer.join(monitor)
    telemetry.observer.join(telemetry.metrics.health)
    return monitor


def build_wake_reports(telemetry: Telemetry) -> WakeReports:
    """Return the callbacks for waking controllers whose Pods were denied."""
    ledger, said, fails = telemetry.metrics.ledger, telemetry.logs.write_event, telemetry.metrics.failing_writes.set

    def on_trouble(reason: str) -> None:
        fails("controllers", fails=True)
        said("warning", "held controllers are not woken", reason=reason)

    def on_over(reason: str) -> None:
        fails("controllers", fails=False)
        said("info", "held controllers are woken again", reason=reason)

    return WakeReports(ledger.count_wake, ledger.set_held, on_trouble, on_over)


def build_pod_wake_reports(telemetry: Telemetry) -> PodWakeReports:
    """Return the callbacks for waking Pods that wait for a node."""
    ledger, said, fails = telemetry.metrics.ledger, telemetry.logs.write_event, telemetry.metrics.failing_writes.set
    for result in PodWakeResult:
        ledger.count_pod_wake(result, 0)

    def on_trouble(reason: str) -> None:
        fails("pods", fails=True)
        said("warning", "waiting Pods are not woken one by one", reason=reason)

    def on_over(reason: str) -> None:
        fails("pods", fails=False)
        said("info", "waiting Pods are woken one by one again", reason=reason)

    return PodWakeReports(ledger.count_pod_wake, on_trouble, on_over)


def build_variant_reports(telemetry: Telemetry, places: PlaceEvents | None) -> VariantReports:
    """Return the callbacks for Pods of variants; `places` sends Events about those that are evicted."""
    metrics, said, fails = telemetry.metrics.variants, telemetry.logs.write_event, telemetry.metrics.failing_writes.set

    def on_evicted(pod: VariantPod, cause: EvictionCause, note: str) -> None:
        metrics.count_eviction(pod.service, pod.variant)
        if places is not None:
            places.offer_evicted(pod.namespace, pod.name, pod.uid, cause, note)

    def on_trouble(reason: str) -> None:
        fails("evictions", fails=True)
        said("warning", "Pods are not evicted to get another variant", reason=reason)

    def on_over(reason: str) -> None:
        fails("evictions", fails=False)
        said("info", "Pods are evicted again to get another variant", reason=reason)

    return VariantReports(on_evicted, metrics.set_counts, telemetry.observer.on_transition, on_trouble, on_over)


def build_slot_trouble(telemetry: Telemetry) -> Condition[str]:
    """Return the condition that the API server does not tell a server which slots of workloads are free."""
    said = telemetry.logs.write_event
    return Condition(
        lambda reason: said("warning", "slots of new Pods are guessed", reason=reason),
        lambda reason: said("info", "slots of new Pods are no longer guessed", reason=reason),
        key=lambda _: "",
    )


def build_status_reports(telemetry: Telemetry, kind: str, objects: str) -> StatusReports:
    """Return the callbacks for failures to write status objects; a cluster without the kind is none."""
    said, fails = telemetry.logs.write_event, telemetry.metrics.failing_writes.set

    def on_absent(reason: str) -> None:
        fails(objects, fails=False)
        said("info", f"{kind} are not written", reason=reason)

    def on_trouble(reason: str) -> None:
        fails(objects, fails=True)
        said("warning", f"{kind} are not written", reason=reason)

    def on_over(reason: str) -> None:
        fails(objects, fails=False)
        said("info", f"{kind} are written again", reason=reason)

    return StatusReports(on_absent, on_trouble, on_over)


def build_rollout_reports(telemetry: Telemetry) -> RolloutReports:
    """Return the callbacks for the rollout of the policy."""
    metrics, said, fails = telemetry.metrics.leading, telemetry.logs.write_event, telemetry.metrics.failing_writes.set
    metrics.begin()

    def on_change(change: RolloutChange) -> None:
        metrics.count_change(change)
        telemetry.observer.on_rollout_advanced(change)

    def on_trouble(reason: str) -> None:
        fails("rollout", fails=True)
        said("warning", "the policy's rollout is not led", reason=reason)

    def on_over(reason: str) -> None:
        fails("rollout", fails=False)
        said("info", "the policy's rollout is led again", reason=reason)

    return RolloutReports(on_change, metrics.set_state, on_trouble, on_over, metrics.end)


_AGAIN_SECONDS = 600.0
"""How often the log repeats that Pods of a service cannot be released."""


def build_release_reports(
    telemetry: Telemetry, places: PlaceEvents | None = None, clock: Callable[[], float] = time.monotonic
) -> ReleaseReports:
    """Return the callbacks for Pods that leave a queue; `places` sends Events about those that expire."""
    queue, said = telemetry.metrics.queue, telemetry.logs.write_event

    def on_trouble(reason: str) -> None:
        said("warning", "waiting Pods are not released", reason=reason)

    def on_over(_: str) -> None:
        said("info", "waiting Pods are released again")

    # One line until a Pod is released: the reasons differ in details.
    failure = Condition(on_trouble, on_over, key=lambda _: "")
    failing = FailingLog(said, clock)

    def on_released(pod: GatedPod, seconds: float, latency_seconds: float) -> None:
        failure.leave()
        queue.count_release(pod.waiting.service, seconds, latency_seconds)
        if telemetry.traces is not None:
            traced = TracedPod(pod.waiting.service, pod.namespace, pod.name, pod.waiting.uid)
            telemetry.traces.on_released(traced, seconds)

    def on_expired(pod: GatedPod, rules: QueuePlan, seconds: float) -> None:
        queue.count_expiry(pod.waiting.service, seconds)
        if places is not None:
            note = describe_expiry(rules.max_wait_us, is_kept=rules.keeps_expired)
            places.offer_expired(pod.namespace, pod.name, pod.waiting.uid, note, is_kept=rules.keeps_expired)

    def on_depths(found: Sequence[QueueDepth]) -> None:
        queue.set_depths(found)
        failing.update(found)

    return ReleaseReports(on_released, on_expired, queue.set_waiting, on_depths, failure.enter)


class FailingLog:
    """Log lines about Pods whose release fails: at first, for each new reason, every ten minutes, and at the end."""

    def __init__(self, said: Callable[..., None], clock: Callable[[], float]) -> None:
        self._said = said
        self._clock = clock
        self._lines: dict[str, tuple[float, set[str]]] = {}
        """When the last line about a service was written, and the reasons that were logged."""

    def update(self, depths: Sequence[QueueDepth]) -> None:
        """Log what has changed in the depths of all queues; a process that no longer leads passes none."""
        now = self._clock()
        for depth in depths:
            service, reasons = depth.service, {failure.reason for failure in depth.failing}
            at, logged = self._lines.get(service, (-_AGAIN_SECONDS, set()))
            if reasons and (reasons - logged or now - at >= _AGAIN_SECONDS):
                for failure in depth.failing:
                    texts = {"service": service, "pods": failure.pods, "cause": failure.reason, "reason": failure.why}
                    self._said("warning", "waiting Pods cannot be released", **texts)
                self._lines[service] = now, logged | reasons
        failing = {depth.service for depth in depths if depth.failing}
        for service in self._lines.keys() - failing:
            del self._lines[service]
            if depths:
                self._said("info", "releases of the service's waiting Pods no longer fail", service=service)
