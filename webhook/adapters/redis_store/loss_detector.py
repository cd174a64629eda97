"""Notices that writes which were acknowledged may be lost: another process answers, or a counter began anew."""

from collections.abc import Callable, Iterable, Mapping


class LossDetector:
    """`on_loss` is told at once. Times are the store's, in microseconds."""

    def __init__(self, on_loss: Callable[[], None]) -> None:
        self.on_loss = on_loss
        self._run_ids: Mapping[str, str] = {}
        self._births: dict[str, tuple[int, int]] = {}
        """By home: when its counters were born, and until when what we know of counts."""

    def answered(self, run_ids: Mapping[str, str]) -> None:
        """Take who answers, by lane. On a Cluster the next primary has another address: it was not there before."""
        strangers = [lane for lane, run_id in run_ids.items() if self._run_ids.get(lane) != run_id]
        is_first, self._run_ids = not self._run_ids, dict(run_ids)
        if strangers and not is_first:
            self._tell()

    def connected(self, lane: str, run_id: str) -> None:
        """Take who has just taken a connection, before anything else is asked on it."""
        if self._run_ids and self._run_ids.get(lane) != run_id:
            self._run_ids = {**self._run_ids, lane: run_id}
            self._tell()

    def born_us(self, home: str, now_us: int) -> int:
        """Return when a home's counters were born as far as they should still be there, 0 where nothing is known."""
        known_us, until_us = self._births.get(home, (0, 0))
        return known_us if now_us < until_us else 0

    def seen(self, home: str, born_us: int, at_us: int, counts_until_us: int | None) -> None:
        """Take when a home's counters were born, 0 for not at all, and until when what was just charged counts."""
        known_us, until_us = self._births.get(home, (born_us, 0))
        if born_us != known_us and at_us < until_us:
            until_us = 0
            self._tell()
        if counts_until_us is not None and born_us:  # else nothing of it is limited, and nothing was counted
            self._births[home] = born_us, max(until_us, counts_until_us)

    def keep(self, homes: Iterable[str]) -> None:
        """Forget all others."""
        kept = set(homes)
        self._births = {home: known for home, known in self._births.items() if home in kept}

    def _tell(self) -> None:
        """Tell of one loss once, however much began anew with it."""
        self._births.clear()
        self.on_loss()
