"""What the plain port shows of a running server: readiness, metrics, status."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

import msgspec

from webhook.app.client_identity import ClientAuthentication
from webhook.app.cluster import Sources
from webhook.app.serving_tls import ServingTls
from webhook.app.store import StoreBackend
from webhook.app.telemetry import Telemetry
from webhook.core import breaker
from webhook.core.policy.model import LoadedPolicy
from webhook.core.quota import CounterPlan, ServiceSnapshot
from webhook.core.quota.open_breaker_limit import guarded
from webhook.core.reporting.status import OverridesStatus, ServerStatus, StoreStatus, status_document
from webhook.errors import StoreUnavailableError
from webhook.interceptor import Interceptor
from webhook.ports import Clock
from webhook.support.single_flight import Shared


class StatusPage:
    """Asks the parts how they stand; changes none of them."""

    def __init__(  # noqa: PLR0913, PLR0917  it looks at most of what there is
        self,
        version: str,
        clock: Clock,
        sources: Sources,
        store: StoreBackend,
        interceptor: Interceptor,
        telemetry: Telemetry,
        tls: ServingTls,
        obstacles: Callable[[], list[str]],
        door: ClientAuthentication,
    ) -> None:
        self._version = version
        self._clock = clock
        self._sources = sources
        self._policies = sources.policies
        self._overrides = sources.overrides.keeper
        self._store = store
        self._interceptor = interceptor
        self._telemetry = telemetry
        self._metrics = telemetry.metrics
        self._tls = tls
        self._obstacles = obstacles
        self._door = door
        self.metrics, self.status = Shared(self._render).get, Shared(self._status).get

    def unready(self) -> list[str]:
        """Return why this server should get no calls."""
        reasons = [*self._obstacles(), *self._tls.unready(), *self._door.unready()]
        if self._policies.current() is None:
            reasons.append("no good policy: " + "; ".join(self._policies.last_errors()))
        return reasons

    async def _status(self) -> bytes:
        compiled = self._sources.compiled()
        document = status_document(
            ServerStatus(
                version=self._version,
                now_us=self._clock.now_us(),
                wall_us=time.time_ns() // 1000,
                source=self._sources.name,
                policy=LoadedPolicy(compiled.policy, compiled.hash) if compiled else None,
                loaded_at_us=self._policies.loaded_at_us,
                errors=self._policies.last_errors(),
                overrides=OverridesStatus(
                    self._overrides.source, self._overrides.last_errors(), self._overrides.current().entries
                ),
                plans=compiled.plans if compiled else {},
                looks=await self._looks(),
                store=StoreStatus(self._store.kind, self._telemetry.store_trouble, self._telemetry.store_mode),
                replicas=self._telemetry.replicas,
                watches=self._telemetry.watches,
                certificates={name: int(at) * 1_000_000 for name, at in self._certificates().items()},
                files=self._telemetry.files,
                client_identity=self._door.mode,
                not_ready=self.unready(),
            )
        )
        return msgspec.json.encode(document)

    async def _render(self) -> bytes:
        looks, compiled = await self._looks(), self._sources.compiled()
        self._metrics.update(looks, guarded(compiled.plans.values(), looks) if compiled else None)
        self._metrics.certificates(self._certificates())
        return await asyncio.to_thread(self._metrics.render)  # no review should wait for it

    def _certificates(self) -> dict[str, float]:
        return {**self._tls.expiry_seconds(), **self._door.expiry_seconds()}

    async def _looks(self) -> dict[str, ServiceSnapshot]:
        compiled = self._sources.compiled()
        if compiled is None:
            return {}
        looks = await asyncio.gather(*(self._look(plan) for plan in compiled.plans.values()))
        return {name: look for name, look in zip(compiled.plans, looks, strict=True) if look is not None}

    async def _look(self, plan: CounterPlan) -> ServiceSnapshot | None:
        """Return how a service stands; of one that the store does not show, the breaker by which it is judged here."""
        with suppress(StoreUnavailableError):
            return await self._store.counters.snapshot(plan)
        view, now_us = self._store.counters.last_breaker(plan), self._clock.now_us()
        if view is None or plan.breaker is None:
            return None
        record = breaker.from_view(plan.service, plan.breaker, view)
        return ServiceSnapshot(now_us, breaker=breaker.view(record, plan.breaker, now_us), is_told=False)
