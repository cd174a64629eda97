"""Breakers while the store does not respond, and their merge into the store afterwards."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.contract.counter_store import BREAKER
from tests.core.plans import plan_of, window
from tests.core.strategies import examples
from tests.fallback.local_breakers import AWAY, StoreLink
from tests.fallback.simulation import Simulation
from webhook.adapters.memory_store import MemoryStore
from webhook.core.breaker import EXPIRED, BreakerView, Forcing, QuotaEventPlan, State, Transition
from webhook.core.breaker.outcome_types import Outcomes
from webhook.core.policy_fields import Mode, WhenStoreUnavailable
from webhook.core.quota import Acquire, CounterPlan, DeniedBy, Receipt
from webhook.errors import StoreUnavailableError
from webhook.fallback import StoreFallback

NO_QUOTA = plan_of(breaker=BREAKER)
LOCAL = plan_of(window(3600, pods=100), breaker=BREAKER)
ALLOW = replace(LOCAL, when_unavailable=WhenStoreUnavailable.ALLOW)
DENY = replace(LOCAL, when_unavailable=WhenStoreUnavailable.DENY)
WITHOUT_OUTCOMES = replace(BREAKER, has_outcomes=False, error_rate=None, latency=None)
"""A probe succeeds when it is charged."""

OPEN_SECONDS, LEASE_SECONDS = BREAKER.open_for_us // 1_000_000, BREAKER.probe_timeout_us // 1_000_000
SOURCE = "controller:failing"
GOOD, BAD = Outcomes(1, 0, 0), Outcomes(0, 1, 0)


@pytest.fixture
async def simulation() -> AsyncIterator[Simulation]:
    simulation = Simulation()
    yield simulation
    simulation.store.failure = ""
    await simulation.guard.close()


async def trip(simulation: Simulation, plan: CounterPlan) -> None:
    """Open the breaker by a quota event of `SOURCE` in the store, and then make the store unavailable."""
    assert plan.breaker is not None
    one_event = QuotaEventPlan(count=1, within_us=60_000_000, by_controller=True)
    strict = replace(plan, windows=(window(3600, pods=0),), breaker=replace(plan.breaker, quota=one_event))
    receipt = await simulation.store.acquire(Acquire(strict, "shop", "too-many", {"pods": 1}, SOURCE))
    assert [move.new for move in receipt.transitions] == [State.OPEN]
    await simulation.guard.snapshot(plan)
    simulation.store.failure = AWAY


async def ask(simulation: Simulation, plan: CounterPlan, uid: str = "", **more: Any) -> Receipt:
    """Ask for a Pod as the interceptor does; without a decision it is admitted."""
    more.setdefault("event_source", SOURCE)
    guard = more.pop("guard", simulation.guard)
    request = simulation.request(plan, uid, **more)
    try:
        return await guard.acquire(request)
    except StoreUnavailableError:
        guard.book_later(request)
        return Receipt(0)


async def list_denials(simulation: Simulation, plan: CounterPlan, count: int, **more: Any) -> list[DeniedBy | None]:
    return [(await ask(simulation, plan, **more)).refused for _ in range(count)]


async def restore_store(simulation: Simulation) -> None:
    simulation.store.failure = ""
    await simulation.wait_until_settled()


def read_stored_view(simulation: Simulation, plan: CounterPlan) -> BreakerView:
    view = simulation.store.find_known_breaker(plan) or MemoryStore.find_last_breaker(simulation.store, plan)
    assert view is not None
    return view


def format_moves(moves: Sequence[Transition]) -> list[str]:
    return [f"{move.old} {move.new}" for move in moves]


@pytest.mark.parametrize("plan", [LOCAL, ALLOW, DENY, NO_QUOTA], ids=("Local", "Allow", "Deny", "none"))
async def test_open_breaker_stays_open_until_its_time_and_then_leases_its_share_of_probes(
    simulation: Simulation, plan: CounterPlan
) -> None:
    simulation.guard.set_replicas(2, 0)
    await trip(simulation, plan)
    for _ in range(2):
        receipt = await ask(simulation, plan)
        assert (receipt.refused, receipt.local) == (DeniedBy.BREAKER, True)
        assert receipt.breaker is not None
        assert receipt.breaker.state is State.OPEN
        assert receipt.breaker.compute_open_remaining_us(receipt.at_us) > 0, "the remaining time is shown"
        simulation.sleep(OPEN_SECONDS // 2)
    assert await list_denials(simulation, plan, 4) == [None, None, DeniedBy.BREAKER, DeniedBy.BREAKER], (
        "2 of 3 for one of two"
    )
    known = simulation.guard.find_known_breaker(plan)
    assert known is not None
    assert (known.state, known.probes_leased) == (State.HALF_OPEN, 2)
    await restore_store(simulation)
    assert read_stored_view(simulation, plan).state is State.HALF_OPEN


@pytest.mark.parametrize(("replicas", "probes"), [(1, 3), (2, 2), (3, 1), (4, 1)])
async def test_each_replica_leases_at_least_one_probe(simulation: Simulation, replicas: int, probes: int) -> None:
    simulation.guard.set_replicas(replicas, 0)
    await trip(simulation, LOCAL)
    simulation.sleep(OPEN_SECONDS)
    assert (await list_denials(simulation, LOCAL, 5)).count(None) == probes


async def test_successful_probes_close_the_breaker_here_and_then_in_the_store(simulation: Simulation) -> None:
    await trip(simulation, LOCAL)
    simulation.sleep(OPEN_SECONDS)
    receipt = await ask(simulation, LOCAL)
    assert format_moves(receipt.transitions) == ["OPEN HALF_OPEN"]
    await list_denials(simulation, LOCAL, 2)
    assert await simulation.guard.record_outcomes(LOCAL, [GOOD, GOOD]) == ()
    assert format_moves(await simulation.guard.record_outcomes(LOCAL, [GOOD])) == ["HALF_OPEN CLOSED"]
    assert await list_denials(simulation, LOCAL, 5) == [None] * 5
    await restore_store(simulation)
    view = read_stored_view(simulation, LOCAL)
    assert (view.state, view.generation, view.reason) == (State.CLOSED, 3, "3 probes succeeded")
    assert view.tripped_by, "the figures that tripped it last"


async def test_failed_probe_opens_the_breaker_here_and_then_in_the_store(simulation: Simulation) -> None:
    await trip(simulation, LOCAL)
    simulation.sleep(OPEN_SECONDS)
    await ask(simulation, LOCAL, "probe")
    unknown = Outcomes(0, 1, 0, uid="another", generation=2)
    assert await simulation.guard.record_outcomes(LOCAL, [unknown]) == ()
    assert (
        format_moves(await simulation.guard.record_outcomes(LOCAL, [replace(unknown, uid="probe", generation=1)])) == []
    ), "the outcome is stale"
    assert format_moves(await simulation.guard.record_outcomes(LOCAL, [replace(unknown, uid="probe")])) == [
        "HALF_OPEN OPEN"
    ]
    known = simulation.guard.find_known_breaker(LOCAL)
    assert known is not None
    assert (known.state, known.generation) == (State.OPEN, 3)
    await restore_store(simulation)
    assert read_stored_view(simulation, LOCAL) == known
    assert simulation.guard.find_known_breaker(LOCAL) == known


async def test_charged_probe_closes_a_breaker_without_outcomes(simulation: Simulation) -> None:
    plan = replace(LOCAL, breaker=WITHOUT_OUTCOMES)
    await trip(simulation, plan)
    simulation.sleep(OPEN_SECONDS)
    receipts = [await ask(simulation, plan) for _ in range(4)]
    assert [format_moves(receipt.transitions) for receipt in receipts] == [
        ["OPEN HALF_OPEN"],
        [],
        ["HALF_OPEN CLOSED"],
        [],
    ]
    await restore_store(simulation)
    assert (read_stored_view(simulation, plan).state, read_stored_view(simulation, plan).generation) == (
        State.CLOSED,
        3,
    )


async def test_transition_of_an_admission_without_a_receipt_is_reported_by_a_tick(simulation: Simulation) -> None:
    plan = replace(NO_QUOTA, breaker=replace(WITHOUT_OUTCOMES, probes=1))
    await trip(simulation, plan)
    simulation.sleep(OPEN_SECONDS)
    await ask(simulation, plan)
    assert format_moves(await simulation.guard.tick([plan])) == ["OPEN HALF_OPEN", "HALF_OPEN CLOSED"]
    with pytest.raises(StoreUnavailableError):
        await simulation.guard.tick([plan])


async def test_unreported_transition_is_reported_after_the_store_returns(simulation: Simulation) -> None:
    plan = replace(NO_QUOTA, breaker=replace(WITHOUT_OUTCOMES, probes=1))
    await trip(simulation, plan)
    simulation.sleep(OPEN_SECONDS)
    await ask(simulation, plan)
    simulation.store.failure = ""
    assert format_moves(await simulation.guard.tick([plan]))[:2] == ["OPEN HALF_OPEN", "HALF_OPEN CLOSED"]


async def test_closed_breaker_trips_by_local_outcomes(simulation: Simulation) -> None:
    await simulation.guard.snapshot(LOCAL)
    simulation.store.failure = AWAY
    assert await list_denials(simulation, LOCAL, 2) == [None, None]
    for _ in range(3):
        assert await simulation.guard.record_outcomes(LOCAL, [Outcomes(0, 10, 0)]) == ()
        simulation.sleep(1)
    assert format_moves(await simulation.guard.tick([LOCAL])) == ["CLOSED OPEN"]
    assert (await ask(simulation, LOCAL)).refused is DeniedBy.BREAKER
    await restore_store(simulation)
    assert (read_stored_view(simulation, LOCAL).state, read_stored_view(simulation, LOCAL).generation) == (
        State.OPEN,
        1,
    )


async def test_denials_by_a_share_do_not_trip_the_breaker(simulation: Simulation) -> None:
    plan = replace(LOCAL, windows=(window(3600, pods=0),))
    await simulation.guard.snapshot(plan)
    simulation.store.failure = AWAY
    for number in range(10):
        assert (await ask(simulation, plan, event_source=f"controller:{number}")).refused is DeniedBy.QUOTA
    assert (await ask(simulation, plan)).refused is DeniedBy.QUOTA
    await restore_store(simulation)
    assert read_stored_view(simulation, plan).state is State.CLOSED


async def test_replica_without_a_view_takes_the_breaker_for_closed_and_undoes_nothing(
    simulation: Simulation,
) -> None:
    await trip(simulation, LOCAL)
    simulation.store.find_last_breaker = lambda _: None  # type: ignore[method-assign]
    guard = simulation.build_guard()
    assert (await ask(simulation, LOCAL, guard=guard)).refused is None
    simulation.store.failure = ""
    await guard.close()
    assert read_stored_view(simulation, LOCAL).state is State.OPEN


async def test_later_state_of_the_store_replaces_the_local_one(simulation: Simulation) -> None:
    await trip(simulation, LOCAL)
    assert (await ask(simulation, LOCAL)).refused is DeniedBy.BREAKER
    simulation.sleep(1)
    await simulation.store.apply_override(LOCAL, reset_at_us=simulation.store._clock.now_us())
    assert read_stored_view(simulation, LOCAL).state is State.CLOSED
    assert simulation.guard.find_known_breaker(LOCAL) is None
    assert (await ask(simulation, LOCAL)).refused is None
    await restore_store(simulation)
    assert read_stored_view(simulation, LOCAL).state is State.CLOSED


async def test_expired_lease_frees_its_place(simulation: Simulation) -> None:
    await trip(simulation, LOCAL)
    simulation.sleep(OPEN_SECONDS)
    assert await list_denials(simulation, LOCAL, 4) == [None, None, None, DeniedBy.BREAKER]
    simulation.sleep(LEASE_SECONDS)
    transitions = await simulation.guard.tick([LOCAL])
    assert [(move.reason, move.is_change) for move in transitions] == [(EXPIRED, False)] * 3
    assert await list_denials(simulation, LOCAL, 4) == [None, None, None, DeniedBy.BREAKER]


async def test_half_open_breaker_keeps_leases_of_earlier_probes(simulation: Simulation) -> None:
    await trip(simulation, LOCAL)
    simulation.store.failure = ""
    simulation.sleep(OPEN_SECONDS)
    assert await list_denials(simulation, LOCAL, 2) == [None, None]
    simulation.store.failure = AWAY
    assert await list_denials(simulation, LOCAL, 2) == [None, DeniedBy.BREAKER]
    simulation.sleep(LEASE_SECONDS)
    assert await list_denials(simulation, LOCAL, 4) == [None, None, None, DeniedBy.BREAKER]


@pytest.mark.parametrize("at_once", [False, True])
async def test_each_outcome_frees_the_lease_of_one_earlier_probe(
    simulation: Simulation,
    *,
    at_once: bool,
) -> None:
    await trip(simulation, LOCAL)
    simulation.store.failure = ""
    simulation.sleep(OPEN_SECONDS)
    assert await list_denials(simulation, LOCAL, 3) == [None] * 3
    simulation.store.failure = AWAY
    transitions: list[str] = []
    for reported in [Outcomes(3, 0, 0)] if at_once else [GOOD] * 3:
        assert await list_denials(simulation, LOCAL, 2) == [DeniedBy.BREAKER] * 2
        transitions += format_moves(await simulation.guard.record_outcomes(LOCAL, [reported]))
    assert transitions == ["HALF_OPEN CLOSED"]


async def test_refunded_pod_frees_its_probe_lease(simulation: Simulation) -> None:
    await trip(simulation, LOCAL)
    simulation.sleep(OPEN_SECONDS)
    await list_denials(simulation, LOCAL, 2)
    await ask(simulation, LOCAL, "gone")
    assert (await ask(simulation, LOCAL)).refused is DeniedBy.BREAKER
    assert await simulation.guard.refund(LOCAL, "gone")
    assert await list_denials(simulation, LOCAL, 2) == [None, DeniedBy.BREAKER]


async def test_dry_run_resize_and_known_pod_take_no_lease(simulation: Simulation) -> None:
    await ask(simulation, LOCAL, "before")
    await trip(simulation, LOCAL)
    assert (await ask(simulation, LOCAL, "before")).repeated
    assert (await ask(simulation, LOCAL, "elder", resize_from={"pods": 1})).refused is None, (
        "a resize ignores the breaker"
    )
    assert (await ask(simulation, LOCAL, peek=True)).refused is DeniedBy.BREAKER
    simulation.sleep(OPEN_SECONDS)
    assert await list_denials(simulation, LOCAL, 5, peek=True) == [None] * 5
    assert (await ask(simulation, ALLOW, "before")).refused is None
    first = await ask(simulation, LOCAL, "a")
    assert (first.charged, first.repeated) == (True, False)
    assert (await ask(simulation, LOCAL, "a")).repeated
    for plan in (ALLOW, NO_QUOTA):
        assert [(await ask(simulation, plan, "a")).refused for _ in range(5)] == [None] * 5
    assert await list_denials(simulation, LOCAL, 3) == [None, None, DeniedBy.BREAKER]


async def test_breaker_in_warn_mode_or_degrade_admits(simulation: Simulation) -> None:
    await trip(simulation, LOCAL)
    warning = replace(LOCAL, breaker_mode=Mode.WARN)
    receipt = await ask(simulation, warning)
    assert (receipt.refused, receipt.would_refuse, receipt.charged) == (None, (DeniedBy.BREAKER,), True)
    assert receipt.breaker is not None
    assert receipt.breaker.state is State.OPEN
    degrading = replace(LOCAL, breaker=replace(BREAKER, degrades=True))
    receipt = await ask(simulation, degrading)
    assert (receipt.refused, receipt.would_refuse, receipt.charged) == (None, (), True)


async def test_uninvolved_controller_probes_early(simulation: Simulation) -> None:
    await trip(simulation, LOCAL)
    assert (
        await list_denials(simulation, LOCAL, 5, event_source="controller:another")
        == [None] * 3 + [DeniedBy.BREAKER] * 2
    )
    assert await list_denials(simulation, LOCAL, 1) == [DeniedBy.BREAKER]


async def test_override_applies_without_the_store(simulation: Simulation) -> None:
    await simulation.guard.snapshot(LOCAL)
    simulation.store.failure = AWAY
    until_us = simulation.clock.us + 60_000_000
    forced = replace(LOCAL, breaker=replace(BREAKER, forcing=Forcing(State.FORCED_OPEN, until_us, "INC-1")))
    receipt = await ask(simulation, forced)
    assert receipt.refused is DeniedBy.BREAKER
    assert receipt.breaker is not None
    assert (receipt.breaker.state, receipt.breaker.reason) == (State.FORCED_OPEN, "INC-1")
    assert (await ask(simulation, LOCAL)).refused is None
    simulation.sleep(60)
    assert (await ask(simulation, forced)).refused is None


@pytest.mark.parametrize("state", [State.FORCED_OPEN, State.FORCED_CLOSED])
async def test_ended_override_does_not_apply_in_an_outage(simulation: Simulation, state: State) -> None:
    forcing = Forcing(state, simulation.store._clock.now_us() + 600_000_000, "INC-1")
    await simulation.store.apply_override(replace(LOCAL, breaker=replace(BREAKER, forcing=forcing)))
    assert read_stored_view(simulation, LOCAL).state is state
    simulation.store.failure = AWAY
    assert (await ask(simulation, LOCAL)).refused is None
    for _ in range(3):
        await simulation.guard.record_outcomes(LOCAL, [Outcomes(0, 10, 0)])
        simulation.sleep(1)
    assert format_moves(await simulation.guard.tick([LOCAL])) == ["CLOSED OPEN"]
    assert (await ask(simulation, LOCAL)).refused is DeniedBy.BREAKER


async def test_ended_override_is_left_to_the_leader_to_release(simulation: Simulation) -> None:
    forcing = Forcing(State.FORCED_OPEN, simulation.store._clock.now_us() + 600_000_000, "INC-1")
    await simulation.store.apply_override(replace(LOCAL, breaker=replace(BREAKER, forcing=forcing)))
    simulation.store.failure = AWAY
    assert (await ask(simulation, LOCAL)).refused is None
    await restore_store(simulation)
    assert read_stored_view(simulation, LOCAL).state is State.FORCED_OPEN
    assert format_moves(await simulation.store.apply_override(LOCAL)) == ["FORCED_OPEN CLOSED"]


async def test_trip_is_held_by_the_guard_in_an_outage(simulation: Simulation) -> None:
    open_max = replace(BREAKER, open_max=1)
    one, other = (replace(LOCAL, service=name, tag=name, breaker=open_max) for name in ("one", "other"))
    await trip(simulation, one)
    with pytest.raises(StoreUnavailableError):
        await simulation.guard.tick([one, other])
    for _ in range(3):
        await simulation.guard.record_outcomes(other, [Outcomes(0, 10, 0)])
        simulation.sleep(1)
    transitions = await simulation.guard.tick([one, other])
    assert [(move.service, move.is_change) for move in transitions] == [("other", False)]
    assert (await ask(simulation, other)).refused is None


async def test_breaker_removed_from_the_policy_is_forgotten(simulation: Simulation) -> None:
    await trip(simulation, LOCAL)
    assert (await ask(simulation, LOCAL)).refused is DeniedBy.BREAKER
    without = replace(LOCAL, breaker=None)
    with pytest.raises(StoreUnavailableError):
        await simulation.guard.tick([without])
    assert (await ask(simulation, without)).refused is None
    await restore_store(simulation)


async def test_view_is_proposed_before_bookings_and_again_after_a_failure(
    simulation: Simulation,
) -> None:
    await trip(simulation, LOCAL)
    simulation.sleep(OPEN_SECONDS)
    await list_denials(simulation, LOCAL, 3)
    await simulation.guard.record_outcomes(LOCAL, [BAD])
    transitions: list[str] = []
    offer, book = simulation.store.propose, simulation.store.book

    async def fail_first_offer(plan: CounterPlan, view: BreakerView) -> None:
        transitions.append(view.state)
        if len(transitions) == 1:
            raise StoreUnavailableError("gone again")
        await offer(plan, view)

    async def record_booking(*asked: Any) -> int:
        transitions.append("booked")
        return await book(*asked)

    simulation.store.propose, simulation.store.book = fail_first_offer, record_booking  # type: ignore[method-assign]
    await restore_store(simulation)
    assert transitions == ["OPEN", "OPEN", "booked"]
    assert read_stored_view(simulation, LOCAL).state is State.OPEN


async def test_close_proposes_the_local_view(simulation: Simulation) -> None:
    await trip(simulation, LOCAL)
    simulation.sleep(OPEN_SECONDS)
    await list_denials(simulation, LOCAL, 3)
    await simulation.guard.record_outcomes(LOCAL, [Outcomes(3, 0, 0)])
    simulation.store.failure = ""
    await simulation.guard.close()
    assert read_stored_view(simulation, LOCAL).state is State.CLOSED


async def test_close_proposes_the_local_view_without_admissions(simulation: Simulation) -> None:
    simulation.store.failure = AWAY
    for _ in range(3):
        await simulation.guard.record_outcomes(LOCAL, [Outcomes(0, 10, 0)])
        simulation.sleep(1)
    simulation.store.failure = ""
    await simulation.guard.close()
    assert read_stored_view(simulation, LOCAL).state is State.OPEN


# Partitions: one replica is isolated, and the others share the store


async def isolate(simulation: Simulation) -> tuple[StoreFallback, StoreLink]:
    """Isolate a replica that knows the breaker's present state."""
    store_link = StoreLink(simulation.store)
    guard = simulation.build_guard(inner=store_link)
    store_link.find_last_breaker(LOCAL)
    store_link.is_cut = True
    return guard, store_link


