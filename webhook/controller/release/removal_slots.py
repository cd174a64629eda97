"""Slots of gate removals, shared by namespaces: a webhook that hangs in one of them does not take the others' slots."""

import asyncio
from collections import Counter, deque
from collections.abc import Callable

from webhook.controller.release.observed_gates import ObservedGates

_SLOTS = 32
_ANSWER_US = 2_000_000
"""How long after an answer a namespace may hold more than one slot."""
_HANG_US = 1_000_000
"""A namespace hangs after so long without an answer if the API server answers others: it gives most within a second."""
_LATE_HANG_US = 3_000_000
"""The same while others are answered late."""
_FORGET_US = 10_000_000
"""After so long without a call a namespace is as new: a Pod that waits is tried again sooner."""


class RemovalSlots:
    """Gates that are removed concurrently.

    - A namespace in which a call was just answered may hold as many slots as are free: alone half of them.
    - Any other one holds one slot, so that many may hang. Those whose last call had no answer share half of them.
    """

    def __init__(self, gates: ObservedGates, now_us: Callable[[], int]) -> None:
        self._gates = gates
        self._now_us = now_us
        self._held = Counter[str]()
        self._waiting: dict[str, deque[asyncio.Future[bool]]] = {}
        """By namespace, in the order of their turns."""
        self._answered_us: dict[str, int] = {}
        """When the last call in a namespace was answered, of those that hold slots."""
        self._begun_us: dict[str, int] = {}
        """Since when a namespace holds slots."""
        self._unanswered_us: dict[str, int] = {}
        """Since when, of namespaces in which the last call was not answered."""
        self._recovered_us = 0
        """As of the API server when they were last read."""

    def hangs(self, namespace: str) -> bool:
        """Return whether calls in a namespace wait for an answer, and none had one lately.

        While one hangs, a new one is taken to hang until its first answer: others do not wait to find that out.
        """
        self._forget_idle()
        if namespace in self._unanswered_us or self._hangs(namespace):
            return True
        is_new = bool(self._held[namespace]) and namespace not in self._answered_us
        return is_new and bool(self._unanswered_us or any(map(self._hangs, self._held)))

    def needs_ping(self) -> bool:
        """Return whether a namespace is silent, and it is not known whether the API server answers others."""
        now_us = self._now_us()
        return any(now_us - self._find_heard_us(name) >= _HANG_US and not self._hangs(name) for name in self._held)

    def is_busy(self, namespace: str) -> bool:
        """Return whether a call in a namespace runs or waits."""
        return bool(self._held[namespace]) or namespace in self._waiting

    def _forget_idle(self) -> None:
        """Forget namespaces without an answer in which no call runs or waits, and none did lately.

        What had no answer while the API server gave none says nothing of a namespace.
        """
        now_us = self._now_us()
        if self._gates.recovered_us != self._recovered_us:
            self._recovered_us = self._gates.recovered_us
            self._unanswered_us.clear()
        for namespace, at_us in (*self._unanswered_us.items(),):
            if 0 <= now_us - at_us < _FORGET_US:
                return  # the others are younger
            del self._unanswered_us[namespace]
            if self.is_busy(namespace):
                self._unanswered_us[namespace] = now_us

    def _hangs(self, namespace: str) -> bool:
        """Return whether a namespace holds slots, and gives no answer while the API server answers others."""
        if not self._held[namespace]:
            return False
        heard_us, gates = self._find_heard_us(namespace), self._gates
        is_late = gates.heard_us - max(heard_us, gates.recovered_us) >= _LATE_HANG_US
        return is_late or gates.answered_us - max(heard_us, gates.stalled_us) >= _HANG_US

    def _find_heard_us(self, namespace: str) -> int:
        """Return since when a namespace that holds slots is silent."""
        return max(self._begun_us[namespace], self._answered_us.get(namespace, 0))

    async def acquire(self, namespace: str) -> bool:
        """Wait for a slot; False if another call in the namespace had no answer meanwhile."""
        if namespace not in self._waiting and self._has_share(namespace):
            self._hold(namespace)
            return True
        turn: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(namespace, deque()).append(turn)
        return await turn

    def release(self, namespace: str, *, is_answered: bool) -> None:
        """Give a slot back, and to the next ones that wait. `is_answered`: the API server has done it or refused it."""
        self._held[namespace] -= 1
        if is_answered:
            self._unanswered_us.pop(namespace, None)
            self._answered_us[namespace] = self._now_us()
        else:
            self._unanswered_us.pop(namespace, None)
            self._unanswered_us[namespace] = self._now_us()
            for turn in self._waiting.pop(namespace, ()):
                if not turn.cancelled():
                    turn.set_result(False)
        while (following := self._find_next()) is not None:
            turns = self._waiting.pop(following)
            turn = turns.popleft()
            if turns:
                self._waiting[following] = turns  # after the others
            if not turn.cancelled():
                self._hold(following)
                turn.set_result(True)
        if not self._held[namespace]:
            del self._held[namespace]
            self._answered_us.pop(namespace, None)
            self._begun_us.pop(namespace, None)

    def _hold(self, namespace: str) -> None:
        self._held[namespace] += 1
        self._begun_us.setdefault(namespace, self._now_us())

    def _answers(self, namespace: str) -> bool:
        answered_us = self._answered_us.get(namespace)
        return answered_us is not None and self._now_us() - answered_us < _ANSWER_US

    def _has_share(self, namespace: str) -> bool:
        free = _SLOTS - self._held.total()
        if not self._answers(namespace):
            free = min(free if namespace not in self._unanswered_us else free - _SLOTS // 2, 1)
        return self._held[namespace] < free

    def _find_next(self) -> str | None:
        return next(filter(self._has_share, self._waiting), None)
