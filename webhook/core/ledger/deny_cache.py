"""Refusals by quota that still hold: the same cost need not ask the store again, for a second at most.

A breaker must hear of each controller that is refused: it is answered from here only while the store has heard of it.
"""

from typing import NamedTuple

from msgspec.structs import replace

from webhook.core.breaker import State
from webhook.core.quota import Acquire, CounterPlan, DeniedBy, Receipt

LONGEST_US = 1_000_000
ENTRIES_MAX = 4096
"""Of one tag's refusals, and of one service's sources; beyond it all of them are forgotten, and asked for anew."""

_Asked = tuple[str, str, tuple[tuple[str, int], ...]]
"""Service, namespace where each counts apart, and the exact cost."""


class _Entry(NamedTuple):
    plan: CounterPlan
    until_us: int
    receipt: Receipt


class DenyCache:
    """By tag, because a refund to one service of a pool makes room for the others. Time is in microseconds."""

    def __init__(self) -> None:
        self._entries: dict[str, dict[_Asked, _Entry]] = {}
        self._heard: dict[tuple[str, str], dict[str, tuple[int, int]]] = {}
        """By tag and service: when each source's event was counted, and the breaker's generation then."""

    def __bool__(self) -> bool:
        """Say whether there is anything to be found."""
        return bool(self._entries)

    def find(self, request: Acquire, now_us: int) -> Receipt | None:
        """Return a refusal that holds for this Pod too, with the figures of then."""
        plan = request.plan
        entries = self._entries.get(plan.tag)
        if entries is None or request.resize_from is not None:
            return None
        entry = entries.get(_asked(request))
        if entry is None or entry.until_us <= now_us or entry.plan is not plan:
            return None
        return entry.receipt if request.peek or self._is_heard(request, entry.receipt, now_us) else None

    def keep(self, request: Acquire, receipt: Receipt, now_us: int) -> None:
        """Take the store's answer: an enforced refusal by quota holds until there could be room."""
        plan = request.plan
        if receipt.refused is not DeniedBy.QUOTA or request.peek or request.resize_from is not None:
            return
        if receipt.breaker is not None and receipt.breaker.state is not State.CLOSED:
            return  # the next Pod may hear of the breaker instead
        self._hear(request, receipt, now_us)
        until_us = now_us + LONGEST_US
        if receipt.free_at_us is not None:
            until_us = min(until_us, now_us + receipt.free_at_us - receipt.at_us)
        entries = self._entries.setdefault(plan.tag, {})
        if len(entries) >= ENTRIES_MAX:
            entries.clear()
        # Its transitions have happened once.
        entries[_asked(request)] = _Entry(plan, until_us, replace(receipt, transitions=()))

    def drop(self, tag: str) -> None:
        """Forget the refusals of a tag: there may be room again."""
        self._entries.pop(tag, None)

    def sweep(self, now_us: int) -> None:
        """Forget what no longer holds."""
        for tag, entries in tuple(self._entries.items()):
            live = {asked: entry for asked, entry in entries.items() if entry.until_us > now_us}
            if live:
                self._entries[tag] = live
            else:
                del self._entries[tag]

    def _hear(self, request: Acquire, receipt: Receipt, now_us: int) -> None:
        """Note a source's event as the breaker does: one that was heard within the span is not heard again."""
        rule = request.plan.breaker.quota if request.plan.breaker else None
        if rule is None or not rule.by_controller:
            return
        generation = _generation(receipt)
        heard = self._heard.setdefault(request.plan.key, {})
        at_us, of = heard.get(request.event_source, (0, generation))
        if of != generation or at_us <= now_us - rule.within_us:
            if len(heard) >= ENTRIES_MAX:
                heard.clear()
            heard[request.event_source] = (now_us, generation)

    def _is_heard(self, request: Acquire, receipt: Receipt, now_us: int) -> bool:
        rule = request.plan.breaker.quota if request.plan.breaker else None
        if rule is None:
            return True
        heard = self._heard.get(request.plan.key, {}).get(request.event_source)
        if heard is None or not rule.by_controller:
            return False
        at_us, generation = heard
        return generation == _generation(receipt) and at_us > now_us - rule.within_us


def _asked(request: Acquire) -> _Asked:
    scope = request.plan.scope_of(request.namespace)
    return request.plan.service, scope, tuple(sorted(request.cost.items()))


def _generation(receipt: Receipt) -> int:
    # A breaker that trips or closes has forgotten its events.
    return receipt.breaker.generation if receipt.breaker else 0