async def close_isolated(simulation: Simulation, guard: StoreFallback) -> None:
    for _ in range(3):
        await ask(simulation, LOCAL, guard=guard)
    assert format_moves(await guard.record_outcomes(LOCAL, [Outcomes(3, 0, 0)]))[-1] == "HALF_OPEN CLOSED"


async def trip_isolated(simulation: Simulation, guard: StoreFallback) -> None:
    for _ in range(3):
        await guard.record_outcomes(LOCAL, [Outcomes(0, 10, 0)])
        simulation.sleep(1)
    await ask(simulation, LOCAL, guard=guard)
    view = guard.find_known_breaker(LOCAL)
    assert view is not None
    assert view.state is State.OPEN


async def reconnect(guard: StoreFallback, store_link: StoreLink) -> None:
    store_link.is_cut = False
    await guard.close()


async def test_close_by_an_isolated_replica_does_not_erase_a_newer_trip(simulation: Simulation) -> None:
    await trip(simulation, LOCAL)
    simulation.store.failure = ""
    guard, store_link = await isolate(simulation)
    simulation.sleep(OPEN_SECONDS)
    await close_isolated(simulation, guard)
    await trip_isolated(simulation, guard)
    simulation.sleep(OPEN_SECONDS)
    await close_isolated(simulation, guard)
    await ask(simulation, LOCAL, "probe")
    assert format_moves(await simulation.guard.record_outcomes(LOCAL, [replace(BAD, uid="probe")])) == [
        "HALF_OPEN OPEN"
    ]
    isolated, shared = guard.find_known_breaker(LOCAL), read_stored_view(simulation, LOCAL)
    assert isolated is not None
    assert (isolated.state, shared.state) == (State.CLOSED, State.OPEN)
    assert isolated.generation > shared.generation
    await reconnect(guard, store_link)
    assert read_stored_view(simulation, LOCAL).state is State.OPEN
    assert read_stored_view(simulation, LOCAL).since_us == shared.since_us
    assert guard.find_known_breaker(LOCAL) == read_stored_view(simulation, LOCAL), "this replica knows the stored view"
    assert await list_denials(simulation, LOCAL, 2, guard=guard) == [DeniedBy.BREAKER] * 2
    assert read_stored_view(simulation, LOCAL).generation > isolated.generation, "generations are unique"


