"""A log of charges: which Pods are charged in Redis at each moment, and when they were charged."""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import redis

from tests.redis_servers import RedisServer
from webhook.adapters.redis_store.transport.script import SHARED

_FIELDS = SHARED["POD"]
_SCRIPT = f"""
local found = {{}}
for _, key in ipairs(redis.call('KEYS', ARGV[1])) do
  local _, pod = cmsgpack.unpack_one(redis.call('GET', key))
  if not pod[{_FIELDS.index("refunded") + 1}] then
    found[#found + 1] = string.match(key, '[^:]+$')
    found[#found + 1] = string.format('%.0f', pod[{_FIELDS.index("charged_at") + 1}])
  end
end
return found
"""
"""One step, so that a charge is seen whole or not at all."""
_PAUSE_SECONDS = 0.2


@dataclass(frozen=True)
class LedgerState:
    """The charged Pods of one tag at a moment, and the time of their charges in microseconds, by uid."""

    at: float
    tag: str
    charges: Mapping[str, int]


class LedgerLog:
    """The states of the ledgers of some tags, each as it changes, recorded while it is entered, and at its exit."""

    def __init__(self, server: RedisServer, *tags: str) -> None:
        self.states: list[LedgerState] = []
        self._last: dict[str, Mapping[str, int]] = {}
        self._server = server
        self._tags = tags
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._record, name="ledger-log", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        self._record_changes()  # of the last moment

    def _record(self) -> None:
        while not self._is_over.wait(_PAUSE_SECONDS):
            self._record_changes()

    def _record_changes(self) -> None:
        for tag in self._tags:
            try:
                found = self._server.cli("EVAL", _SCRIPT, 0, f"podgate:{{{tag}}}:v1:default:pod:*")
            except (redis.RedisError, OSError):
                continue  # it was killed, and starts again
            charges = dict(zip((uid.decode() for uid in found[::2]), map(int, found[1::2]), strict=True))
            if charges != self._last.get(tag):
                self._last[tag] = charges
                self.states.append(LedgerState(time.time(), tag, charges))
