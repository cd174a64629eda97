"""Status page of a server: readiness, metrics and status on the plain port."""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial

import msgspec

from webhook.adapters.metrics import CONTENT_TYPE, OPENMETRICS
from webhook.app.client_identity import ClientAuthentication
from webhook.app.cluster import Sources
from webhook.app.serving_tls import ServingTls
from webhook.app.store import StoreBackend
from webhook.app.telemetry import Telemetry
from webhook.core import breaker
from webhook.core.quota import CounterPlan, ServiceSnapshot
from webhook.core.reporting.status import OverridesStatus, ServerStatus, render_server_status
from webhook.core.reporting.status_parts import DecisionsStatus, OverloadStatus, StoreStatus, count_guarded
from webhook.core.rollout.canary import BasePolicy
from webhook.errors import StoreUnavailableError
from webhook.fallback.overload_monitor import OverloadMonitor
from webhook.interceptor import Interceptor
from webhook.policy_in_force.shadow import Shadow
from webhook.ports import Clock, CounterStore
from webhook.support.process_memory import pause_collection
from webhook.support.single_flight import SingleFlight

SERVICES_PER_TURN_MAX = 50
"""Services read per turn of the event loop. More would delay reviews: docs/design/event-loop.md."""


class StatusPage:
    """Reads the state of the server's parts; changes none of them."""

    def __init__(  # noqa: PLR0913, PLR0917  it reads most parts of the server
        self,
        version: str,
        clock: Clock,
        sources: Sources,
        store: StoreBackend,
        interceptor: Interceptor,
        telemetry: Telemetry,
        tls: ServingTls,
        obstacles: Callable[[], list[str]],
        authentication: ClientAuthentication,
        decisions: Callable[[], DecisionsStatus],
        overload: OverloadMonitor,
        shadow: Shadow,
    ) -> None:
        self._version = version
        self._clock = clock
        self._sources = sources
        self._policies = sources.policies
        self._overrides = sources.overrides.active
        self._store = store
        self._interceptor = interceptor
        self._telemetry = telemetry
        self._metrics = telemetry.metrics
        self._tls = tls
        self._obstacles = obstacles
        self._authentication = authentication
        self._decisions = decisions
        self._overload = overload
        self._shadow = shadow
        self.metrics = {
            content_type: SingleFlight(partial(self._render, content_type)).get
            for content_type in (CONTENT_TYPE, OPENMETRICS)
        }
        """Renderers by content type."""
        self.status = SingleFlight(self._render_status).get

    def list_unready(self) -> list[str]:
        """Return the reasons why this server should get no requests."""
        of_tls = self._tls.list_unready()
        return [*self._obstacles(), *of_tls, *self._authentication.list_unready(), *self._sources.list_unready()]

    async def _render_status(self) -> bytes:
        compiled = self._sources.policies.get_current()
        status = ServerStatus(
            version=self._version,
            now_us=self._clock.now_us(),
            last_review_us=self._metrics.last_review_us,
            wall_us=time.time_ns() // 1000,
            source=self._sources.name,
            policy=compiled.loaded if compiled else None,
            loaded_at_us=self._policies.loaded_at_us,
            errors=self._policies.list_errors(),
            overrides=OverridesStatus(
                self._overrides.source, self._overrides.list_errors(), self._overrides.get_current().entries
            ),
            plans=compiled.plans if compiled else {},
            candidate=compiled.canary.services if isinstance(compiled, BasePolicy) else {},
            snapshots=await self._read_snapshots(),
            store=StoreStatus(
                self._store.kind,
                self._telemetry.store_trouble,
                self._telemetry.store_mode,
                await self._store.servers(),
                self._store.place,
            ),
            replicas=self._telemetry.replicas,
            watches=dict(self._telemetry.watches),
            certificates={name: int(at) * 1_000_000 for name, at in self._read_expiry_seconds().items()},
            files=dict(self._telemetry.files),
            client_identity=self._authentication.mode,
            not_ready=self.list_unready(),
            webhooks=self._telemetry.webhooks,
            decisions=self._decisions(),
            queues=queue.list_depths() if (queue := self._telemetry.queue) is not None else None,
            rollout=self._policies.rollout.view,
            shadow=self._shadow.totals if self._policies.active.get_shadow() is not None else None,
            overload=OverloadStatus(self._overload.causes, self._overload.since_us, self._overload.gated),
        )
        return await asyncio.to_thread(_encode_status, status)  # reviews must not wait for it

    async def _render(self, content_type: str) -> bytes:
        snapshots, compiled = await self._read_snapshots(), self._sources.policies.get_current()
        plans = compiled.plans.values() if compiled else ()
        by_team = frozenset(plan.service for plan in plans if plan.team_key)
        self._metrics.update(snapshots, count_guarded(plans, snapshots), by_team)
        self._metrics.set_certificates(self._read_expiry_seconds())
        lease = self._sources.lease
        self._metrics.health.update(ready=not self.list_unready(), leads=None if lease is None else not lease.obstacle)
        return await asyncio.to_thread(self._metrics.render, content_type)  # reviews must not wait for it

    def _read_expiry_seconds(self) -> dict[str, float]:
        return {**self._tls.read_expiry_seconds(), **self._authentication.read_expiry_seconds()}

    async def _read_snapshots(self) -> dict[str, ServiceSnapshot]:
        compiled = self._sources.policies.get_current()
        if compiled is None:
            return {}
        plans = {plan.service: plan for plan in compiled.list_breakers()}
        return await read_snapshots(self._store.counters, self._clock, plans)


def _encode_status(status: ServerStatus) -> bytes:
    with pause_collection():
        return msgspec.json.encode(render_server_status(status))


async def read_snapshots(
    counters: CounterStore, clock: Clock, plans: Mapping[str, CounterPlan]
) -> dict[str, ServiceSnapshot]:
    """Return the snapshots of services, read a few at a time. An unknown service has none."""
    found: dict[str, ServiceSnapshot] = {}
    listed = list(plans)
    for names in (
        listed[first : first + SERVICES_PER_TURN_MAX] for first in range(0, len(listed), SERVICES_PER_TURN_MAX)
    ):
        of_these = await asyncio.gather(*(_read_snapshot(counters, clock, plans[name]) for name in names))
        found.update((name, view) for name, view in zip(names, of_these, strict=True) if view is not None)
    return found


async def _read_snapshot(counters: CounterStore, clock: Clock, plan: CounterPlan) -> ServiceSnapshot | None:
    """Return a service's snapshot; if the store is unavailable, only the breaker as last known to this server."""
    with suppress(StoreUnavailableError):
        return await counters.snapshot(plan)
    view, now_us = counters.find_last_breaker(plan), clock.now_us()
    if view is None or plan.breaker is None:
        return None
    record = breaker.from_view(plan.service, plan.breaker, view)
    return ServiceSnapshot(now_us, breaker=breaker.view(record, plan.breaker, now_us), has_usage=False)