async def test_trip_by_an_isolated_replica_does_not_undo_an_unknown_reset(
    simulation: Simulation,
) -> None:
    await trip(simulation, LOCAL)
    simulation.store.failure = ""
    guard, store_link = await isolate(simulation)
    simulation.sleep(OPEN_SECONDS)
    await close_isolated(simulation, guard)
    await trip_isolated(simulation, guard)
    await simulation.store.apply_override(LOCAL, reset_at_us=simulation.store._clock.now_us())
    await reconnect(guard, store_link)
    assert read_stored_view(simulation, LOCAL).state is State.CLOSED
    assert await list_denials(simulation, LOCAL, 2, guard=guard) == [None] * 2


async def test_isolated_decision_holds_without_a_decision_of_the_store(simulation: Simulation) -> None:
    await simulation.guard.snapshot(LOCAL)
    guard, store_link = await isolate(simulation)
    await trip_isolated(simulation, guard)
    await reconnect(guard, store_link)
    assert read_stored_view(simulation, LOCAL).state is State.OPEN


@pytest.mark.parametrize("closed_first", [True, False])
async def test_more_restrictive_of_two_isolated_states_holds(simulation: Simulation, *, closed_first: bool) -> None:
    await trip(simulation, LOCAL)
    simulation.store.failure = ""
    store_links = [await isolate(simulation) for _ in range(2)]
    simulation.sleep(OPEN_SECONDS)
    closed, opened = store_links if closed_first else reversed(store_links)
    await close_isolated(simulation, closed[0])
    await trip_isolated(simulation, closed[0])
    simulation.sleep(OPEN_SECONDS)
    await close_isolated(simulation, closed[0])
    await ask(simulation, LOCAL, guard=opened[0])
    assert format_moves(await opened[0].record_outcomes(LOCAL, [BAD]))[-1:] == ["HALF_OPEN OPEN"]
    for guard, store_link in store_links:
        await reconnect(guard, store_link)
    assert read_stored_view(simulation, LOCAL).state is State.OPEN


