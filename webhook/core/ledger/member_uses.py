"""Use of guarantees in windows: what each member of a pool had used of its own, by the newest snapshots."""

from collections.abc import Iterable, Mapping

from webhook.core.quota import CounterPlan, Use

_ENTRIES_MAX = 20_000
"""When exceeded, the oldest is dropped: its member counts as having used nothing."""


class MemberUses:
    """Use by tag, window and counter, and when it was known. Time is the replica's own, in microseconds."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int, str], tuple[int, int]] = {}

    def record(self, plan: CounterPlan, pool: Iterable[Use], now_us: int) -> None:
        """Record a member's own use in each limit of its pool; `pool` is of its snapshot."""
        uses = {(use.window, use.resource): use.guarantee for use in pool}
        for (_, window, limit), found in zip(plan.limits, plan.guarantees, strict=True):
            use = uses.get((window.name, limit.resource)) if found is not None and found.counter else None
            if found is not None and use is not None:
                key = plan.tag, window.seconds, found.counter
                self._known.pop(key, None)
                self._known[key] = use.used, now_us
        while len(self._known) > _ENTRIES_MAX:
            del self._known[next(iter(self._known))]

    def list_used(self, tag: str, seconds: int, counters: Iterable[str], since_us: int) -> Mapping[str, int]:
        """Return the use of these counters, as known at `since_us` or later: earlier ones have left the window."""
        found = ((counter, self._known.get((tag, seconds, counter))) for counter in counters)
        return {counter: known[0] for counter, known in found if known is not None and known[1] >= since_us}
