"""Slots of gate removals, shared by namespaces: a webhook that hangs in one of them does not take the others' slots."""

import asyncio
from collections import Counter, deque
from collections.abc import Callable

_SLOTS = 32
_ANSWER_US = 2_000_000
"""How long after an answer a namespace may hold more than one slot."""
_HANG_US = 1_000_000
"""After so long without an answer a namespace hangs: a slow API server gives most within a second."""
_FORGET_US = 10_000_000
"""After so long without a call a namespace is as new: a Pod that waits is tried again sooner."""


class RemovalSlots:
    """Gates that are removed concurrently.

    - A namespace in which a call was just answered may hold as many slots as are free: alone half of them.
    - Any other one holds one slot, so that many may hang. Those whose last call had no answer share half of them.
    """

    def __init__(self, now_us: Callable[[], int]) -> None:
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

    def hangs(self, namespace: str) -> bool:
        """Return whether calls in a namespace wait for an answer, and none had one lately.

        While one hangs, a new one is taken to hang until its first answer: others do not wait to find that out.
        """
        self._forget_idle()
        if namespace in self._unanswered_us:
            return True
        is_new = namespace not in self._answered_us
        some_hang = is_new and (self._unanswered_us or any(self._is_silent(other, _HANG_US) for other in self._held))
        return self._is_silent(namespace, 0 if some_hang else _HANG_US)

    def is_busy(self, namespace: str) -> bool:
        """Return whether a call in a namespace runs or waits."""
        return bool(self._held[namespace]) or namespace in self._waiting

    def _forget_idle(self) -> None:
        """Forget namespaces without an answer in which no call runs or waits, and none did lately."""
        now_us = self._now_us()
        for namespace, at_us in (*self._unanswered_us.items(),):
            if 0 <= now_us - at_us < _FORGET_US:
                return  # the others are younger
            del self._unanswered_us[namespace]
            if self.is_busy(namespace):
                self._unanswered_us[namespace] = now_us

    def _is_silent(self, namespace: str, silent_us: int) -> bool:
        """Return whether a namespace holds slots, and has given no answer for a while."""
        if not self._held[namespace]:
            return False
        heard_us = max(self._begun_us[namespace], self._answered_us.get(namespace, 0))
        return self._now_us() - heard_us >= silent_us

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
