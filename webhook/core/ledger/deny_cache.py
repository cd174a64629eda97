"""Cache of denials by quota, for at most one second: the same cost is denied again without asking the store.

A breaker must count each controller that is denied: the cache answers only for sources that the store has counted.
"""

from typing import NamedTuple

from msgspec.structs import replace

from webhook.core.breaker import State
from webhook.core.quota import Acquire, CounterPlan, DeniedBy, Receipt

DENIAL_US_MAX = 1_000_000
ENTRIES_MAX = 4096
"""Limit per tag for denials, and per service for sources; when exceeded, all of them are dropped."""

_Asked = tuple[str, str, tuple[tuple[str, int], ...]]
"""Service, namespace ("" where it counts as one), and the exact cost."""


class _Entry(NamedTuple):
    plan: CounterPlan
    until_us: int
    receipt: Receipt


class DenyCache:
    """Denials by tag, because a refund to one service of a pool frees capacity for the others. Time in microseconds."""

    def __init__(self) -> None:
        self.entries: dict[str, dict[_Asked, _Entry]] = {}
        """By tag; a tag without denials has no entry."""
        self._counted: dict[tuple[str, str], dict[str, tuple[int, int]]] = {}
        """By tag and service: when each source's event was counted, and the breaker's generation then."""

    def find(self, request: Acquire, now_us: int) -> Receipt | None:
        """Return a cached denial that applies to this Pod, with its original figures."""
        plan = request.plan
        entries = self.entries.get(plan.tag)
        if entries is None or request.resize_from is not None:
            return None
        entry = entries.get(_build_key(request))
        if entry is None or entry.until_us <= now_us or entry.plan is not plan:
            return None
        return entry.receipt if request.peek or self._is_counted(request, entry.receipt, now_us) else None

    def keep(self, request: Acquire, receipt: Receipt, now_us: int, late_us: int = 0) -> None:
        """Cache the store's answer: an enforced denial by quota holds until the Pod could fit.

        `late_us` is the age of the answer when it arrives.
        """
        plan = request.plan
        if receipt.refused is not DeniedBy.QUOTA or request.peek or request.resize_from is not None:
            return
        if receipt.breaker is not None and receipt.breaker.state is not State.CLOSED:
            return  # the breaker may deny the next Pod instead
        self._count_event(request, receipt, now_us)
        until_us = now_us + DENIAL_US_MAX
        if receipt.free_at_us is not None:
            until_us = min(until_us, now_us - late_us + receipt.free_at_us - receipt.at_us)
        entries = self.entries.setdefault(plan.tag, {})
        if len(entries) >= ENTRIES_MAX:
            entries.clear()
        # A cached denial must not report its transitions again.
        entries[_build_key(request)] = _Entry(plan, until_us, replace(receipt, transitions=()))

    def drop(self, tag: str) -> None:
        """Drop the denials of a tag: there may be room again."""
        self.entries.pop(tag, None)

    def sweep(self, now_us: int) -> None:
        """Drop expired denials."""
        for tag, entries in tuple(self.entries.items()):
            live = {asked: entry for asked, entry in entries.items() if entry.until_us > now_us}
            if live:
                self.entries[tag] = live
            else:
                del self.entries[tag]

    def _count_event(self, request: Acquire, receipt: Receipt, now_us: int) -> None:
        """Record a source's quota event as the breaker does: a source counts once within the span."""
        rule = request.plan.breaker.quota if request.plan.breaker else None
        if rule is None or not rule.by_controller:
            return
        generation = _read_generation(receipt)
        counted = self._counted.setdefault(request.plan.key, {})
        at_us, of = counted.get(request.event_source, (0, generation))
        if of != generation or at_us <= now_us - rule.within_us:
            if len(counted) >= ENTRIES_MAX:
                counted.clear()
            counted[request.event_source] = (now_us, generation)

    def _is_counted(self, request: Acquire, receipt: Receipt, now_us: int) -> bool:
        rule = request.plan.breaker.quota if request.plan.breaker else None
        if rule is None:
            return True
        counted = self._counted.get(request.plan.key, {}).get(request.event_source)
        if counted is None or not rule.by_controller:
            return False
        at_us, generation = counted
        return generation == _read_generation(receipt) and at_us > now_us - rule.within_us


def _build_key(request: Acquire) -> _Asked:
    scope = request.plan.scope_of(request)
    return request.plan.service, scope, tuple(sorted(request.cost.items()))


def _read_generation(receipt: Receipt) -> int:
    # A breaker that trips or closes has dropped its events.
    return receipt.breaker.generation if receipt.breaker else 0
