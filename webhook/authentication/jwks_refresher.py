"""JwksRefresher: fetches keys periodically and for unknown ones, and keeps the last set for a time if that fails."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass

from webhook.authentication.jwks import list_issuers
from webhook.errors import UserError
from webhook.ports import Clock, TokenKey
from webhook.support.backoff import Backoff

_US = 1_000_000
_JITTER = 0.2
"""Part of a delay that is random: replicas must not fetch in step."""

Fetch = Callable[[], Awaitable[Mapping[str, TokenKey]]]
"""Returns keys by kid; UserError if that fails."""


@dataclass(frozen=True, slots=True)
class RefreshTiming:
    """Intervals, timeouts and limits of fetches."""

    interval_seconds: float = 60.0
    """A key that its issuer has withdrawn is accepted for up to this time."""
    fetch_seconds: float = 5.0
    first_pause_seconds: float = 1.0
    """Delay after a failure, doubled with each further one, up to the interval."""
    cool_down_seconds: float = 5.0
    """Unknown keys cause at most one fetch in this time."""
    patience_seconds: float = 1.0
    """Longest wait of a call with an unknown key: a webhook has one to three seconds in all."""
    waiting_max: int = 16
    """Calls that may wait at once, since each holds a connection; further ones are rejected at once."""


@dataclass(frozen=True, slots=True)
class RefreshReports:
    """Callbacks for fetches."""

    on_fetched: Callable[[], None] = lambda: None
    on_failed: Callable[[str], None] = lambda _: None
    on_ended: Callable[[str], None] = lambda _: None
    """Called when the last keys are dropped as too old; receives why there are no newer ones."""


@dataclass(frozen=True, slots=True)
class KeyClocks:
    """Keys expire by whichever clock is ahead: the steady one stops during suspend, the wall clock can be set."""

    steady: Clock
    wall: Clock


class JwksRefresher:
    """A KeySource. While no valid set can be fetched, the last one is used, up to `stale_max_seconds`.

    If it `binds`, its keys are for one issuer, which is unknown until the first fetch.
    """

    def __init__(
        self,
        name: str,
        fetch: Fetch,
        clocks: KeyClocks,
        *,
        binds: bool = False,
        stale_max_seconds: float = 3600,
        reports: RefreshReports = RefreshReports(),
        pace: RefreshTiming = RefreshTiming(),
    ) -> None:
        self.name = name
        self.claimed: Collection[str] = ()
        self.may_claim = binds
        self.trouble = "not fetched yet"
        self._fetch = fetch
        self._clock = clocks.steady
        self._clocks = (clocks.steady, clocks.wall)
        self._stale_max_us = int(stale_max_seconds * _US)
        self._reports = reports
        self._pace = pace
        # Three fetches within the maximum age, so that one failure does not expire the keys.
        self._interval_seconds = min(pace.interval_seconds, stale_max_seconds / 3)
        self._backoff = Backoff(pace.first_pause_seconds, self._interval_seconds, jitter=_JITTER)
        self._keys: Mapping[str, TokenKey] = {}
        self._generation = 1
        self._end_us: tuple[int, ...] = (0, 0)
        self._fetching: asyncio.Task[bool] | None = None
        self._next_look_us = 0
        self._waiting = 0

    @property
    def keys(self) -> Mapping[str, TokenKey]:
        self._expire()
        return self._keys

    @property
    def generation(self) -> int:
        self._expire()
        return self._generation

    def _expire(self) -> None:
        """Drop keys that are too old. Called on every access, since a timer may be late."""
        if self._keys and any(
            now_us >= end_us for now_us, end_us in zip(self._read_clocks_us(), self._end_us, strict=True)
        ):
            self._replace({})
            self.trouble = self.trouble or "the last ones are too old"
            self._reports.on_ended(self.trouble)

    def _read_clocks_us(self) -> tuple[int, ...]:
        return tuple(clock.now_us() for clock in self._clocks)

    async def run(self) -> None:
        """Fetch until cancelled."""
        try:
            while True:
                is_good = await asyncio.shield(self._fetch_once())
                await asyncio.sleep(self._choose_pause_seconds(is_good=is_good))
        finally:
            if self._fetching is not None:
                self._fetching.cancel()

    async def refetch(self) -> None:
        is_running = self._fetching is not None and not self._fetching.done()
        if self._waiting >= self._pace.waiting_max or not (is_running or self._clock.now_us() >= self._next_look_us):
            return
        self._waiting += 1
        try:
            await asyncio.wait([self._fetch_once()], timeout=self._pace.patience_seconds)
        finally:
            self._waiting -= 1

    def _fetch_once(self) -> asyncio.Task[bool]:
        """Return the running fetch, or start one."""
        if self._fetching is None or self._fetching.done():
            self._fetching = asyncio.create_task(self._run_fetch(), name=f"fetch-keys-{self.name}")
        return self._fetching

    async def _run_fetch(self) -> bool:
        asked_at_us = self._read_clocks_us()
        try:
            async with asyncio.timeout(self._pace.fetch_seconds):
                found = await self._fetch()
        except TimeoutError:
            self._on_failed(f"no answer within {self._pace.fetch_seconds:g} s")
            return False
        except UserError as error:
            self._on_failed(str(error))
            return False
        finally:
            self._next_look_us = self._clock.now_us() + int(self._pace.cool_down_seconds * _US)
        self.claimed, self.may_claim = {*self.claimed, *list_issuers(found)}, False
        self._end_us = tuple(at_us + self._stale_max_us for at_us in asked_at_us)
        self._replace(found)
        self.trouble = ""
        self._reports.on_fetched()
        return True

    def _on_failed(self, reason: str) -> None:
        self.trouble = reason
        self._reports.on_failed(reason)
        self._expire()

    def _replace(self, keys: Mapping[str, TokenKey]) -> None:
        if keys != self._keys:
            self._keys = keys
            self._generation += 1

    def _choose_pause_seconds(self, *, is_good: bool) -> float:
        """Return the delay until the next fetch."""
        if not is_good:
            return self._backoff.next_seconds()
        self._backoff.reset()
        return self._interval_seconds * random.uniform(1 - _JITTER, 1)  # noqa: S311  spreads load, guards nothing
