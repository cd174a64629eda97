"""Signs that acknowledged writes may be lost, and this replica's statement that the store knows its admissions."""

import secrets
from collections.abc import Callable, Iterable, Mapping

import msgspec

from webhook.adapters.redis_store.keys import tag_of
from webhook.adapters.redis_store.plans import PreparedPlan
from webhook.adapters.redis_store.store_clock import StoreClock
from webhook.core.json_depth import UNREADABLE_JSON


class _KnownStore(msgspec.Struct, frozen=True):
    """What a detector knows, for another process: histories by node, and births as `LossDetector` has them."""

    processes: dict[str, str]
    births: dict[str, tuple[int, int]]


class LossDetector:
    """Calls `on_loss` at once. Times are the store's, in microseconds. `find_lane` returns the node of a tag."""

    def __init__(self, on_loss: Callable[[], None], find_lane: Callable[[str], str] = lambda _: "") -> None:
        self.on_loss = on_loss
        self._find_lane = find_lane
        self._histories: Mapping[str, str] = {}
        self._births: dict[str, tuple[int, int]] = {}
        """By home: when its counters were created, and until when known charges count."""

    def record_histories(self, histories: Mapping[str, str]) -> None:
        """Record the histories of the servers, by node. In a Cluster, a new primary has a new address.

        That of a node that does not answer is "", and remains what it was: nothing shows that its data is lost.
        """
        found = {lane: history or self._histories.get(lane, "") for lane, history in histories.items()}
        new = [lane for lane, history in found.items() if not self._is_known(lane, history)]
        is_first, self._histories = not self._histories, found
        if new and not is_first:
            self._report()

    def on_connected(self, lane: str, history: str) -> None:
        """Record the history behind a new connection, before the first call on it."""
        if self._histories and not self._is_known(lane, history):
            self._histories = {**self._histories, lane: history}
            self._report()

    def find_birth(self, home: str, now_us: int) -> int:
        """Return when a home's counters were created; 0 if they are not known or may have expired."""
        known_us, until_us = self._births.get(home, (0, 0))
        return known_us if now_us < until_us else 0

    def record_birth(self, home: str, born_us: int, at_us: int, counts_until_us: int | None) -> None:
        """Record when a home's counters were created (0: never), and until when the latest charge counts."""
        known_us, until_us = self._births.get(home, (born_us, 0))
        if born_us != known_us and at_us < until_us:
            until_us = 0
            self._report()
        if counts_until_us is not None and born_us:  # otherwise nothing was counted
            self._births[home] = born_us, max(until_us, counts_until_us)

    def keep(self, homes: Iterable[str]) -> None:
        """Forget all other homes."""
        kept = set(homes)
        self._births = {home: known for home, known in self._births.items() if home in kept}

    def describe(self) -> str:
        """Return a text by which another process notices a loss from now on; "" if nothing is known.

        It has one birth of each node, the one that counts longest: what empties a node re-creates all its counters.
        """
        if not self._histories and not self._births:
            return ""
        lasting: dict[str, str] = {}
        for home in self._births:
            lane = self._find_lane(tag_of(home))
            if self._births[home][1] > self._births.get(lasting.get(lane, ""), (0, 0))[1]:
                lasting[lane] = home
        births = {home: self._births[home] for home in lasting.values()}
        return msgspec.json.encode(_KnownStore(dict(self._histories), births)).decode()

    def resume(self, described: str) -> None:
        """Notice losses since another process described the store; a text that cannot be read changes nothing."""
        try:
            known = msgspec.json.decode(described, type=_KnownStore)
        except UNREADABLE_JSON:
            return
        self._histories, self._births = known.processes, known.births

    def _is_known(self, lane: str, history: str) -> bool:
        """Return whether a server's data has gone on: its history is the same, or forgets what it was promoted from."""
        known = self._histories.get(lane, "")
        return history in {known, known.partition(":")[0]}

    def _report(self) -> None:
        """Report one loss once, however many counters were re-created."""
        self._births.clear()
        self.on_loss()


class SettledMark:
    """`owes` returns whether the store lacks admissions under a tag; None in a process that admits no Pods."""

    def __init__(self, clock: StoreClock, losses: LossDetector) -> None:
        self._clock = clock
        self._losses = losses
        self.replica = secrets.token_hex(4)
        """This process's name among the replicas."""
        self.owes: Callable[[str], bool] | None = None

    def make_mark(self, planned: PreparedPlan) -> tuple[str, int, int] | bool:
        """Return the replica, the time, and when the counters that it knows were created; False if it owes anything.

        The time is never later than the store's: the answer that it is estimated from was sent before it was read.
        """
        if self.owes is None or self._clock.ahead_us is None or self.owes(planned.plan.tag):
            return False
        now_us = self._clock.earliest_us()
        return self.replica, now_us, self._losses.find_birth(planned.keys.home, now_us)
