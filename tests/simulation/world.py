"""A world in virtual time: an agenda of acts, and messages that come late, twice, in another order, or never.

Whatever happens is drawn from one seeded generator: a seed is a whole history. An act that is due at the same moment as
others is done before or after them by a draw.
"""

from collections import deque
from collections.abc import Callable
from enum import StrEnum
from heapq import heappop, heappush
from random import Random
from typing import Any, ClassVar

SECOND_US = 1_000_000
BEGIN_US = 3_600_000 * SECOND_US
_TRACED = 40


class Fault(StrEnum):
    """What the scheduler may do to the parts."""

    DELAY = "delay"
    LOSS = "loss"
    DOUBLING = "doubling"
    CRASH = "crash"
    CLOCK = "clock"


ALL_FAULTS = frozenset(Fault)


class World:
    """The agenda of one history. Without a fault it makes the same draws, and does not act on them."""

    def __init__(self, seed: str, faults: frozenset[Fault] = ALL_FAULTS, unit_us: int = SECOND_US) -> None:
        self.random = Random(seed)  # noqa: S311  the same history again
        self.faults = faults
        self.now_us = BEGIN_US
        self.steps = 0
        self.trace: deque[tuple[int, str, tuple[Any, ...]]] = deque(maxlen=_TRACED)
        """The newest acts."""
        self._delays_us = tuple(unit_us * percent // 100 for percent in (0, 0, 0, 1, 5, 5, 20, 100, 300, 900))
        self._agenda: list[tuple[int, float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._numbers = 0

    def do_after(self, us: int, act: Callable[..., object], *arguments: object) -> None:
        """Let a part act after a time."""
        self._numbers += 1
        heappush(self._agenda, (self.now_us + us, self.random.random(), self._numbers, act, arguments))

    def send(self, act: Callable[..., object], *arguments: object) -> None:
        """Deliver a message: at once or late, so that others overtake it; twice; or never."""
        chance = self.random.random()
        late_us = self.draw_delay_us()
        if chance < 0.08 and Fault.LOSS in self.faults:
            return
        self.do_after(late_us, act, *arguments)
        if chance > 0.92:
            again_us = self.draw_delay_us()
            if Fault.DOUBLING in self.faults:
                self.do_after(again_us, act, *arguments)

    def draw_delay_us(self) -> int:
        late_us = self.random.choice(self._delays_us)
        return late_us if Fault.DELAY in self.faults else 0

    def strikes(self, fault: Fault, chance: float) -> bool:
        """Draw whether a fault happens now."""
        return self.random.random() < chance and fault in self.faults

    def step(self) -> bool:
        """Do the next act; False if there is none."""
        if not self._agenda:
            return False
        self.now_us, _, _, act, arguments = heappop(self._agenda)
        self.trace.append((self.now_us, act.__name__, arguments))
        self.steps += 1
        act(*arguments)
        return True

    def run_until(self, us: int) -> None:
        """Do all acts up to a moment."""
        while self._agenda and self._agenda[0][0] <= us:
            self.step()
        self.now_us = max(self.now_us, us)


class Simulation:
    """Parts in a world, beside models of what they must do. A part that does something else is an AssertionError."""

    name: ClassVar[str]
    unit_us: ClassVar[int] = SECOND_US
    """A usual delay of a message, by which longer and shorter ones are drawn."""

    def __init__(self, world: World) -> None:
        self.world = world

    def check(self) -> None:
        """Check what must hold after each step."""

    def settle(self) -> None:
        """End all faults, and check what must hold then."""
