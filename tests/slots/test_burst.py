"""A burst of Pods of one Deployment: two servers claim from one Redis, which loses everything in between."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from tests.contract.counter_store import DEADLINE_SECONDS
from tests.core.reviewing import policy_of
from tests.core.shares.policies import SERVICES
from tests.redis_servers import RedisServer
from tests.timeouts import HANG_SECONDS
from webhook.adapters.clocks import SystemClock
from webhook.adapters.redis_store import RedisStore, open_transport
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.shares import PodSlot, SlotOwner
from webhook.ports import HeldSlot, OwnedPods, StoreReports
from webhook.slots import SlotChooser, slot_numbers

pytest_plugins = ("tests.redis_servers.fixtures",)

COMPILED = CompiledPolicy(policy_of(SERVICES))
SHARES, PLAN = COMPILED.shares["web"], COMPILED.plans["web"]
OWNER = SlotOwner("ReplicaSet", "shop", "web-1", "rs", ("pod-template-hash", "1"))
PODS, AT_ONCE = 1000, 50
"""AT_ONCE: Pods that the controller creates together."""


class Deployment:
    """A `ports.SlotOwners` of the only ReplicaSet, and its Pods."""

    def __init__(self, servers: list[SlotChooser]) -> None:
        self.servers = servers
        self.pods: list[PodSlot] = []
        self.lists = 0

    async def read_replicas(self, _: SlotOwner) -> int | None:
        return PODS

    async def list_held(self, _: SlotOwner) -> OwnedPods | None:
        self.lists += 1
        return OwnedPods(tuple(HeldSlot(pod.slot, pod.claim) for pod in self.pods), len(self.pods))

    async def create(self, number: int) -> None:
        server = self.servers[number % len(self.servers)]
        taken = await server.take(SHARES, PLAN, OWNER, f"review-{number}", is_dry_run=False)
        await asyncio.sleep(0.001)  # the other webhooks, and etcd
        self.pods.append(taken.slot)


@pytest.fixture
async def deployment(own_redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Deployment]:
    monkeypatch.setattr(slot_numbers, "_ANSWER_SECONDS", HANG_SECONDS)  # on a busy machine it would guess
    servers: list[SlotChooser] = []
    deployment, clock, reports = Deployment(servers), SystemClock(), StoreReports(str, str, str)
    stores = [
        RedisStore(open_transport(own_redis_server.url), "default", clock, reports, deadline_seconds=DEADLINE_SECONDS)
        for _ in range(2)
    ]
    servers += [SlotChooser(store.slots, store, deployment) for store in stores]
    yield deployment
    for store in stores:
        await store.close()


def count_commands(redis: RedisServer) -> Counter[str]:
    with redis.client() as client:
        return Counter({name: found["calls"] for name, found in client.info("commandstats").items()})


async def test_a_burst_ends_in_the_exact_split_although_redis_loses_everything(
    deployment: Deployment, own_redis_server: RedisServer
) -> None:
    before = count_commands(own_redis_server)
    for first in range(0, PODS, AT_ONCE):
        burst = [asyncio.ensure_future(deployment.create(first + number)) for number in range(AT_ONCE)]
        if first == PODS // 2:
            await burst[0]  # the Pods of the others are on their way
            own_redis_server.cli("FLUSHALL")
        await asyncio.gather(*burst)
    assert sorted(pod.slot for pod in deployment.pods) == [*range(1, PODS + 1)]
    assert Counter(pod.variant for pod in deployment.pods) == SHARES.split.count_by_variant(PODS)
    assert deployment.lists <= 2 * (1 + 1), "each server: a new owner, and a lost one"
    used = count_commands(own_redis_server) - before
    assert used["cmdstat_evalsha"] <= PODS // 5, used
    assert used["cmdstat_hset"] <= PODS + 10 + 2 * 2, used  # each server tells of its claims again, in two parts
    assert sum(used.values()) <= 3 * PODS, used
