"""Manual breaker states: a live entry is applied once to the record, and removed when it ends."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from webhook.adapters.clocks import VirtualClock
from webhook.adapters.memory_store import MemoryStore
from webhook.controller import OverrideEnforcer
from webhook.core.breaker import Forcing, State, Transition
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.document.loading import load_effective
from webhook.core.policy.model import LoadedPolicy
from webhook.core.quota import Acquire, CounterPlan
from webhook.errors import StoreUnavailableError

NOW_US = 1_800_000_000_000_000
END_US = NOW_US + 600_000_000
LOADED = LoadedPolicy(
    load_effective(
        b"""
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: web
  match: {namespaces: [shop]}
  quota: {windows: [{window: 1m, hard: {pods: 0}}]}
  breaker: {quotaExceeded: {count: 1}}
- name: other
  match: {namespaces: [other]}
  quota: {windows: [{window: 1m, hard: {pods: 0}}]}
  breaker: {quotaExceeded: {count: 1}}
- name: plain
  match: {namespaces: [plain]}
""",
        None,
    ).policy,
    "0" * 16,
)
OPENED = Forcing(State.FORCED_OPEN, END_US, "INC-1")
CLOSED = Forcing(State.FORCED_CLOSED, END_US, "INC-2")


class Ledger(MemoryStore):
    """The memory store, which may be away, and remembers whom it was asked about."""

    away = False

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.asked: list[str] = []

    async def apply_override(self, plan: CounterPlan, reset_at_us: int = 0) -> Sequence[Transition]:
        self.asked.append(plan.service)
        if self.away:
            raise StoreUnavailableError("away")
        return await super().apply_override(plan, reset_at_us)


class World:
    def __init__(self) -> None:
        self.clock = VirtualClock(NOW_US)
        self.ledger = Ledger(self.clock)
        self.resets: Mapping[str, int] = {}
        self.reported: list[Transition] = []
        self.compiled = CompiledPolicy(LOADED)
        self.hands = self.leader()

    def leader(self) -> OverrideEnforcer:
        return OverrideEnforcer(
            self.ledger, self.ledger.last_breaker, lambda: self.compiled, lambda: self.resets, self.reported.append
        )

    def want(self, forcing: Forcing | None) -> None:
        self.compiled = CompiledPolicy(replace(LOADED, forcings={} if forcing is None else {"web": forcing}))

    async def look(self) -> list[str]:
        """Do a round; return the changes that were told."""
        self.reported.clear()
        self.ledger.asked.clear()
        await self.hands.round()
        return [f"{one.service} {one.old} {one.new}" for one in self.reported]

    def state(self, service: str = "web") -> State | None:
        view = self.ledger.last_breaker(self.compiled.plans[service])
        return view.state if view else None

    async def trip(self, service: str = "web") -> None:
        asked = Acquire(self.compiled.plans[service], "shop", f"u-{service}", {"pods": 1}, "user:alice")
        await self.ledger.acquire(asked)
        assert self.state(service) is State.OPEN


async def test_store_is_not_queried_without_manual_states() -> None:
    simulation = World()
    await simulation.trip()
    assert await simulation.look() == []
    assert simulation.ledger.asked == []


async def test_forced_state_is_written_once_and_removed_with_its_entry() -> None:
    simulation = World()
    simulation.want(OPENED)
    assert await simulation.look() == ["web CLOSED FORCED_OPEN"]
    assert await simulation.look() == []
    simulation.want(CLOSED)
    assert await simulation.look() == ["web FORCED_OPEN FORCED_CLOSED"]
    simulation.want(None)
    assert await simulation.look() == ["web FORCED_CLOSED CLOSED"]
    assert await simulation.look() == []
    assert simulation.ledger.asked == []


async def test_new_leader_removes_forced_states_of_the_former_leader() -> None:
    simulation = World()
    simulation.want(OPENED)
    await simulation.look()
    simulation.want(None)
    simulation.hands = simulation.leader()
    assert await simulation.look() == ["web FORCED_OPEN CLOSED"]


async def test_forced_state_is_removed_once_the_store_is_available() -> None:
    simulation = World()
    simulation.want(OPENED)
    await simulation.look()
    simulation.want(None)
    simulation.ledger.away = True
    assert await simulation.look() == []
    simulation.ledger.away = False
    assert await simulation.look() == ["web FORCED_OPEN CLOSED"]


async def test_reset_is_applied_once_and_to_its_service_only() -> None:
    simulation = World()
    await simulation.trip()
    await simulation.trip("other")
    simulation.clock.set(NOW_US + 2_000_000)
    simulation.resets = {"web": NOW_US + 1_000_000, "plain": NOW_US, "gone": NOW_US}
    assert await simulation.look() == ["web OPEN CLOSED"]
    assert (simulation.ledger.asked, simulation.state("other")) == (["web"], State.OPEN)
    simulation.clock.set(NOW_US + 70_000_000)
    asked = Acquire(simulation.compiled.plans["web"], "shop", "again", {"pods": 1}, "user:bob")
    await simulation.ledger.acquire(asked)
    assert simulation.state() is State.OPEN
    assert await simulation.look() == [], "it has moved since"


async def test_without_a_policy_nothing_is_enforced() -> None:
    simulation = World()
    hands = OverrideEnforcer(
        simulation.ledger, simulation.ledger.last_breaker, lambda: None, dict, simulation.reported.append
    )
    await hands.round()
    assert simulation.ledger.asked == []
