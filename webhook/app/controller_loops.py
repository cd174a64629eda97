"""Composition of the controller's loops, for the controller process and for servers that reconcile themselves."""

from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from webhook.adapters.clocks import WallClock
from webhook.app.cluster import Sources
from webhook.app.rollout import build_rollout_loops, find_candidate
from webhook.app.store import Ledger
from webhook.app.supervision import Loop
from webhook.app.telemetry import Telemetry
from webhook.app.telemetry.loop_reports import (
    build_pod_wake_reports,
    build_release_reports,
    build_status_reports,
    build_variant_reports,
    build_wake_reports,
)
from webhook.controller import (
    Controller,
    ControllerWaker,
    CounterResets,
    OverrideEnforcer,
    ServiceStatusWriter,
)
from webhook.controller.pod_lifecycle import PodObserver
from webhook.controller.pod_waker import PodWaker
from webhook.controller.release.gated_groups import find_no_size
from webhook.controller.release.gated_pods import GatedPods
from webhook.controller.release.group_sizes import GroupSizes
from webhook.controller.release.loop import ReleaseLoop
from webhook.controller.release.place_reporter import PlaceReporter
from webhook.controller.release.released_groups import ReleasedGroups, build_group_facts
from webhook.controller.rollout.pod_figures import PodFiguresObserver
from webhook.controller.shares.slot_reconciler import SlotReconciler
from webhook.controller.shares.variant_loop import VariantLoop
from webhook.controller.shares.variant_pods import VariantPods
from webhook.controller.unjudged_pods import UnjudgedPods, UnjudgedReports
from webhook.core import overrides
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.reporting.status import WebhooksStatus
from webhook.fallback.breaker_ticker import BreakerTicker
from webhook.policy_in_force.webhook_configurations import WebhookConfigurationReports, WebhookConfigurationWriter
from webhook.ports import Clock, PodEvictions, PodWatch, QueueIndex, RolloutCounts, SlotStore

_LeaderLoop = Callable[[], Coroutine[Any, Any, None]]
_WALL = WallClock()
"""Overrides begin and end by the wall clock; the store's clock may differ from it."""


def build_controller(  # noqa: PLR0913  the parts of the process that it connects
    sources: Sources,
    watch: PodWatch,
    ledger: Ledger,
    queue: QueueIndex,
    counts: RolloutCounts,
    clock: Clock,
    telemetry: Telemetry,
    *,
    slots: SlotStore | None = None,
    ticks: bool = False,
    on_loss: Callable[[Callable[[], None]], None] = lambda _: None,
) -> Controller:
    """Return a controller, which runs while it leads.

    `counts`: decisions by policy. `slots`: slots of workloads, of services with shares. `ticks`: it also advances
    breakers, as a server does. `on_loss` receives each function to call when the store may have lost data.
    """
    in_force = sources.policies.get_current
    reports, asked = telemetry.build_controller_reports(), _build_reset_finder(sources)
    beside = [_build_override_enforcer(sources, ledger, telemetry, in_force).run]
    if ticks:
        beside.append(BreakerTicker(ledger, clock, in_force, telemetry.observer.on_transition).run)
    beside += _build_object_loops(sources, ledger, telemetry)
    if sources.held is not None:
        held = sources.held(reports=telemetry.build_watch_reports("events")), ledger, clock
        beside.append(ControllerWaker(*held, in_force, sources.namespaces, build_wake_reports(telemetry)).run)
    if sources.wakes is not None:
        wakes = sources.wakes(reports=telemetry.build_watch_reports("wakes"))
        beside.append(PodWaker(wakes, _WALL, build_pod_wake_reports(telemetry)).run)
    unjudged = UnjudgedReports(telemetry.metrics.ledger.count_unjudged, telemetry.observer.on_not_reviewed)
    observers: tuple[PodObserver, ...] = (*telemetry.pod_observers, UnjudgedPods(unjudged, _WALL.now_us))
    if sources.rollout is not None:
        observers = (*observers, figures := PodFiguresObserver(_WALL.now_us))
        beside += build_rollout_loops(sources, sources.rollout, figures, counts, telemetry)
    if sources.evictions is not None:
        variants, loops = _build_variant_loops(sources, sources.evictions, ledger, slots, telemetry, on_loss)
        observers, beside = (*observers, variants), [*beside, *loops]
    if sources.gates is not None:
        gated, released = GatedPods(), ReleasedGroups()
        observers = (*observers, gated, released)
        parts = gated, ledger, queue, sources.gates, in_force, build_release_reports(telemetry, sources.places)
        sizes = None if sources.groups is None else GroupSizes(sources.groups, _WALL)
        facts = build_group_facts(released, find_no_size if sizes is None else sizes.find)
        wanted = partial(_list_released_uids, sources)
        releasing = ReleaseLoop(*parts, wanted, rate=sources.release_rate, clock=clock, groups=facts)
        if sizes is not None:
            beside.append(partial(sizes.run, releasing.groups.list_keys))
        on_loss(releasing.on_lost)
        beside.append(_build_release_loop(releasing, telemetry))
        if sources.places is not None:
            beside += [sources.places.run, PlaceReporter(releasing.queue, sources.places).run]
    controller = Controller(
        *(watch, ledger, ledger, clock, in_force, sources.namespaces, reports),
        resets=asked,
        extra_loops=beside,
        observers=observers,
    )
    on_loss(controller.on_lost)
    return controller


