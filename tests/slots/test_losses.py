"""After a loss no slot is given twice although its Pod is still being created, whichever server is asked next."""

import asyncio
from collections.abc import AsyncIterator, Callable
from copy import deepcopy
from typing import Any

import pytest

from tests.bench.opcode_counts import count_opcodes
from tests.contract.counter_store import DEADLINE_SECONDS
from tests.core.reviewing import NOW_US, policy_of
from tests.core.shares.policies import SERVICES
from tests.redis_servers import RedisServer
from tests.timeouts import HANG_SECONDS
from webhook.adapters.clocks import SystemClock, VirtualClock
from webhook.adapters.memory_slots import MemorySlots
from webhook.adapters.memory_store import MemoryStore
from webhook.adapters.redis_store import RedisStore, open_transport
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.shares import SlotOwner
from webhook.errors import StoreUnavailableError
from webhook.ports import HeldSlot, OwnedPods, SlotClaim, StoreReports
from webhook.slots import SlotChooser, slot_numbers
from webhook.slots.recent_claims import CREATION_SECONDS, RecentClaims

pytest_plugins = ("tests.redis_servers.fixtures",)

COMPILED = CompiledPolicy(policy_of(SERVICES))
SHARES, PLAN = COMPILED.shares["web"], COMPILED.plans["web"]
OWNER = SlotOwner("ReplicaSet", "shop", "web-1", "rs", ("pod-template-hash", "1"))


class Cluster:
    """A `ports.SlotOwners` of one owner that wants ten Pods. A Pod is created when it is `shown`, maybe much later."""

    def __init__(self) -> None:
        self.shown: list[HeldSlot] = []
        self.lists = 0

    async def read_replicas(self, _: SlotOwner) -> int | None:
        return 10

    async def list_held(self, _: SlotOwner) -> OwnedPods | None:
        self.lists += 1
        return OwnedPods(tuple(self.shown), len(self.shown))


class Store(MemorySlots):
    """A store that answers while `is_up`."""

    is_up = True

    async def claim(self, *arguments: object, **named: object) -> SlotClaim:
        self._answer()
        return await super().claim(*arguments, **named)  # type: ignore[arg-type]

    async def confirm(self, *arguments: object) -> None:
        self._answer()
        await super().confirm(*arguments)  # type: ignore[arg-type]

    def _answer(self) -> None:
        if not self.is_up:
            raise StoreUnavailableError("Redis does not answer")


class Bench:
    """Two servers that share a store."""

    def __init__(self) -> None:
        self.clock, self.cluster = VirtualClock(NOW_US), Cluster()
        self.store = Store(self.clock)
        self.servers = [
            SlotChooser(
                self.store, MemoryStore(self.clock), self.cluster, spare=MemorySlots(self.clock), sleep=self._sleep
            )
            for _ in range(2)
        ]
        self.slept = 0.0

    async def _sleep(self, seconds: float) -> None:
        self.slept += seconds
        self.clock.set(self.clock.now_us() + int(seconds * 1_000_000))
        for _ in range(10):  # the others go on meanwhile
            await asyncio.sleep(0)

    async def take(self, claim: str, server: int = 0, *, is_created: bool = False) -> int:
        taken = await self.servers[server].take(SHARES, PLAN, OWNER, claim, is_dry_run=False)
        assert "guess" not in taken.reason or not self.store.is_up, taken.reason
        if is_created:
            self.cluster.shown.append(HeldSlot(taken.slot.slot, claim))
        return taken.slot.slot

    def notice(self) -> None:
        for server in self.servers:
            server.on_loss()


@pytest.mark.parametrize("asked", [0, 1])
@pytest.mark.parametrize("created", [0, 3])
@pytest.mark.parametrize("is_all_lost", [True, False])
async def test_a_pod_that_is_being_created_keeps_its_slot(*, is_all_lost: bool, created: int, asked: int) -> None:
    """A failover may lose no more than the latest claims, so that the owner is still known."""
    bench = Bench()
    for number in range(created):
        await bench.take(f"c{number}", is_created=True)
    await bench.store.learn(PLAN, OWNER.uid, 10, bench.cluster.shown, 0, is_new=True)
    replicated = deepcopy(bench.store._owners)
    slow = await bench.take("slow")
    bench.store._owners = {} if is_all_lost else replicated
    bench.notice()
    others = await asyncio.gather(*(bench.take(name, asked) for name in ("a", "b")))
    assert sorted([slow, *others]) == [created + 1, created + 2, created + 3]
    assert bench.slept == 3.0, "each server waits once for the other"
    assert await bench.take("slow") == slow