async def test_isolated_replica_leases_its_share_of_probes_beside_the_others(
    simulation: Simulation,
) -> None:
    await trip(simulation, LOCAL)
    simulation.store.failure = ""
    guard, store_link = await isolate(simulation)
    guard.set_replicas(2, 1)
    simulation.sleep(OPEN_SECONDS)
    assert (await list_denials(simulation, LOCAL, 5, guard=guard)).count(None) == 2
    assert (await list_denials(simulation, LOCAL, 5)).count(None) == BREAKER.probes
    await reconnect(guard, store_link)
    assert read_stored_view(simulation, LOCAL).probes_leased == BREAKER.probes


async def test_outcome_of_a_discarded_branch_changes_nothing(simulation: Simulation) -> None:
    await trip(simulation, LOCAL)
    simulation.store.failure = ""
    guard, store_link = await isolate(simulation)
    simulation.sleep(OPEN_SECONDS)
    await ask(simulation, LOCAL, "alone", guard=guard)
    isolated = guard.find_known_breaker(LOCAL)
    assert isolated is not None
    await guard.record_outcomes(LOCAL, [replace(BAD, uid="alone")])
    await ask(simulation, LOCAL, "shared")
    await simulation.guard.record_outcomes(LOCAL, [replace(BAD, uid="shared")])
    await reconnect(guard, store_link)
    simulation.sleep(OPEN_SECONDS)
    await ask(simulation, LOCAL, "probe")
    before = read_stored_view(simulation, LOCAL)
    assert before.state is State.HALF_OPEN
    for generation in range(isolated.generation, isolated.generation + 3):
        stale = [replace(BAD, generation=generation), replace(BAD, uid="alone", generation=generation)]
        assert await simulation.guard.record_outcomes(LOCAL, stale) == ()
    assert read_stored_view(simulation, LOCAL) == before


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.integers(0, 1)),
        st.tuples(st.just("good"), st.integers(0, 1)),
        st.tuples(st.just("bad"), st.integers(0, 1)),
        st.tuples(st.just("many bad"), st.integers(0, 1)),
        st.tuples(st.just("tick"), st.integers(0, 1)),
        st.tuples(st.just("sleep"), st.sampled_from((1, 60, OPEN_SECONDS, LEASE_SECONDS))),
    ),
    max_size=40,
)
OUTCOMES_OF_STEP = {"good": GOOD, "bad": BAD, "many bad": Outcomes(0, 10, 0)}


