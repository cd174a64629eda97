"""Composition of the controller's loops, for the controller process and for servers that reconcile themselves."""

from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import replace
from typing import Any

from webhook.adapters.clocks import WallClock
from webhook.app.cluster import Sources
from webhook.app.store import Ledger
from webhook.app.supervision import Loop
from webhook.app.telemetry import Telemetry
from webhook.app.telemetry.loop_reports import release_reports, service_status_reports, wake_reports
from webhook.controller import Controller, ControllerWaker, CounterResets, OverrideEnforcer, ServiceStatusWriter
from webhook.controller.pod_tracker import PodObserver
from webhook.controller.release.gated_pods import GatedPods
from webhook.controller.release.loop import ReleaseLoop
from webhook.controller.release.place_reporter import PlaceReporter
from webhook.controller.unjudged_pods import UnjudgedPods, UnjudgedReports
from webhook.core import overrides
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.reporting.status import WebhooksStatus
from webhook.fallback.breaker_ticker import BreakerTicker
from webhook.policy_in_force.webhook_configurations import WebhookConfigurationReports, WebhookConfigurationWriter
from webhook.ports import Clock, PodWatch, QueueIndex

_WALL = WallClock()
"""Overrides begin and end by the wall clock; the store's clock may differ from it."""


def controller(  # noqa: PLR0913  the parts of the process that it connects
    sources: Sources,
    watch: PodWatch,
    ledger: Ledger,
    queue: QueueIndex,
    clock: Clock,
    telemetry: Telemetry,
    *,
    ticks: bool = False,
    on_loss: Callable[[Callable[[], None]], None] = lambda _: None,
) -> Controller:
    """Return a controller, which runs while it leads.

    `ticks`: it also advances breakers, as a server does. `on_loss` receives what to call when the store may have lost
    data.
    """
    in_force = sources.policies.current
    reports, asked = telemetry.controller_reports(), _asked(sources)
    beside = [_override_enforcer(sources, ledger, telemetry, in_force).run]
    if ticks:
        beside.append(BreakerTicker(ledger, clock, in_force, telemetry.observer.transitioned).run)
    if sources.board is not None:
        beside.append(
            ServiceStatusWriter(sources.board, ledger.last_breaker, in_force, service_status_reports(telemetry)).run
        )
    if sources.webhooks is not None:
        reported, loaded = _webhook_reports(telemetry), sources.policies.loaded
        writer = WebhookConfigurationWriter(sources.webhooks, loaded, reported, writes=sources.writes_webhooks)
        beside.append(writer.run)
    if sources.held is not None:
        held = sources.held(reports=telemetry.watched("events"))
        beside.append(ControllerWaker(held, ledger, in_force, sources.namespaces, wake_reports(telemetry)).run)
    unjudged = UnjudgedReports(telemetry.metrics.ledger.unjudged, telemetry.observer.not_reviewed)
    observers: tuple[PodObserver, ...] = (*telemetry.pod_observers, UnjudgedPods(unjudged, _WALL.now_us))
    if sources.gates is not None:
        gated = GatedPods()
        observers = (*observers, gated)
        parts = gated, ledger, queue, sources.gates, in_force, release_reports(telemetry, sources.places)
        active, rate = sources.overrides.active, sources.release_rate
        releasing = ReleaseLoop(*parts, lambda: overrides.released_uids(active.current()), rate=rate)
        on_loss(releasing.lost)
        beside.append(_releasing(releasing, telemetry))
        if sources.places is not None:
            beside += [sources.places.run, PlaceReporter(releasing.queue, sources.places).run]
    return Controller(
        *(watch, ledger, ledger, clock, in_force, sources.namespaces, reports),
        resets=asked,
        extra_loops=beside,
        observers=observers,
    )


def _releasing(loop: ReleaseLoop, telemetry: Telemetry) -> Callable[[], Coroutine[Any, Any, None]]:
    """Return the loop that releases Pods; meanwhile, the status page shows its queues."""

    async def run() -> None:
        telemetry.queue = loop.queue
        try:
            await loop.run()
        finally:
            telemetry.queue = None

    return run


def manual_loops(sources: Sources, ledger: Ledger, telemetry: Telemetry) -> tuple[Loop, ...]:
    """Return the controller's loops that a server runs itself without a cluster."""
    in_force = sources.policies.current
    resets = CounterResets(ledger, in_force, _asked(sources))
    return resets.run, _override_enforcer(sources, ledger, telemetry, in_force).run


def _override_enforcer(
    sources: Sources, ledger: Ledger, telemetry: Telemetry, in_force: Callable[[], CompiledPolicy | None]
) -> OverrideEnforcer:
    def asked() -> dict[str, int]:
        return overrides.breaker_resets(sources.overrides.active.current().all(), _WALL.now_us())

    return OverrideEnforcer(ledger, ledger.last_breaker, in_force, asked, telemetry.observer.transitioned)


def _asked(sources: Sources) -> Callable[[], Iterable[overrides.WindowReset]]:
    """Return a function that returns the resets requested by live overrides."""
    return lambda: overrides.resets(sources.overrides.active.current().all(), _WALL.now_us())


def _webhook_reports(telemetry: Telemetry) -> WebhookConfigurationReports:
    """Return the callbacks for the comparison of the webhook configurations with the policy."""
    metrics, said = telemetry.metrics.webhooks, telemetry.logs.said
    metrics.begin()
    telemetry.webhooks = WebhooksStatus()
    reported: Sequence[str] | None = None

    def on_compared(outdated: Sequence[str]) -> None:
        nonlocal reported
        telemetry.webhooks = WebhooksStatus(_WALL.now_us(), outdated)
        if outdated != reported:
            reported = outdated
            telemetry.observer.webhooks_outdated(outdated)

    def on_written(changed: str) -> None:
        metrics.written()
        said("info", "webhook configuration written", changed=changed)

    def on_trouble(reason: str) -> None:
        metrics.failed()
        telemetry.webhooks = replace(telemetry.webhooks or WebhooksStatus(), error=reason)
        said("warning", "webhook configurations are not compared with the policy", reason=reason)

    def on_over(reason: str) -> None:
        said("info", "webhook configurations are compared with the policy again", reason=reason)

    def on_end() -> None:
        telemetry.webhooks = None
        metrics.end()

    return WebhookConfigurationReports(on_compared, on_written, on_trouble, on_over, on_end)