async def test_claims_show_a_loss_that_nobody_has_noticed() -> None:
    """FLUSHALL ends no process, and a service may have no windows by which it would be seen."""
    bench = Bench()
    slow = await bench.take("slow")
    bench.store._owners = {}
    assert await bench.take("next") != slow
    assert bench.slept == 1.5
    assert await bench.take("later") not in {slow, await bench.take("next")}
    assert bench.slept == 1.5, "the loss is over"


async def test_each_owner_of_a_loss_is_told_once() -> None:
    bench, other = Bench(), SlotOwner("ReplicaSet", "shop", "web-2", "rs-2", ("pod-template-hash", "2"))
    slow = await bench.take("slow")
    first = await bench.servers[0].take(SHARES, PLAN, other, "first", is_dry_run=False)
    bench.store._owners = {}
    assert await bench.take("next") != slow
    second = await bench.servers[0].take(SHARES, PLAN, other, "second", is_dry_run=False)
    assert {first.slot.slot, second.slot.slot} == {1, 2}
    assert bench.slept == 1.5


async def test_a_store_that_is_told_too_slowly_is_asked_to_list_the_owner_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slot_numbers, "_ANSWER_SECONDS", 0.05)
    bench, answers = Bench(), asyncio.Event()
    confirm = bench.store.confirm

    async def confirm_late(*arguments: Any) -> None:
        await answers.wait()
        await confirm(*arguments)

    monkeypatch.setattr(bench.store, "confirm", confirm_late)
    held = [await bench.take(name, is_created=True) for name in ("first", "second")]
    bench.notice()
    guess = await bench.servers[0].take(SHARES, PLAN, OWNER, "guessed", is_dry_run=False)
    assert "(a guess of this server alone: the store is not told of all claims in time)" in guess.reason
    bench.cluster.shown.append(HeldSlot(guess.slot.slot, "guessed"))
    answers.set()
    before = bench.cluster.lists
    assert await bench.take("next") not in {*held, guess.slot.slot}
    assert bench.cluster.lists > before, "it carries a slot that the store has not given"


async def test_a_store_that_is_away_again_is_told_once_it_answers() -> None:
    bench = Bench()
    slow = await bench.take("slow", is_created=True)
    bench.store._owners, bench.store.is_up = {}, False
    bench.notice()
    guessed = await bench.take("guessed", 1, is_created=True)
    bench.cluster.shown = [HeldSlot(guessed, "guessed")]
    bench.store.is_up = True
    assert await bench.take("next", 1) not in {slow, guessed}


async def test_after_an_outage_claims_that_the_store_knows_are_kept() -> None:
    """The Pod that got a slot without it is denied by somebody else, so that no list shows either of the two."""
    bench = Bench()
    first, slow = await bench.take("first", is_created=True), await bench.take("slow", 1)
    bench.store.is_up = False
    await bench.take("guessed")
    bench.store.is_up = True
    assert await bench.take("next") not in {first, slow}


def spy(seconds: Callable[[], float]) -> tuple[RecentClaims, list[HeldSlot]]:
    """Return recent claims by this clock, and what their store is told."""
    told: list[HeldSlot] = []

    class Told(MemorySlots):
        async def confirm(self, *arguments: object) -> None:
            told.extend(arguments[2])  # type: ignore[call-overload]

    return RecentClaims(Told(VirtualClock(NOW_US)), lambda _: asyncio.sleep(0), seconds), told


