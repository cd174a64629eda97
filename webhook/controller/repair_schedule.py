"""RepairSchedule: which services or pools are due for a repair of live Pods, and what the former one suspected."""

from collections.abc import Collection

from webhook.controller.reports import ControllerTiming
from webhook.controller.watched_live_pods import WatchedLivePods
from webhook.ports import Clock

_SECOND_US = 1_000_000


class RepairSchedule:
    """The repairs of each name, independently of the others."""

    def __init__(self, watched: WatchedLivePods, clock: Clock, timing: ControllerTiming) -> None:
        self._watched = watched
        self._clock = clock
        self._timing = timing
        self._suspects: dict[str, set[str]] = {}
        """By name: uids that the store had in the round before, and the cluster had not, or with other amounts."""
        self._repaired: dict[str, tuple[int | None, int]] = {}
        """By name: the list that it was compared with, and when it is due again."""

    def keep(self, names: Collection[str]) -> None:
        """Forget all other names."""
        self._repaired = {name: repaired for name, repaired in self._repaired.items() if name in names}
        self._suspects = {name: uids for name, uids in self._suspects.items() if name in names}

    def is_due(self, name: str, listed: int, services: Collection[str]) -> bool:
        """Return whether to repair a name, whose Pods are those of `services`.

        `listed` is the turn after the newest complete list. It is compared once its Pods have been sent, and then
        periodically.
        """
        before, due_us = self._repaired.get(name, (None, 0))
        is_new = before != listed and self._watched.is_sent(listed, services)
        return is_new or (before is not None and self._clock.now_us() >= due_us)

    def record(self, name: str, listed: int | None, *, is_reached: bool) -> None:
        """Note that a name was compared with a list; it is due sooner if the store was not reached."""
        pause_seconds = self._timing.repair_seconds if is_reached else self._timing.retry_seconds_max
        self._repaired[name] = listed, self._clock.now_us() + round(pause_seconds * _SECOND_US)

    def confirm(self, name: str, suspects: set[str]) -> set[str]:
        """Return those of these uids that were suspects in the round before, too."""
        confirmed = suspects & self._suspects.get(name, set())
        self._suspects[name] = suspects
        return confirmed