async def run_steps(steps: Sequence[tuple[str, int]], first_back: int) -> BreakerView:
    """Run the steps on two replicas without the store, and reconnect them in this order; return the stored view.

    After each step a replica leases no more than its share of probes, and OPEN has an end.
    """
    simulation = Simulation()
    guards = [simulation.build_guard(replicas=2, ordinal=ordinal) for ordinal in range(2)]
    await trip(simulation, LOCAL)
    for guard in guards:
        simulation.store.failure = ""
        await guard.snapshot(LOCAL)
    simulation.store.failure = AWAY
    for what, number in steps:
        if what == "sleep":
            simulation.sleep(number)
            continue
        guard = guards[number]
        if what == "ask":
            await ask(simulation, LOCAL, guard=guard)
        elif what == "tick":
            with suppress(StoreUnavailableError):
                await guard.tick([LOCAL])
        else:
            await guard.record_outcomes(LOCAL, [OUTCOMES_OF_STEP[what]])
        _check_bounds(guard, simulation)
    simulation.store.failure = ""
    for guard in (guards[first_back], guards[1 - first_back]):
        await guard.close()
    found = read_stored_view(simulation, LOCAL)
    simulation.sleep(OPEN_SECONDS + LEASE_SECONDS)
    assert (await ask(simulation, LOCAL)).refused is not DeniedBy.BREAKER, "the breaker is not stuck"
    await simulation.guard.close()
    return found