async def test_claims_of_a_minute_are_told_the_newest_of_a_slot_first() -> None:
    now = [0.0]
    claims, told = spy(lambda: now[0])
    for at, slot, claim in ((0, 1, "too old"), (30, 2, "ended"), (31, 3, "freed"), (50, 2, "again"), (60.5, 4, "new")):
        now[0] = at
        claims.add(PLAN, "rs", HeldSlot(slot, claim))
    claims.drop("freed")
    claims.on_loss()
    await claims.settle()
    assert told == [HeldSlot(4, "new"), HeldSlot(2, "again"), HeldSlot(2, "ended")]
    assert not claims.is_untold


async def test_a_second_loss_while_the_first_is_told_is_told_too() -> None:
    claims, told = spy(lambda: 0.0)
    claims.add(PLAN, "rs", HeldSlot(1, "a"))
    claims.on_loss()
    telling = asyncio.ensure_future(claims.settle())
    while not told:  # noqa: ASYNC110  there is no event
        await asyncio.sleep(0)
    claims.on_loss()
    await telling
    assert claims.is_untold
    await claims.settle()
    assert told == [HeldSlot(1, "a")] * 2
    assert not claims.is_untold


async def test_no_more_claims_are_kept_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webhook.slots.recent_claims._CLAIMS_MAX", 3)
    claims, told = spy(lambda: 0.0)
    for number in range(1, 6):
        claims.add(PLAN, "rs", HeldSlot(number, f"c{number}"))
    await claims.settle()
    assert [held.slot for held in told] == [5, 4, 3]


async def test_an_owner_is_known_while_a_claim_of_it_is_kept_that_the_store_was_not_told() -> None:
    now = [0.0]
    claims, _ = spy(lambda: now[0])
    for claim, owner in (("first", "rs"), ("second", "rs"), ("moved", "rs"), ("moved", "job")):
        claims.add(PLAN, owner, HeldSlot(1, claim))
    claims.drop("second")
    claims.drop("unknown")
    assert claims.knows("web", "rs")
    assert claims.knows("web", "job")
    assert not claims.knows("other", "rs")
    claims.drop("first")
    assert not claims.knows("web", "rs")
    now[0] = CREATION_SECONDS
    assert claims.knows("web", "job")
    await claims.settle()
    now[0] += 1
    claims.add(PLAN, "rs", HeldSlot(2, "since"))
    assert not claims.knows("web", "job")
    assert claims.knows("web", "rs")


async def test_an_unknown_owner_costs_the_same_beside_many_claims() -> None:
    claims, _ = spy(lambda: 0.0)
    counted = []
    for number in range(1000):
        claims.add(PLAN, f"rs-{number}", HeldSlot(1, f"c{number}"))
        if number in {0, 999}:
            counted.append(count_opcodes(lambda: claims.knows("web", "other"))[0])
    assert counted[0] == counted[1]


@pytest.fixture
async def stores(own_redis_server: RedisServer) -> AsyncIterator[list[RedisStore]]:
    made = [
        RedisStore(
            open_transport(own_redis_server.url),
            "default",
            SystemClock(),
            StoreReports(str, str, str),
            deadline_seconds=DEADLINE_SECONDS,
        )
        for _ in range(2)
    ]
    yield made
    for store in made:
        await store.close()


async def test_a_restart_of_redis_without_its_data_gives_no_slot_twice(
    stores: list[RedisStore], own_redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slot_numbers, "_ANSWER_SECONDS", HANG_SECONDS)  # nothing is guessed on a busy machine
    cluster = Cluster()
    servers = [SlotChooser(store.slots, store, cluster) for store in stores]
    for store, server in zip(stores, servers, strict=True):
        store.on_loss = server.on_loss
        await store.tick([])
    slow = [await server.take(SHARES, PLAN, OWNER, f"slow-{n}", is_dry_run=False) for n, server in enumerate(servers)]
    await asyncio.to_thread(own_redis_server.restart, keep_data=False)
    asked = servers[1].take(SHARES, PLAN, OWNER, "next", is_dry_run=False)
    taken, _ = await asyncio.gather(asked, stores[0].tick([]))  # nobody asks the other server, which ticks
    assert "guess" not in taken.reason
    assert sorted(found.slot.slot for found in (*slow, taken)) == [1, 2, 3]