def _build_variant_loops(
    sources: Sources,
    evictions: PodEvictions,
    ledger: Ledger,
    slots: SlotStore | None,
    telemetry: Telemetry,
    on_loss: Callable[[Callable[[], None]], None],
) -> tuple[VariantPods, list[_LeaderLoop]]:
    """Return the observer of Pods of variants, and the loops that act on what it has seen."""
    in_force, owners = sources.policies.get_current, sources.slot_owners
    reconciler = None if slots is None or owners is None else SlotReconciler(slots, owners, _WALL, in_force)
    pods, reports = VariantPods(reconciler, _WALL.now_us), build_variant_reports(telemetry, sources.places)
    acting = VariantLoop(pods, ledger, evictions, _WALL, in_force, reports, owners=owners)
    if reconciler is None:
        return pods, [acting.run]
    on_loss(reconciler.on_lost)
    return pods, [acting.run, reconciler.run]


def _list_released_uids(sources: Sources) -> Collection[str]:
    """Return the uids of the Pods that an operator releases past every limit."""
    return overrides.list_released_uids(sources.overrides.active.get_current())


def _build_object_loops(sources: Sources, ledger: Ledger, telemetry: Telemetry) -> Iterator[_LeaderLoop]:
    """Yield the loops that write ServiceStatuses and webhook configurations."""
    if sources.board is not None:
        reports = build_status_reports(telemetry, "ServiceStatuses", "servicestatuses")
        policy = sources.policies.get_current
        yield ServiceStatusWriter(sources.board, ledger.find_last_breaker, policy, reports).run
    if sources.webhooks is not None:
        yield WebhookConfigurationWriter(
            sources.webhooks,
            sources.policies.get_loaded,
            _build_webhook_reports(telemetry),
            writes=sources.writes_webhooks,
            candidate=lambda: find_candidate(sources),
        ).run


def _build_release_loop(loop: ReleaseLoop, telemetry: Telemetry) -> Callable[[], Coroutine[Any, Any, None]]:
    """Return the loop that releases Pods; meanwhile, the status page shows its queues."""

    async def run() -> None:
        telemetry.queue = loop.queue
        try:
            await loop.run()
        finally:
            telemetry.queue = None

    return run


def build_manual_loops(sources: Sources, ledger: Ledger, telemetry: Telemetry) -> tuple[Loop, ...]:
    """Return the controller's loops that a server runs itself without a cluster."""
    in_force = sources.policies.get_current
    resets = CounterResets(ledger, in_force, _build_reset_finder(sources))
    return resets.run, _build_override_enforcer(sources, ledger, telemetry, in_force).run


def _build_override_enforcer(
    sources: Sources, ledger: Ledger, telemetry: Telemetry, in_force: Callable[[], CompiledPolicy | None]
) -> OverrideEnforcer:
    def asked() -> dict[str, int]:
        return overrides.list_breaker_resets(sources.overrides.active.get_current().list_all(), _WALL.now_us())

    return OverrideEnforcer(ledger, ledger.find_last_breaker, in_force, asked, telemetry.observer.on_transition)


def _build_reset_finder(sources: Sources) -> Callable[[], Iterable[overrides.WindowReset]]:
    """Return a function that returns the resets requested by live overrides."""
    return lambda: overrides.list_window_resets(sources.overrides.active.get_current().list_all(), _WALL.now_us())


def _build_webhook_reports(telemetry: Telemetry) -> WebhookConfigurationReports:
    """Return the callbacks for the comparison of the webhook configurations with the policy."""
    metrics, said = telemetry.metrics.webhooks, telemetry.logs.write_event
    metrics.begin()
    telemetry.webhooks = WebhooksStatus()
    reported: Sequence[str] | None = None

    def on_compared(outdated: Sequence[str]) -> None:
        nonlocal reported
        telemetry.webhooks = WebhooksStatus(_WALL.now_us(), outdated)
        if outdated != reported:
            reported = outdated
            telemetry.observer.on_webhooks_outdated(outdated)

    def on_written(changed: str) -> None:
        metrics.count_written()
        said("info", "webhook configuration written", changed=changed)

    def on_trouble(reason: str) -> None:
        metrics.on_creation_failed()
        telemetry.webhooks = replace(telemetry.webhooks or WebhooksStatus(), error=reason)
        said("warning", "webhook configurations are not compared with the policy", reason=reason)

    def on_over(reason: str) -> None:
        said("info", "webhook configurations are compared with the policy again", reason=reason)

    def on_end() -> None:
        telemetry.webhooks = None
        metrics.end()

    return WebhookConfigurationReports(on_compared, on_written, on_trouble, on_over, on_end)