def _check_bounds(guard: StoreFallback, simulation: Simulation) -> None:
    view = guard.find_known_breaker(LOCAL)
    assert view is not None
    if view.state is State.HALF_OPEN:
        assert view.probes_leased + view.probes_succeeded <= 2
    if view.state is State.OPEN:
        assert 0 < view.open_until_us - guard.now_us() <= BREAKER.open_for_us
    assert simulation.store.failure


TRIPPED_AGAIN = [step for _ in range(3) for step in (("many bad", 0), ("sleep", 1))]
PROBING_AND_CLOSED = [
    *[("sleep", OPEN_SECONDS), ("ask", 0), ("ask", 0), ("good", 0), ("good", 0), *TRIPPED_AGAIN, ("tick", 0)],
    *[("ask", 1), ("bad", 1), ("sleep", OPEN_SECONDS), ("ask", 0)],
    *[("ask", 1), ("ask", 1), ("good", 1), ("good", 1)],
]
"""One is closed, trips again and probes; the other fails, probes again and is closed: both of generation 5."""


@examples(60)
@example(PROBING_AND_CLOSED)
@given(STEPS)
def test_two_replicas_agree_in_either_order_of_return(steps: list[tuple[str, int]]) -> None:
    found = [asyncio.run(run_steps(steps, first_back)) for first_back in (0, 1)]
    one, other = [(view.state, view.since_us, view.open_until_us, view.tripped_at_us) for view in found]
    assert one == other
