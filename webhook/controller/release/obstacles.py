"""Obstacles: until when refused Pods are passed. One moment of the store is one moment here: Pods keep their order."""

from webhook.controller.release.charging import find_obstacle
from webhook.core.quota import Holder, Receipt


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
