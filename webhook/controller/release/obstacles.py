"""Obstacles: until when refused Pods are passed. One moment of the store is one moment here: Pods keep their order."""

from webhook.core.breaker import State
from webhook.core.quota import DeniedBy, Holder, Receipt

RETRY_US = 1_000_000
"""Delay after a refusal whose end is unknown: by live Pods, probes in flight, or a store without an answer."""
_EARLY = 3
"""Calls take unequally long: the next one may reach the store as many times later than this one."""
_NEVER_US = 60_000_000
"""A limit was lowered below what the Pod needs: it can pass only under another policy."""


class Obstacles:
    """Translates the moments at which pools have room, however long their answers took."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, int]] = {}
        """By tag, the last such moment, by the store's clock and by the leader's."""

    def find(self, tag: str, receipt: Receipt, asked_us: int, now_us: int) -> tuple[int, Holder]:
        """As `find_obstacle`. A Pod for which there is room later than for another one is not due before that."""
        until_us, by = find_obstacle(receipt, asked_us, now_us)
        if by is not Holder.POOL or receipt.free_at_us is None:
            return until_us, by
        known_free_us, known_until_us = self._known.get(tag, (receipt.free_at_us, until_us))
        if receipt.free_at_us >= known_free_us:
            until_us = max(until_us, known_until_us)
        if receipt.free_at_us <= known_free_us:
            until_us = min(until_us, known_until_us)
        self._known[tag] = receipt.free_at_us, until_us
        return until_us, by


def find_obstacle(receipt: Receipt, asked_us: int, now_us: int) -> tuple[int, Holder]:
    """Return until when a refused Pod is passed, and whose limit refuses it.

    The store's moments count from the request: its clock may be another one in the next answer. The Pod is due earlier
    by some times as long as the answer took, so that no later call for another Pod finds the room first.
    """
    view, early_us = receipt.breaker, _EARLY * (now_us - asked_us)
    ahead_us = asked_us - early_us - receipt.at_us
    if receipt.refused is DeniedBy.BREAKER:
        is_open = view is not None and view.state in {State.OPEN, State.FORCED_OPEN}
        return (view.open_until_us + ahead_us if view is not None and is_open else now_us + RETRY_US), Holder.SERVICE
    # Room that a pool keeps for its members cannot be kept for a single Pod: no other member may wait for it.
    holders = {Holder.SERVICE if use.guarantee is not None else use.of for use in receipt.over}
    by = holders.pop() if len(holders) == 1 else Holder.SERVICE
    if receipt.free_at_us is None:
        return now_us + _NEVER_US, by
    ends_unknown = any(use.counts_live_pods for use in receipt.over)
    return max(receipt.free_at_us + ahead_us, now_us + RETRY_US if ends_unknown else 0), by
