"""Status writer: keeps the status objects of one kind as they are wanted, and writes only changes."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from webhook.errors import StatusError, StatusNotInstalledError
from webhook.ports import StatusClient
from webhook.support.backoff import Backoff
from webhook.support.condition import Condition

_Obstacle = StatusError | StatusNotInstalledError


@dataclass(frozen=True, slots=True)
class StatusReports:
    """Callbacks: the kind is not installed; a failure began; it ended. Each once."""

    on_absent: Callable[[str], None]
    on_trouble: Callable[[str], None]
    on_over: Callable[[str], None]


@dataclass(frozen=True, slots=True)
class StatusTiming:
    """Intervals and bounds of the writer."""

    round_seconds: float = 1.0
    writes_max: int = 50
    """Writes in one round; the longest waiting objects are first."""
    read_seconds: float = 300.0
    """Interval between two reads of all objects, and between two attempts while the kind is not installed."""
    first_pause_seconds: float = 1.0
    pause_seconds_max: float = 60.0
    """Delays after failures: doubled from the first up to the longest."""


class StatusWriter:
    """Created for each term of leadership.

    `wanted` returns the status of each object by its name: None for one that is not known yet, which stays as it is.
    An object that is not among them is deleted. Without a result nothing is known yet.
    """

    def __init__(
        self,
        client: StatusClient,
        wanted: Callable[[], Mapping[str, Mapping[str, Any] | None] | None],
        reports: StatusReports,
        *,
        timing: StatusTiming = StatusTiming(),
    ) -> None:
        self._client = client
        self._find_wanted = wanted
        self._reports = reports
        self._timing = timing
        self._written: dict[str, Mapping[str, Any]] = {}
        """Status by name, as last read or written."""
        self._read_at_seconds: float | None = None
        """By the event loop's clock; None before the first read."""
        self._waiting: dict[str, None] = {}
        """Objects to be written or deleted, the longest waiting first."""
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
        except StatusNotInstalledError as error:
            self._read_at_seconds = None
            self._obstacle.enter(error)
            return self._timing.read_seconds
        except StatusError as error:
            self._obstacle.enter(error)
            return self._backoff.next_seconds(error.retry_after_seconds)
        self._obstacle.leave()
        self._backoff.reset()
        return self._timing.round_seconds

    async def _update(self) -> None:
        wanted = self._find_wanted()
        if wanted is None:
            return
        now_seconds = asyncio.get_running_loop().time()
        if self._read_at_seconds is None or now_seconds - self._read_at_seconds >= self._timing.read_seconds:
            self._written = dict(await self._client.read())
            self._read_at_seconds = now_seconds
        changed = [name for name, status in wanted.items() if status is not None and self._written.get(name) != status]
        gone = [name for name in self._written if name not in wanted]
        self._waiting = {name: None for name in self._waiting if name in {*changed, *gone}}
        self._waiting.update(dict.fromkeys([*changed, *gone]))
        for name in tuple(self._waiting)[: self._timing.writes_max]:
            del self._waiting[name]  # after a failure it waits behind the others
            await self._put(name, wanted.get(name))

    async def _put(self, name: str, status: Mapping[str, Any] | None) -> None:
        if status is None:
            await self._client.delete(name)
            del self._written[name]
        else:
            await self._client.write(name, status)
            self._written[name] = status

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
    return isinstance(obstacle, StatusNotInstalledError)


def _make_key(obstacle: _Obstacle) -> object:
    return _is_absence(obstacle) or str(obstacle)
