"""The clock of a store in a world, which is stepped, and calls of a store in memory, none of which waits."""

from collections.abc import Coroutine
from typing import Any, TypeVar

from tests.contract.witness import Wall
from tests.simulation.world import SECOND_US, Fault, World

_T = TypeVar("_T")
_STEPS_US = (1_000, 1_999_999, 2_000_001, 3 * SECOND_US, 40 * SECOND_US)


class StoreClock:
    """The world's time with the steps of one machine's clock."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.forward_us = self.back_us = 0

    def now_us(self) -> int:
        return self._world.now_us + self.forward_us - self.back_us

    def wall(self) -> Wall:
        return Wall(self._world.now_us, self.now_us(), self.forward_us, self.back_us)

    def step(self) -> None:
        """Step forward or back, if the scheduler may step clocks."""
        us, is_forward = self._world.random.choice(_STEPS_US), self._world.random.random() < 0.5
        if Fault.CLOCK not in self._world.faults:
            return
        if is_forward:
            self.forward_us += us
        else:
            self.back_us += us


def call(operation: Coroutine[Any, Any, _T]) -> _T:
    """Return the answer of a store in memory: its operations never wait."""
    try:
        operation.send(None)
    except StopIteration as answered:
        answer: _T = answered.value
        return answer
    raise AssertionError("an operation of a store in memory waits")
