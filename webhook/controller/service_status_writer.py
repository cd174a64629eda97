"""ServiceStatus writer: keeps one ServiceStatus object for each service, and writes only changes."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from webhook.core.breaker import BreakerView
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.quota import CounterPlan
from webhook.core.reporting.status_parts import render_service_status
from webhook.errors import ServiceStatusError, ServiceStatusNotInstalledError
from webhook.ports import ServiceStatusClient
from webhook.support.backoff import Backoff
from webhook.support.condition import Condition

_Statuses = dict[str, Mapping[str, Any]]
_Obstacle = ServiceStatusError | ServiceStatusNotInstalledError


@dataclass(frozen=True, slots=True)
class ServiceStatusReports:
    """Callbacks: the ServiceStatus kind is not installed; a failure began; it ended. Each once."""

    on_absent: Callable[[str], None]
    on_trouble: Callable[[str], None]
    on_over: Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ServiceStatusTiming:
    """Intervals and bounds of the writer."""

    round_seconds: float = 1.0
    writes_max: int = 50
    """Writes in one round; the longest waiting services are first."""
    read_seconds: float = 300.0
    """Interval between two reads of all objects, and between two attempts while the kind is not installed."""
    first_pause_seconds: float = 1.0
    pause_seconds_max: float = 60.0
    """Delays after failures: doubled from the first up to the longest."""


class ServiceStatusWriter:
    """Created for each term of leadership. `known` returns the last known view of a breaker, without a call."""

    def __init__(
        self,
        client: ServiceStatusClient,
        known: Callable[[CounterPlan], BreakerView | None],
        policy: Callable[[], CompiledPolicy | None],
        reports: ServiceStatusReports,
        *,
        timing: ServiceStatusTiming = ServiceStatusTiming(),
    ) -> None:
        self._client = client
        self._known = known
        self._policy = policy
        self._reports = reports
        self._timing = timing
        self._written: _Statuses = {}
        """Status by service, as last read or written."""
        self._read_at_seconds: float | None = None
        """By the event loop's clock; None before the first read."""
        self._waiting: dict[str, None] = {}
        """Services whose object is to be written or deleted, the longest waiting first."""
        self._made: dict[str, tuple[CounterPlan, BreakerView, Mapping[str, Any]]] = {}
        """Status made from a plan and view, by service."""
        self._obstacle = Condition[_Obstacle](
            self._on_entered, self._on_left, on_changed=self._on_changed, key=_make_key
        )
        self._backoff = Backoff(timing.first_pause_seconds, timing.pause_seconds_max, jitter=0)

    async def run(self) -> None:
        """Write changes until cancelled."""
        while True:
            pause_seconds = await self.round()
            await asyncio.sleep(pause_seconds)

    async def round(self) -> float:
        """Write the changes of one round; return the delay before the next, in seconds."""
        try:
            await self._update()
        except ServiceStatusNotInstalledError as error:
            self._read_at_seconds = None
            self._obstacle.enter(error)
            return self._timing.read_seconds
        except ServiceStatusError as error:
            self._obstacle.enter(error)
            return self._backoff.next_seconds(error.retry_after_seconds)
        self._obstacle.leave()
        self._backoff.reset()
        return self._timing.round_seconds

    async def _update(self) -> None:
        compiled = self._policy()
        if compiled is None:
            return
        now_seconds = asyncio.get_running_loop().time()
        if self._read_at_seconds is None or now_seconds - self._read_at_seconds >= self._timing.read_seconds:
            self._written = dict(await self._client.read())
            self._read_at_seconds = now_seconds
        wanted = self._compute_wanted(compiled)
        changed = [service for service, status in wanted.items() if self._written.get(service) != status]
        gone = [service for service in self._written if service not in compiled.plans]
        self._waiting = {service: None for service in self._waiting if service in {*changed, *gone}}
        self._waiting.update(dict.fromkeys([*changed, *gone]))
        for service in tuple(self._waiting)[: self._timing.writes_max]:
            del self._waiting[service]  # after a failure it waits behind the others
            await self._put(service, wanted.get(service))

    def _compute_wanted(self, compiled: CompiledPolicy) -> _Statuses:
        """Return the wanted status by service; without a service whose breaker is not known yet: its object stays."""
        wanted: _Statuses = {}
        for service, plan in compiled.plans.items():
            view = self._known(plan) if plan.breaker is not None else None
            if plan.breaker is None:
                wanted[service] = {}
            elif view is not None:
                wanted[service] = self._make_status(plan, view)
        return wanted

    def _make_status(self, plan: CounterPlan, view: BreakerView) -> Mapping[str, Any]:
        """Return the status, built again only after a change: all services are compared each second."""
        made = self._made.get(plan.service)
        if made is None or made[0] is not plan or made[1] != view:
            made = self._made[plan.service] = plan, view, render_service_status(plan, view)
        return made[2]

    async def _put(self, service: str, status: Mapping[str, Any] | None) -> None:
        if status is None:
            await self._client.delete(service)
            del self._written[service]
            self._made.pop(service, None)
        else:
            await self._client.write(service, status)
            self._written[service] = status

    def _on_entered(self, obstacle: _Obstacle) -> None:
        report = self._reports.on_absent if _is_absence(obstacle) else self._reports.on_trouble
        report(str(obstacle))

    def _on_left(self, obstacle: _Obstacle) -> None:
        if not _is_absence(obstacle):
            self._reports.on_over(str(obstacle))

    def _on_changed(self, former: _Obstacle, new: _Obstacle) -> None:
        if not _is_absence(new):  # without the kind nothing is written, although the failure has ended
            self._on_left(former)
        self._on_entered(new)


def _is_absence(obstacle: _Obstacle) -> bool:
    return isinstance(obstacle, ServiceStatusNotInstalledError)


def _make_key(obstacle: _Obstacle) -> object:
    return _is_absence(obstacle) or str(obstacle)
