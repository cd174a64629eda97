"""The chooser: slots of owners that are new, lost or exceeded, and variants whose breakers are open."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from tests.core.reviewing import NOW_US, policy_of
from tests.core.shares.policies import SERVICES
from tests.redis_servers import RedisServer
from tests.timeouts import HANG_SECONDS
from webhook.adapters.clocks import VirtualClock
from webhook.adapters.memory_slots import MemorySlots
from webhook.adapters.memory_store import MemoryStore
from webhook.adapters.redis_store import RedisStore, open_transport
from webhook.core.breaker.outcome_types import Outcomes
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.shares import PodSlot, SlotOwner
from webhook.errors import StoreUnavailableError
from webhook.ports import HeldSlot, OwnedPods, SharedStore, SlotClaim, StoreReports
from webhook.slots import SlotChooser, slot_numbers

pytest_plugins = ("tests.redis_servers.fixtures",)

COMPILED = CompiledPolicy(policy_of(SERVICES))
SHARES, PLAN = COMPILED.shares["web"], COMPILED.plans["web"]
OWNER = SlotOwner("ReplicaSet", "shop", "web-1", "rs", ("pod-template-hash", "1"))


class Cluster:
    """A `ports.SlotOwners` of one owner; what it reads is counted."""

    def __init__(self, replicas: int | None = 10) -> None:
        self.replicas = replicas
        self.held: list[HeldSlot] | None = []
        self.later: Sequence[HeldSlot] = ()
        """Slots of Pods that are created while somebody sleeps."""
        self.calls: list[str] = []
        self.slept = 0.0

    async def read_replicas(self, _: SlotOwner) -> int | None:
        self.calls.append("read")
        await asyncio.sleep(0)
        return self.replicas

    async def list_held(self, _: SlotOwner) -> OwnedPods | None:
        self.calls.append("list")
        await asyncio.sleep(0)
        return None if self.held is None else OwnedPods(tuple(self.held), len(self.held))

    async def sleep(self, seconds: float) -> None:
        self.slept += seconds
        if self.held is not None:
            self.held.extend(self.later)


class Broken(MemorySlots):
    """A store that answers while `is_up`."""

    is_up = False

    async def claim(self, *arguments: object, **named: object) -> SlotClaim:
        if not self.is_up:
            raise StoreUnavailableError("Redis does not answer")
        return await super().claim(*arguments, **named)  # type: ignore[arg-type]


class Bench:
    counters: SharedStore

    def __init__(self, replicas: int | None = 10, slots: MemorySlots | None = None) -> None:
        self.clock = VirtualClock(NOW_US)
        self.cluster = Cluster(replicas)
        self.slots = slots or MemorySlots(self.clock)
        self.reason = ""
        self.use(MemoryStore(self.clock))

    def use(self, counters: SharedStore) -> None:
        """Find the breakers of variants in this store."""
        self.counters, spare = counters, MemorySlots(self.clock)
        self.chooser = SlotChooser(self.slots, counters, self.cluster, spare=spare, sleep=self._sleep)

    async def _sleep(self, seconds: float) -> None:
        await self.cluster.sleep(seconds)
        self.clock.set(self.clock.now_us() + int(seconds * 1_000_000))

    async def take(self, claim: str, owner: SlotOwner = OWNER) -> PodSlot:
        taken = await self.chooser.take(SHARES, PLAN, owner, claim, is_dry_run=False)
        self.reason = taken.reason
        return taken.slot


async def test_a_new_owner_is_read_once_and_its_pods_are_numbered() -> None:
    bench = Bench()
    taken = await asyncio.gather(*(bench.take(f"c{number}") for number in range(10)))
    assert sorted(slot.slot for slot in taken) == [*range(1, 11)]
    assert bench.cluster.calls == ["read", "list"]
    assert bench.cluster.slept == 0
    assert bench.reason.startswith("slot ")


async def test_of_an_owner_that_grows_only_the_number_is_read() -> None:
    bench = Bench(2)
    for number in (1, 2):
        await bench.take(f"c{number}")
    bench.cluster.replicas = 5
    assert [(await bench.take(f"c{number}")).slot for number in (3, 4, 5)] == [3, 4, 5]
    assert bench.cluster.calls == ["read", "list", "read"]


async def test_an_owner_that_has_shrunk_is_read_again() -> None:
    """Claims of Pods that were denied meanwhile would else look like those of its former Pods."""
    bench = Bench(5)
    held = [HeldSlot((await bench.take(f"c{number}")).slot, f"c{number}") for number in range(1, 6)]
    await bench.slots.free(PLAN, OWNER.uid, held[2:])
    bench.cluster.replicas, bench.cluster.held, bench.cluster.calls = 3, held[:2], []
    assert (await bench.take("denied")).slot == 3
    bench.clock.set(bench.clock.now_us() + 2_000_000)
    assert (await bench.take("again")).slot == 3
    assert bench.cluster.slept == 0


async def test_a_slot_whose_pod_is_gone_is_found_free() -> None:
    bench = Bench(3)
    claims = [HeldSlot((await bench.take(f"c{number}")).slot, f"c{number}") for number in (1, 2, 3)]
    bench.clock.set(NOW_US + 5_000_000)
    bench.cluster.held = [claims[0], claims[2]]
    assert (await bench.take("c4")).slot == 2
    assert bench.cluster.slept == 0


async def test_a_slot_of_a_pod_that_another_denied_is_free_once_the_claim_is_old() -> None:
    """Its claim is young: another Pod may still be created with it."""
    bench = Bench(1)
    assert (await bench.take("denied")).slot == 1
    assert (await bench.take("again")).slot == 1
    assert bench.cluster.slept >= 1.5


async def test_after_a_loss_pods_that_were_being_created_are_waited_for() -> None:
    bench = Bench(4)
    bench.cluster.held, bench.cluster.later = [HeldSlot(1, "a")], [HeldSlot(2, "b")]
    assert (await bench.take("c")).slot == 3
    assert bench.cluster.slept == 1.5


async def test_a_pod_that_waited_while_the_store_lost_its_owner_gets_no_slot_of_others() -> None:
    bench = Bench(2)
    assert [(await bench.take(name)).slot for name in "ab"] == [1, 2]
    bench.cluster.held = [HeldSlot(1, "a")]

    async def lose(_: float) -> None:
        await bench.slots.forget(PLAN, OWNER.uid)

    bench.chooser._numbers._sleep = lose
    assert (await bench.take("c")).slot == 2
    assert "the store has lost its owner again" in bench.reason


@pytest.mark.parametrize("missing", ["read", "list"])
async def test_an_api_server_that_does_not_answer_denies_nobody(missing: str) -> None:
    bench = Bench(None if missing == "read" else 3)
    bench.cluster.held = None
    assert [(await bench.take(name)).slot for name in ("c1", "c2", "c1")] == [1, 2, 1]
    assert "a guess of this server alone: the API server does not" in bench.reason
    bench.cluster.replicas, bench.cluster.held = 3, [HeldSlot(1, "c1"), HeldSlot(2, "c2")]
    assert (await bench.take("c3")).slot == 3
    assert "guess" not in bench.reason


async def test_without_the_store_slots_are_this_servers_and_are_listed_afterwards() -> None:
    broken = Broken(VirtualClock(NOW_US))
    bench = Bench(4, broken)
    bench.cluster.held = [HeldSlot(1, "x"), HeldSlot(2, "y")]
    taken = await asyncio.gather(bench.take("a"), bench.take("b"))
    assert [slot.slot for slot in taken] == [3, 4]
    assert bench.cluster.calls == ["list"]
    assert "a guess of this server alone: Redis does not answer" in bench.reason
    broken.is_up = True
    bench.cluster.held, bench.cluster.replicas = [HeldSlot(3, "a"), HeldSlot(4, "b"), HeldSlot(1, "x")], 5
    assert (await bench.take("c")).slot == 2
    assert "alone" not in bench.reason


@pytest.mark.parametrize("held", [[], [HeldSlot(1, "a"), HeldSlot(2, "b")]])
async def test_pods_that_exceed_their_owner_wait_together(held: list[HeldSlot]) -> None:
    """A call of the API server has a timeout: they do not wait one after another."""
    bench = Bench(2)
    assert [(await bench.take(name)).slot for name in "ab"] == [1, 2]
    bench.cluster.held, bench.cluster.calls = held, []
    all_wait = asyncio.Event()

    async def sleep(seconds: float) -> None:
        bench.cluster.slept += seconds
        if bench.cluster.slept == 6 * seconds:
            bench.clock.set(bench.clock.now_us() + 1_500_000)
            all_wait.set()
        await asyncio.wait_for(all_wait.wait(), HANG_SECONDS)

    bench.chooser._numbers._sleep = sleep
    taken = await asyncio.gather(*(bench.take(f"c{number}") for number in range(6)))
    slots = sorted(slot.slot for slot in taken)
    first = len(held) + 1
    assert slots == [*range(first, first + 6)]
    assert bench.cluster.calls.count("list") <= 2 * 3


async def test_a_dry_run_of_an_unknown_owner_writes_nothing() -> None:
    bench = Bench(4)
    bench.cluster.held = [HeldSlot(1, "a"), HeldSlot(3, "b")]
    taken = await bench.chooser.take(SHARES, PLAN, OWNER, "c", is_dry_run=True)
    assert taken.slot.slot == 2
    assert await bench.slots.claim(PLAN, OWNER.uid, "c", is_dry_run=True) == SlotClaim(0)
    assert bench.cluster.slept == 0


async def test_an_api_server_that_hangs_delays_a_pod_for_less_than_its_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slot_numbers, "_ANSWER_SECONDS", 0.01)
    bench, hanging = Bench(4), asyncio.Event()

    async def hang(_: SlotOwner) -> OwnedPods | None:
        await hanging.wait()
        return None

    monkeypatch.setattr(bench.cluster, "list_held", hang)
    assert [(await bench.take(name)).slot for name in "ab"] == [1, 2]
    assert "a guess of this server alone: the API server does not answer in time" in bench.reason
    hanging.set()


async def test_an_index_is_a_slot_and_nobody_is_asked() -> None:
    bench = Bench()
    indexed = SlotOwner("StatefulSet", "shop", "db", "ss", index=4)
    assert (await bench.take("c", indexed)).slot == 5
    assert bench.cluster.calls == []


async def test_a_workload_that_is_too_large_for_a_while_says_so() -> None:
    bench = Bench(1)
    bench.cluster.held = [HeldSlot(1, "a")]
    assert (await bench.take("b")).slot == 2
    assert "beyond the 1 slots of its owner" in bench.reason


@pytest.fixture(params=["memory", "redis"])
async def bench(request: pytest.FixtureRequest, redis_server: RedisServer) -> AsyncIterator[Bench]:
    """Yield a bench whose breakers are in memory, and one whose breakers are in Redis."""
    bench = Bench()
    if request.param == "memory":
        yield bench
        return
    store = RedisStore(
        open_transport(redis_server.url),
        "default",
        bench.clock,
        StoreReports(str, str, str),
        deadline_seconds=10,
        time_us=bench.clock.now_us,
    )
    bench.use(store)
    yield bench
    await store.close()


async def test_an_open_variant_is_avoided_and_probed(bench: Bench) -> None:
    spot = SHARES.variants[0].counters
    assert spot is not None
    assert (await bench.take("base")).variant == "on-demand"
    assert (await bench.take("before")).variant == "spot"
    await bench.counters.record_outcomes(spot, [Outcomes.from_single(ok=False, latency_us=0, uid="before")])
    bench.clock.set(bench.clock.now_us() + 3_000_000)
    await bench.counters.tick(COMPILED.list_breakers())
    fell_back = await bench.take("after")
    assert (fell_back.variant, fell_back.intended, fell_back.slot) == ("on-demand", "spot", 3)
    assert "spot is OPEN (unschedulable: " in bench.reason
    assert "the Pod gets on-demand" in bench.reason
    bench.clock.set(bench.clock.now_us() + 601_000_000)
    await bench.counters.tick(COMPILED.list_breakers())
    found = [await bench.take(f"half-{number}") for number in range(4)]
    assert [slot.intended for slot in found] == ["on-demand", "spot", "spot", "spot"]
    assert [slot.variant for slot in found] == ["on-demand", "spot", "on-demand", "on-demand"], "one probe"
    await bench.counters.record_outcomes(spot, [Outcomes.from_single(ok=True, latency_us=0, uid="half-1")])
    assert (await bench.take("closed")).variant == "spot"
