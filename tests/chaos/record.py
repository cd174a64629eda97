"""The record of a run as it grows: lines of each kind, from any thread."""

import threading
import time
from collections.abc import Sequence
from typing import Any

from tests.chaos.history import (
    BEGAN,
    DONE,
    ENDED,
    EXITED,
    FAILED,
    REFUSED,
    UNKNOWN,
    Act,
    ChargeWrite,
    Fault,
    RedisSnapshot,
    Review,
    Status,
)


class Record:
    """What a run has seen so far. Lists only grow."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self.acts: list[Act] = []
        self.reviews: dict[str, Review] = {}
        self.charges: list[ChargeWrite] = []
        self.redis: list[RedisSnapshot] = []
        self.statuses: list[Status] = []
        self._lock = threading.Lock()

    def add_fault(self, number: int, kind: str, parts: Sequence[str], phase: str, **details: Any) -> None:
        assert phase in {BEGAN, ENDED, FAILED}
        with self._lock:
            self.faults.append(Fault(time.time(), number, kind, tuple(parts), phase, details))

    def add_act(self, act: Act) -> None:
        assert act.outcome in {DONE, REFUSED, UNKNOWN}
        with self._lock:
            self.acts.append(act)

    def add_exit(self, part: str, what: str) -> None:
        self.add_fault(0, EXITED, (part,), ENDED, what=what)
