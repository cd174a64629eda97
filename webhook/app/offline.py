"""Runner of `review` and `replay`: the evaluation with a virtual clock and its own counters."""

import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from webhook.adapters.clocks import VirtualClock
from webhook.adapters.fixed import FixedNamespaces, FixedPolicy
from webhook.adapters.memory_slots import MemorySlots
from webhook.adapters.memory_store import MemoryStore
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.policy.model import LoadedPolicy
from webhook.errors import StoreFailure
from webhook.interceptor import Interceptor
from webhook.observers import Observers
from webhook.ports import StoreReports
from webhook.replay.engine import Replay
from webhook.replay.environment import load_replay_policy
from webhook.settings import MEMORY
from webhook.slots import SlotChooser

if TYPE_CHECKING:
    from webhook.adapters.redis_store import RedisStore

_STORE_SECONDS = 30.0  # no admission waits for the store here


class Offline:
    """Adapters of an evaluation over virtual time. Counters are in process, or in the Redis of a URL."""

    def __init__(
        self, loaded: LoadedPolicy, namespaces: Mapping[str, Mapping[str, str]] | None = None, store: str = MEMORY
    ) -> None:
        self.clock = VirtualClock()
        self.policies = FixedPolicy(loaded, self.clock)
        self.namespaces = FixedNamespaces(namespaces)
        self._redis = None if store == MEMORY else _open_redis(store, self.clock)
        self.store: RedisStore | MemoryStore = self._redis or MemoryStore(self.clock)
        self.slots = MemorySlots(self.clock)
        self.interceptor = Interceptor(
            self.policies, self.store, self.namespaces, Observers(), pod_slots=SlotChooser(self.slots, self.store)
        )

    @asynccontextmanager
    async def use_store(self) -> AsyncIterator[None]:
        """Use the store within this block, and delete its keys afterwards. StoreUnavailableError if Redis fails."""
        if self._redis is None:
            yield
            return
        try:
            await self._redis.ping()
            yield
            await self._redis.forget()
        finally:
            await self._redis.close()

    def find_policy(self, policy_hash: str = "") -> CompiledPolicy:
        """Return the policy of a decision, or the current one."""
        return self.policies.find_by_hash(policy_hash) or self.policies.get_current()


@asynccontextmanager
async def open_replay(policy: Path, folder: Path, store: str) -> AsyncIterator[Replay]:
    """Yield a replay of events from `folder`; UserError for a bad policy."""
    load = partial(load_replay_policy, is_shared=store != MEMORY)
    offline = Offline(load(policy), store=store)
    async with offline.use_store():
        yield Replay(offline, load, folder)


def _open_redis(url: str, clock: VirtualClock) -> "RedisStore":
    """Return a Redis store for a cluster with a random name, on virtual time."""
    from webhook.adapters import redis_store  # noqa: PLC0415  its library takes long to load

    return redis_store.RedisStore(
        redis_store.open_transport(url),
        f"replay-{secrets.token_hex(4)}",
        clock,
        StoreReports(_ignore, _ignore, _ignore),
        deadline_seconds=_STORE_SECONDS,
        time_us=clock.now_us,
    )


def _ignore(*_: StoreFailure) -> None:
    """Ignore a report: the command shows the error itself."""
