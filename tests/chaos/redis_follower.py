"""A thread that follows one Redis while it is entered, and records as a fault when it could not."""

import threading
from types import TracebackType
from typing import Self

from tests.chaos.record import Record
from tests.redis_servers import RedisServer


class RedisFollower:
    """Base of what follows a Redis through its restarts. `_FAULT`: the kind of the fault that it may tell of."""

    _FAULT: str

    def __init__(self, part: str, server: RedisServer, record: Record) -> None:
        self._part = part
        self._server = server
        self._record = record
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._follow, name=f"{self._FAULT} of {part}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._is_over.set()
        self._thread.join()

    def _follow(self) -> None:
        """Follow it until `_is_over`."""
        raise NotImplementedError

    def _tell(self, phase: str) -> None:
        if not self._is_over.is_set():
            self._record.add_fault(0, self._FAULT, (self._part,), phase)
