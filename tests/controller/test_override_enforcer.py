"""Manual breaker states: a live entry is applied once to the record, and removed when it ends."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from tests.controller.override_enforcer import LOADED
from webhook.adapters.clocks import VirtualClock
from webhook.adapters.memory_store import MemoryStore
from webhook.controller import OverrideEnforcer
from webhook.core.breaker import Forcing, State, Transition
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.quota import Acquire, CounterPlan
from webhook.errors import StoreUnavailableError

NOW_US = 1_800_000_000_000_000
END_US = NOW_US + 600_000_000
OPENED = Forcing(State.FORCED_OPEN, END_US, "INC-1")
CLOSED = Forcing(State.FORCED_CLOSED, END_US, "INC-2")


class RecordingStore(MemoryStore):
    """A memory store that may be unavailable, and records the services of its calls."""

    is_unavailable = False

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.called_services: list[str] = []

    async def apply_override(self, plan: CounterPlan, reset_at_us: int = 0) -> Sequence[Transition]:
        self.called_services.append(plan.service)
        if self.is_unavailable:
            raise StoreUnavailableError("away")
        return await super().apply_override(plan, reset_at_us)


class EnforcerSimulation:
    def __init__(self) -> None:
        self.clock = VirtualClock(NOW_US)
        self.store = RecordingStore(self.clock)
        self.resets: Mapping[str, int] = {}
        self.reported: list[Transition] = []
        self.compiled = CompiledPolicy(LOADED)
        self.enforcer = self.build_enforcer()

    def build_enforcer(self) -> OverrideEnforcer:
        return OverrideEnforcer(
            self.store, self.store.find_last_breaker, lambda: self.compiled, lambda: self.resets, self.reported.append
        )

    def set_forcing(self, forcing: Forcing | None) -> None:
        self.compiled = CompiledPolicy(replace(LOADED, forcings={} if forcing is None else {"web": forcing}))

    async def run_round(self) -> list[str]:
        """Run one round; return the reported transitions."""
        self.reported.clear()
        self.store.called_services.clear()
        await self.enforcer.round()
        return [f"{transition.service} {transition.old} {transition.new}" for transition in self.reported]

    def read_state(self, service: str = "web") -> State | None:
        view = self.store.find_last_breaker(self.compiled.plans[service])
        return view.state if view else None

    async def trip(self, service: str = "web") -> None:
        request = Acquire(self.compiled.plans[service], "shop", f"u-{service}", {"pods": 1}, "user:alice")
        await self.store.acquire(request)
        assert self.read_state(service) is State.OPEN


async def test_store_is_not_queried_without_manual_states() -> None:
    simulation = EnforcerSimulation()
    await simulation.trip()
    assert await simulation.run_round() == []
    assert simulation.store.called_services == []


async def test_forced_state_is_written_once_and_removed_with_its_entry() -> None:
    simulation = EnforcerSimulation()
    simulation.set_forcing(OPENED)
    assert await simulation.run_round() == ["web CLOSED FORCED_OPEN"]
    assert await simulation.run_round() == []
    simulation.set_forcing(CLOSED)
    assert await simulation.run_round() == ["web FORCED_OPEN FORCED_CLOSED"]
    simulation.set_forcing(None)
    assert await simulation.run_round() == ["web FORCED_CLOSED CLOSED"]
    assert await simulation.run_round() == []
    assert simulation.store.called_services == []


async def test_new_leader_removes_forced_states_of_the_former_leader() -> None:
    simulation = EnforcerSimulation()
    simulation.set_forcing(OPENED)
    await simulation.run_round()
    simulation.set_forcing(None)
    simulation.enforcer = simulation.build_enforcer()
    assert await simulation.run_round() == ["web FORCED_OPEN CLOSED"]


async def test_forced_state_is_removed_once_the_store_is_available() -> None:
    simulation = EnforcerSimulation()
    simulation.set_forcing(OPENED)
    await simulation.run_round()
    simulation.set_forcing(None)
    simulation.store.is_unavailable = True
    assert await simulation.run_round() == []
    simulation.store.is_unavailable = False
    assert await simulation.run_round() == ["web FORCED_OPEN CLOSED"]


async def test_reset_is_applied_once_and_to_its_service_only() -> None:
    simulation = EnforcerSimulation()
    await simulation.trip()
    await simulation.trip("other")
    simulation.clock.set(NOW_US + 2_000_000)
    simulation.resets = {"web": NOW_US + 1_000_000, "plain": NOW_US, "gone": NOW_US}
    assert await simulation.run_round() == ["web OPEN CLOSED"]
    assert (simulation.store.called_services, simulation.read_state("other")) == (["web"], State.OPEN)
    simulation.clock.set(NOW_US + 70_000_000)
    request = Acquire(simulation.compiled.plans["web"], "shop", "again", {"pods": 1}, "user:bob")
    await simulation.store.acquire(request)
    assert simulation.read_state() is State.OPEN
    assert await simulation.run_round() == [], "the breaker opened after the reset"


async def test_without_a_policy_nothing_is_enforced() -> None:
    simulation = EnforcerSimulation()
    enforcer = OverrideEnforcer(
        simulation.store, simulation.store.find_last_breaker, lambda: None, dict, simulation.reported.append
    )
    await enforcer.round()
    assert simulation.store.called_services == []
