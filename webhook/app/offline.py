"""What stands behind the ports of the offline commands: a clock that only they move, and counters in process."""

import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from webhook.adapters.clocks import VirtualClock
from webhook.adapters.fixed import FixedNamespaces, FixedPolicy
from webhook.adapters.memory_store import MemoryStore
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.policy.model import LoadedPolicy
from webhook.interceptor import Interceptor
from webhook.observers import Observers
from webhook.ports import WatchReports
from webhook.settings import MEMORY

if TYPE_CHECKING:
    from webhook.adapters.redis_store import RedisStore

_PATIENCE_SECONDS = 30.0  # nobody waits for an admission here


class Offline:
    """The evaluation over virtual time: for `replay` and `review`. Counters are in process, or in Redis by its URL."""

    def __init__(
        self, loaded: LoadedPolicy, namespaces: Mapping[str, Mapping[str, str]] | None = None, store: str = MEMORY
    ) -> None:
        self.clock = VirtualClock()
        self.policies = FixedPolicy(loaded, self.clock)
        self.namespaces = FixedNamespaces(namespaces)
        self._redis = None if store == MEMORY else _redis(store, self.clock)
        self.store: RedisStore | MemoryStore = self._redis or MemoryStore(self.clock)
        self.interceptor = Interceptor(self.policies, self.store, self.namespaces, Observers())

    @asynccontextmanager
    async def counting(self) -> AsyncIterator[None]:
        """Count within this block: nothing is left in Redis after it. StoreUnavailableError where there is none."""
        if self._redis is None:
            yield
            return
        try:
            await self._redis.ping()
            yield
            await self._redis.forget()
        finally:
            await self._redis.close()

    def compiled(self, policy_hash: str = "") -> CompiledPolicy:
        """Return the policy in force, or the one that a decision was made by, which may be a moment older."""
        return self.interceptor.compiled(self.policies.by_hash(policy_hash) or self.policies.loaded)


def _redis(url: str, clock: VirtualClock) -> "RedisStore":
    """Return the server's store under a name of its own and with a time that only this replay knows."""
    from webhook.adapters import redis_store  # noqa: PLC0415  its library takes long to load: only where it is wanted

    return redis_store.RedisStore(
        redis_store.open_transport(url),
        f"replay-{secrets.token_hex(4)}",
        clock,
        WatchReports(_nothing, _nothing, _nothing),
        deadline_seconds=_PATIENCE_SECONDS,
        time_us=clock.now_us,
    )


def _nothing(*_: str) -> None:
    """Say nothing: whoever replays sees the error itself."""
