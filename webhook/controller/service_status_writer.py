"""Keeps the board on which everybody sees how services stand: whoever leads writes what has changed, and no more."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from webhook.core.breaker import BreakerView
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.quota import CounterPlan
from webhook.core.reporting.service_status import service_status
from webhook.errors import ServiceStatusError, ServiceStatusNotInstalledError
from webhook.ports import ServiceStatusClient

_Statuses = dict[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class ServiceStatusReports:
    """Whom the board's keeper tells how it fares: that there is no board, and each trouble, once until it is over."""

    on_absent: Callable[[str], None]
    on_trouble: Callable[[str], None]
    on_over: Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ServiceStatusTiming:
    """All times and bounds in one place."""

    round_seconds: float = 1.0
    writes_max: int = 50
    """In one round; those that wait longest come first."""
    read_seconds: float = 300.0
    """Between two looks at what stands there, and for a board where there is none."""
    first_pause_seconds: float = 1.0
    longest_pause_seconds: float = 60.0
    """After a failure; between these the pauses double."""


class ServiceStatusWriter:
    """Made anew each time that one leads. `known` is how a breaker was heard of last, without asking anybody."""

    def __init__(
        self,
        board: ServiceStatusClient,
        known: Callable[[CounterPlan], BreakerView | None],
        policy: Callable[[], CompiledPolicy | None],
        reports: ServiceStatusReports,
        *,
        pace: ServiceStatusTiming = ServiceStatusTiming(),
    ) -> None:
        self._board = board
        self._known = known
        self._policy = policy
        self._reports = reports
        self._pace = pace
        self._stands: _Statuses = {}
        """What stands there, as far as is known."""
        self._read_at_seconds: float | None = None
        """By the loop's clock; None: it has to be read first."""
        self._waiting: dict[str, None] = {}
        """Services to be written or taken away, the longest waiting first."""
        self._made: dict[str, tuple[CounterPlan, BreakerView, Mapping[str, Any]]] = {}
        """What was made of which view, by service."""
        self._absent = self._trouble = ""
        self._failures = 0

    async def run(self) -> None:
        """Keep it up to date until cancelled."""
        while True:
            pause_seconds = await self.round()
            await asyncio.sleep(pause_seconds)

    async def round(self) -> float:
        """Bring it up to date, as far as one round goes; return how long to pause then, in seconds."""
        pace = self._pace
        try:
            await self._update()
        except ServiceStatusNotInstalledError as error:
            self._read_at_seconds = None
            if self._trouble or not self._absent:
                self._absent, self._trouble = str(error), ""  # nothing is written even though the trouble is over
                self._reports.on_absent(self._absent)
            return pace.read_seconds
        except ServiceStatusError as error:
            self._troubled(str(error))
            doubled_seconds = pace.first_pause_seconds * 2.0 ** min(self._failures, 30)
            self._failures += 1
            return max(error.retry_after_seconds, min(pace.longest_pause_seconds, doubled_seconds))
        self._over()
        self._absent, self._failures = "", 0
        return pace.round_seconds

    async def _update(self) -> None:
        compiled = self._policy()
        if compiled is None:
            return
        now_seconds = asyncio.get_running_loop().time()
        if self._read_at_seconds is None or now_seconds - self._read_at_seconds >= self._pace.read_seconds:
            self._stands = dict(await self._board.read())
            self._read_at_seconds = now_seconds
        wanted = self._wanted(compiled)
        changed = [service for service, status in wanted.items() if self._stands.get(service) != status]
        gone = [service for service in self._stands if service not in compiled.plans]
        self._waiting = {service: None for service in self._waiting if service in {*changed, *gone}}
        self._waiting.update(dict.fromkeys([*changed, *gone]))
        for service in tuple(self._waiting)[: self._pace.writes_max]:
            del self._waiting[service]  # one that fails waits behind the others then
            await self._put(service, wanted.get(service))

    def _wanted(self, compiled: CompiledPolicy) -> _Statuses:
        """Return what should stand there. Of a breaker that nobody has heard of yet, what stands there stays."""
        wanted: _Statuses = {}
        for service, plan in compiled.plans.items():
            view = self._known(plan) if plan.breaker is not None else None
            if plan.breaker is None:
                wanted[service] = {}
            elif view is not None:
                wanted[service] = self._status(plan, view)
        return wanted

    def _status(self, plan: CounterPlan, view: BreakerView) -> Mapping[str, Any]:
        """Make it anew only where something has changed: a thousand services are looked at each second."""
        made = self._made.get(plan.service)
        if made is None or made[0] is not plan or made[1] != view:
            made = self._made[plan.service] = plan, view, service_status(plan, view)
        return made[2]

    async def _put(self, service: str, status: Mapping[str, Any] | None) -> None:
        if status is None:
            await self._board.delete(service)
            del self._stands[service]
            self._made.pop(service, None)
        else:
            await self._board.write(service, status)
            self._stands[service] = status

    def _troubled(self, text: str) -> None:
        if text != self._trouble:
            self._over()
            self._trouble = text
            self._reports.on_trouble(text)

    def _over(self) -> None:
        if self._trouble:
            self._reports.on_over(self._trouble)
        self._trouble = ""
