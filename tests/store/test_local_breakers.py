"""Breakers while the store does not respond, and their merge into the store afterwards."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.contract.test_counter_store import BREAKER
from tests.core.plans import plan_of, window
from tests.core.strategies import examples
from tests.store.test_fallback import World
from webhook.adapters.memory_store import MemoryStore
from webhook.core.breaker import EXPIRED, BreakerView, Forcing, QuotaEventPlan, State, Transition
from webhook.core.breaker.outcome_types import Outcomes
from webhook.core.policy_spec import Mode, WhenStoreUnavailable
from webhook.core.quota import Acquire, CounterPlan, DeniedBy, Receipt
from webhook.errors import StoreUnavailableError
from webhook.store import StoreFallback

NO_QUOTA = plan_of(breaker=BREAKER)
LOCAL = plan_of(window(3600, pods=100), breaker=BREAKER)
ALLOW = replace(LOCAL, when_unavailable=WhenStoreUnavailable.ALLOW)
DENY = replace(LOCAL, when_unavailable=WhenStoreUnavailable.DENY)
WITHOUT_OUTCOMES = replace(BREAKER, has_outcomes=False, error_rate=None, latency=None)
"""A probe succeeds when it is charged."""

AWAY = "unreachable: refused"
OPEN_SECONDS, LEASE_SECONDS = BREAKER.open_for_us // 1_000_000, BREAKER.probe_timeout_us // 1_000_000
SOURCE = "controller:failing"
GOOD, BAD = Outcomes(1, 0, 0), Outcomes(0, 1, 0)


@pytest.fixture
async def simulation() -> AsyncIterator[World]:
    simulation = World()
    yield simulation
    simulation.store.away = ""
    await simulation.guard.close()


async def trip(simulation: World, plan: CounterPlan) -> None:
    """Open it by a quota event of `SOURCE`, with the store there, and let the store go away."""
    assert plan.breaker is not None
    one_event = QuotaEventPlan(count=1, within_us=60_000_000, by_controller=True)
    strict = replace(plan, windows=(window(3600, pods=0),), breaker=replace(plan.breaker, quota=one_event))
    receipt = await simulation.store.acquire(Acquire(strict, "shop", "too-many", {"pods": 1}, SOURCE))
    assert [move.new for move in receipt.transitions] == [State.OPEN]
    await simulation.guard.snapshot(plan)
    simulation.store.away = AWAY


async def come(simulation: World, plan: CounterPlan, uid: str = "", **more: Any) -> Receipt:
    """Let a Pod come as the interceptor does; one on which others must decide is admitted."""
    more.setdefault("event_source", SOURCE)
    guard = more.pop("guard", simulation.guard)
    request = simulation.request(plan, uid, **more)
    try:
        return await guard.acquire(request)
    except StoreUnavailableError:
        guard.book_later(request)
        return Receipt(0)


async def refusals(simulation: World, plan: CounterPlan, count: int, **more: Any) -> list[DeniedBy | None]:
    return [(await come(simulation, plan, **more)).refused for _ in range(count)]


async def back(simulation: World) -> None:
    simulation.store.away = ""
    await simulation.settled()


def stored(simulation: World, plan: CounterPlan) -> BreakerView:
    view = simulation.store.known_breaker(plan) or MemoryStore.last_breaker(simulation.store, plan)
    assert view is not None
    return view


def words(moves: Sequence[Transition]) -> list[str]:
    return [f"{move.old} {move.new}" for move in moves]


@pytest.mark.parametrize("plan", [LOCAL, ALLOW, DENY, NO_QUOTA], ids=("Local", "Allow", "Deny", "none"))
async def test_what_is_open_stays_open_until_its_time_and_then_its_part_of_the_probes_comes_in(
    simulation: World, plan: CounterPlan
) -> None:
    simulation.guard.set_replicas(2, 0)
    await trip(simulation, plan)
    for _ in range(2):
        receipt = await come(simulation, plan)
        assert (receipt.refused, receipt.local) == (DeniedBy.BREAKER, True)
        assert receipt.breaker is not None
        assert receipt.breaker.state is State.OPEN
        assert receipt.breaker.open_remaining_us(receipt.at_us) > 0, "for the countdown"
        simulation.sleep(OPEN_SECONDS // 2)
    assert await refusals(simulation, plan, 4) == [None, None, DeniedBy.BREAKER, DeniedBy.BREAKER], (
        "2 of 3 for one of two"
    )
    known = simulation.guard.known_breaker(plan)
    assert known is not None
    assert (known.state, known.probes_leased) == (State.HALF_OPEN, 2)
    await back(simulation)
    assert stored(simulation, plan).state is State.HALF_OPEN


@pytest.mark.parametrize(("replicas", "probes"), [(1, 3), (2, 2), (3, 1), (4, 1)])
async def test_each_replica_admits_at_least_one_probe(simulation: World, replicas: int, probes: int) -> None:
    simulation.guard.set_replicas(replicas, 0)
    await trip(simulation, LOCAL)
    simulation.sleep(OPEN_SECONDS)
    assert (await refusals(simulation, LOCAL, 5)).count(None) == probes


async def test_probes_that_succeed_here_close_it_here_and_afterwards_there(simulation: World) -> None:
    await trip(simulation, LOCAL)
    simulation.sleep(OPEN_SECONDS)
    receipt = await come(simulation, LOCAL)
    assert words(receipt.transitions) == ["OPEN HALF_OPEN"]
    await refusals(simulation, LOCAL, 2)
    assert await simulation.guard.record_outcomes(LOCAL, [GOOD, GOOD]) == ()
    assert words(await simulation.guard.record_outcomes(LOCAL, [GOOD])) == ["HALF_OPEN CLOSED"]
    assert await refusals(simulation, LOCAL, 5) == [None] * 5
    await back(simulation)
    view = stored(simulation, LOCAL)
    assert (view.state, view.generation, view.reason) == (State.CLOSED, 3, "3 probes succeeded")
    assert view.tripped_by, "the figures that tripped it last"


async def test_a_probe_that_fails_here_opens_it_here_and_afterwards_there(simulation: World) -> None:
    await trip(simulation, LOCAL)
    simulation.sleep(OPEN_SECONDS)
    await come(simulation, LOCAL, "probe")
    unknown = Outcomes(0, 1, 0, uid="another", generation=2)
    assert await simulation.guard.record_outcomes(LOCAL, [unknown]) == ()
    assert words(await simulation.guard.record_outcomes(LOCAL, [replace(unknown, uid="probe", generation=1)])) == [], (
        "it is stale"
    )
    assert words(await simulation.guard.record_outcomes(LOCAL, [replace(unknown, uid="probe")])) == ["HALF_OPEN OPEN"]
    known = simulation.guard.known_breaker(LOCAL)
    assert known is not None
    assert (known.state, known.generation) == (State.OPEN, 3)
    await back(simulation)
    assert stored(simulation, LOCAL) == known
    assert simulation.guard.known_breaker(LOCAL) == known


async def test_where_nothing_is_reported_a_charged_probe_closes_it(simulation: World) -> None:
    plan = replace(LOCAL, breaker=WITHOUT_OUTCOMES)
    await trip(simulation, plan)
    simulation.sleep(OPEN_SECONDS)
    receipts = [await come(simulation, plan) for _ in range(4)]
    assert [words(receipt.transitions) for receipt in receipts] == [["OPEN HALF_OPEN"], [], ["HALF_OPEN CLOSED"], []]
    await back(simulation)
    assert (stored(simulation, plan).state, stored(simulation, plan).generation) == (State.CLOSED, 3)


async def test_what_an_admission_without_a_receipt_brings_about_is_reported_by_the_next_tick(simulation: World) -> None:
    plan = replace(NO_QUOTA, breaker=replace(WITHOUT_OUTCOMES, probes=1))
    await trip(simulation, plan)
    simulation.sleep(OPEN_SECONDS)
    await come(simulation, plan)
    assert words(await simulation.guard.tick([plan])) == ["OPEN HALF_OPEN", "HALF_OPEN CLOSED"]
    with pytest.raises(StoreUnavailableError):
        await simulation.guard.tick([plan])


async def test_it_is_reported_though_the_store_is_back_by_then(simulation: World) -> None:
    plan = replace(NO_QUOTA, breaker=replace(WITHOUT_OUTCOMES, probes=1))
    await trip(simulation, plan)
    simulation.sleep(OPEN_SECONDS)
    await come(simulation, plan)
    simulation.store.away = ""
    assert words(await simulation.guard.tick([plan]))[:2] == ["OPEN HALF_OPEN", "HALF_OPEN CLOSED"]


async def test_what_is_closed_trips_by_what_is_counted_here_alone(simulation: World) -> None:
    await simulation.guard.snapshot(LOCAL)
    simulation.store.away = AWAY
    assert await refusals(simulation, LOCAL, 2) == [None, None]
    for _ in range(3):
        assert await simulation.guard.record_outcomes(LOCAL, [Outcomes(0, 10, 0)]) == ()
        simulation.sleep(1)
    assert words(await simulation.guard.tick([LOCAL])) == ["CLOSED OPEN"]
    assert (await come(simulation, LOCAL)).refused is DeniedBy.BREAKER
    await back(simulation)
    assert (stored(simulation, LOCAL).state, stored(simulation, LOCAL).generation) == (State.OPEN, 1)


async def test_refusals_by_a_share_trip_nothing(simulation: World) -> None:
    plan = replace(LOCAL, windows=(window(3600, pods=0),))
    await simulation.guard.snapshot(plan)
    simulation.store.away = AWAY
    for number in range(10):
        assert (await come(simulation, plan, event_source=f"controller:{number}")).refused is DeniedBy.QUOTA
    assert (await come(simulation, plan)).refused is DeniedBy.QUOTA
    await back(simulation)
    assert stored(simulation, plan).state is State.CLOSED


async def test_a_replica_that_never_counted_of_a_breaker_takes_it_for_closed_and_undoes_nothing(
    simulation: World,
) -> None:
    await trip(simulation, LOCAL)
    simulation.store.last_breaker = lambda _: None  # type: ignore[method-assign]
    guard = simulation.another()
    assert (await come(simulation, LOCAL, guard=guard)).refused is None
    simulation.store.away = ""
    await guard.close()
    assert stored(simulation, LOCAL).state is State.OPEN


async def test_what_is_counted_of_the_store_meanwhile_counts_if_it_is_further_on(simulation: World) -> None:
    await trip(simulation, LOCAL)
    assert (await come(simulation, LOCAL)).refused is DeniedBy.BREAKER
    simulation.sleep(1)
    await simulation.store.apply_override(LOCAL, reset_at_us=simulation.store._clock.now_us())
    assert stored(simulation, LOCAL).state is State.CLOSED
    assert simulation.guard.known_breaker(LOCAL) is None
    assert (await come(simulation, LOCAL)).refused is None
    await back(simulation)
    assert stored(simulation, LOCAL).state is State.CLOSED


async def test_a_lease_that_runs_out_here_frees_its_place(simulation: World) -> None:
    await trip(simulation, LOCAL)
    simulation.sleep(OPEN_SECONDS)
    assert await refusals(simulation, LOCAL, 4) == [None, None, None, DeniedBy.BREAKER]
    simulation.sleep(LEASE_SECONDS)
    transitions = await simulation.guard.tick([LOCAL])
    assert [(move.reason, move.is_change) for move in transitions] == [(EXPIRED, False)] * 3
    assert await refusals(simulation, LOCAL, 4) == [None, None, None, DeniedBy.BREAKER]


async def test_probes_that_were_out_when_the_store_went_away_hold_their_places(simulation: World) -> None:
    await trip(simulation, LOCAL)
    simulation.store.away = ""
    simulation.sleep(OPEN_SECONDS)
    assert await refusals(simulation, LOCAL, 2) == [None, None]
    simulation.store.away = AWAY
    assert await refusals(simulation, LOCAL, 2) == [None, DeniedBy.BREAKER]
    simulation.sleep(LEASE_SECONDS)
    assert await refusals(simulation, LOCAL, 4) == [None, None, None, DeniedBy.BREAKER]


@pytest.mark.parametrize("at_once", [False, True])
async def test_each_outcome_frees_the_place_of_one_probe_that_was_out_when_the_store_went_away(
    simulation: World,
    *,
    at_once: bool,
) -> None:
    await trip(simulation, LOCAL)
    simulation.store.away = ""
    simulation.sleep(OPEN_SECONDS)
    assert await refusals(simulation, LOCAL, 3) == [None] * 3
    simulation.store.away = AWAY
    transitions: list[str] = []
    for reported in [Outcomes(3, 0, 0)] if at_once else [GOOD] * 3:
        assert await refusals(simulation, LOCAL, 2) == [DeniedBy.BREAKER] * 2
        transitions += words(await simulation.guard.record_outcomes(LOCAL, [reported]))
    assert transitions == ["HALF_OPEN CLOSED"]


async def test_a_pod_that_was_refunded_is_no_probe(simulation: World) -> None:
    await trip(simulation, LOCAL)
    simulation.sleep(OPEN_SECONDS)
    await refusals(simulation, LOCAL, 2)
    await come(simulation, LOCAL, "gone")
    assert (await come(simulation, LOCAL)).refused is DeniedBy.BREAKER
    assert await simulation.guard.refund(LOCAL, "gone")
    assert await refusals(simulation, LOCAL, 2) == [None, DeniedBy.BREAKER]


async def test_a_dry_run_a_resize_and_who_was_here_before_take_no_probe(simulation: World) -> None:
    await come(simulation, LOCAL, "before")
    await trip(simulation, LOCAL)
    assert (await come(simulation, LOCAL, "before")).repeated
    assert (await come(simulation, LOCAL, "elder", resize_from={"pods": 1})).refused is None, "the breaker is not asked"
    assert (await come(simulation, LOCAL, peek=True)).refused is DeniedBy.BREAKER
    simulation.sleep(OPEN_SECONDS)
    assert await refusals(simulation, LOCAL, 5, peek=True) == [None] * 5
    assert (await come(simulation, ALLOW, "before")).refused is None
    first = await come(simulation, LOCAL, "a")
    assert (first.charged, first.repeated) == (True, False)
    assert (await come(simulation, LOCAL, "a")).repeated
    for plan in (ALLOW, NO_QUOTA):
        assert [(await come(simulation, plan, "a")).refused for _ in range(5)] == [None] * 5
    assert await refusals(simulation, LOCAL, 3) == [None, None, DeniedBy.BREAKER]


async def test_a_breaker_that_only_warns_or_degrades_admits_and_says_so(simulation: World) -> None:
    await trip(simulation, LOCAL)
    warning = replace(LOCAL, breaker_mode=Mode.WARN)
    receipt = await come(simulation, warning)
    assert (receipt.refused, receipt.would_refuse, receipt.charged) == (None, (DeniedBy.BREAKER,), True)
    assert receipt.breaker is not None
    assert receipt.breaker.state is State.OPEN
    degrading = replace(LOCAL, breaker=replace(BREAKER, degrades=True))
    receipt = await come(simulation, degrading)
    assert (receipt.refused, receipt.would_refuse, receipt.charged) == (None, (), True)


async def test_who_had_no_part_in_the_failures_probes_early_here_too(simulation: World) -> None:
    await trip(simulation, LOCAL)
    assert (
        await refusals(simulation, LOCAL, 5, event_source="controller:another") == [None] * 3 + [DeniedBy.BREAKER] * 2
    )
    assert await refusals(simulation, LOCAL, 1) == [DeniedBy.BREAKER]


async def test_a_hand_is_obeyed_without_the_store(simulation: World) -> None:
    await simulation.guard.snapshot(LOCAL)
    simulation.store.away = AWAY
    until_us = simulation.clock.us + 60_000_000
    forced = replace(LOCAL, breaker=replace(BREAKER, forcing=Forcing(State.FORCED_OPEN, until_us, "INC-1")))
    receipt = await come(simulation, forced)
    assert receipt.refused is DeniedBy.BREAKER
    assert receipt.breaker is not None
    assert (receipt.breaker.state, receipt.breaker.reason) == (State.FORCED_OPEN, "INC-1")
    assert (await come(simulation, LOCAL)).refused is None
    simulation.sleep(60)
    assert (await come(simulation, forced)).refused is None


@pytest.mark.parametrize("state", [State.FORCED_OPEN, State.FORCED_CLOSED])
async def test_a_hand_that_released_meanwhile_holds_nothing_here(simulation: World, state: State) -> None:
    forcing = Forcing(state, simulation.store._clock.now_us() + 600_000_000, "INC-1")
    await simulation.store.apply_override(replace(LOCAL, breaker=replace(BREAKER, forcing=forcing)))
    assert stored(simulation, LOCAL).state is state
    simulation.store.away = AWAY
    assert (await come(simulation, LOCAL)).refused is None
    for _ in range(3):
        await simulation.guard.record_outcomes(LOCAL, [Outcomes(0, 10, 0)])
        simulation.sleep(1)
    assert words(await simulation.guard.tick([LOCAL])) == ["CLOSED OPEN"]
    assert (await come(simulation, LOCAL)).refused is DeniedBy.BREAKER


async def test_a_hand_that_released_meanwhile_is_for_who_leads_to_write(simulation: World) -> None:
    forcing = Forcing(State.FORCED_OPEN, simulation.store._clock.now_us() + 600_000_000, "INC-1")
    await simulation.store.apply_override(replace(LOCAL, breaker=replace(BREAKER, forcing=forcing)))
    simulation.store.away = AWAY
    assert (await come(simulation, LOCAL)).refused is None
    await back(simulation)
    assert stored(simulation, LOCAL).state is State.FORCED_OPEN
    assert words(await simulation.store.apply_override(LOCAL)) == ["FORCED_OPEN CLOSED"]


async def test_a_trip_is_held_back_where_too_many_are_open(simulation: World) -> None:
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
    assert (await come(simulation, other)).refused is None


async def test_a_breaker_that_the_policy_takes_away_meanwhile_is_forgotten(simulation: World) -> None:
    await trip(simulation, LOCAL)
    assert (await come(simulation, LOCAL)).refused is DeniedBy.BREAKER
    without = replace(LOCAL, breaker=None)
    with pytest.raises(StoreUnavailableError):
        await simulation.guard.tick([without])
    assert (await come(simulation, without)).refused is None
    await back(simulation)


async def test_the_store_is_reported_before_anything_else_and_again_where_it_went_away_meanwhile(
    simulation: World,
) -> None:
    await trip(simulation, LOCAL)
    simulation.sleep(OPEN_SECONDS)
    await refusals(simulation, LOCAL, 3)
    await simulation.guard.record_outcomes(LOCAL, [BAD])
    transitions: list[str] = []
    offer, book = simulation.store.propose, simulation.store.book

    async def offered(plan: CounterPlan, view: BreakerView) -> None:
        transitions.append(view.state)
        if len(transitions) == 1:
            raise StoreUnavailableError("gone again")
        await offer(plan, view)

    async def booked(*asked: Any) -> int:
        transitions.append("booked")
        return await book(*asked)

    simulation.store.propose, simulation.store.book = offered, booked  # type: ignore[method-assign]
    await back(simulation)
    assert transitions == ["OPEN", "OPEN", "booked"]
    assert stored(simulation, LOCAL).state is State.OPEN


async def test_an_orderly_end_offers_what_is_known_here(simulation: World) -> None:
    await trip(simulation, LOCAL)
    simulation.sleep(OPEN_SECONDS)
    await refusals(simulation, LOCAL, 3)
    await simulation.guard.record_outcomes(LOCAL, [Outcomes(3, 0, 0)])
    simulation.store.away = ""
    await simulation.guard.close()
    assert stored(simulation, LOCAL).state is State.CLOSED


async def test_an_orderly_end_offers_it_though_no_pod_came(simulation: World) -> None:
    simulation.store.away = AWAY
    for _ in range(3):
        await simulation.guard.record_outcomes(LOCAL, [Outcomes(0, 10, 0)])
        simulation.sleep(1)
    simulation.store.away = ""
    await simulation.guard.close()
    assert stored(simulation, LOCAL).state is State.OPEN


# Partitions: one replica is cut off, and others share the store


class Way:
    """One replica's way to a store that others share."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._last: BreakerView | None = None
        self.is_cut = False

    def __getattr__(self, name: str) -> Any:
        async def asked(*args: Any) -> Any:
            if self.is_cut:
                raise StoreUnavailableError(AWAY)
            return await getattr(self._store, name)(*args)

        return asked

    def now_us(self) -> int:
        return int(self._store.now_us())

    def known_breaker(self, plan: CounterPlan) -> BreakerView | None:
        return None if self.is_cut else self._store.known_breaker(plan)

    def last_breaker(self, plan: CounterPlan) -> BreakerView | None:
        if not self.is_cut:
            self._last = self._store.last_breaker(plan)
        return self._last


async def cut_off(simulation: World) -> tuple[StoreFallback, Way]:
    """Cut off a replica that knows how the breaker stands now."""
    way = Way(simulation.store)
    guard = simulation.another(inner=way)
    way.last_breaker(LOCAL)
    way.is_cut = True
    return guard, way


async def close_alone(simulation: World, guard: StoreFallback) -> None:
    for _ in range(3):
        await come(simulation, LOCAL, guard=guard)
    assert words(await guard.record_outcomes(LOCAL, [Outcomes(3, 0, 0)]))[-1] == "HALF_OPEN CLOSED"


async def trip_alone(simulation: World, guard: StoreFallback) -> None:
    for _ in range(3):
        await guard.record_outcomes(LOCAL, [Outcomes(0, 10, 0)])
        simulation.sleep(1)
    await come(simulation, LOCAL, guard=guard)
    view = guard.known_breaker(LOCAL)
    assert view is not None
    assert view.state is State.OPEN


async def heal(guard: StoreFallback, way: Way) -> None:
    way.is_cut = False
    await guard.close()


async def test_a_close_of_a_replica_that_was_cut_off_does_not_erase_a_newer_trip(simulation: World) -> None:
    await trip(simulation, LOCAL)
    simulation.store.away = ""
    guard, way = await cut_off(simulation)
    simulation.sleep(OPEN_SECONDS)
    await close_alone(simulation, guard)
    await trip_alone(simulation, guard)
    simulation.sleep(OPEN_SECONDS)
    await close_alone(simulation, guard)
    await come(simulation, LOCAL, "probe")
    assert words(await simulation.guard.record_outcomes(LOCAL, [replace(BAD, uid="probe")])) == ["HALF_OPEN OPEN"]
    alone, shared = guard.known_breaker(LOCAL), stored(simulation, LOCAL)
    assert alone is not None
    assert (alone.state, shared.state) == (State.CLOSED, State.OPEN)
    assert alone.generation > shared.generation
    await heal(guard, way)
    assert stored(simulation, LOCAL).state is State.OPEN
    assert stored(simulation, LOCAL).since_us == shared.since_us
    assert guard.known_breaker(LOCAL) == stored(simulation, LOCAL), "and this replica knows it"
    assert await refusals(simulation, LOCAL, 2, guard=guard) == [DeniedBy.BREAKER] * 2
    assert stored(simulation, LOCAL).generation > alone.generation, "no number means two things"


async def test_a_trip_of_a_replica_that_was_cut_off_does_not_undo_a_reset_that_it_did_not_know(
    simulation: World,
) -> None:
    await trip(simulation, LOCAL)
    simulation.store.away = ""
    guard, way = await cut_off(simulation)
    simulation.sleep(OPEN_SECONDS)
    await close_alone(simulation, guard)
    await trip_alone(simulation, guard)
    await simulation.store.apply_override(LOCAL, reset_at_us=simulation.store._clock.now_us())
    await heal(guard, way)
    assert stored(simulation, LOCAL).state is State.CLOSED
    assert await refusals(simulation, LOCAL, 2, guard=guard) == [None] * 2


async def test_what_a_replica_decided_alone_holds_where_the_store_decided_nothing_meanwhile(simulation: World) -> None:
    await simulation.guard.snapshot(LOCAL)
    guard, way = await cut_off(simulation)
    await trip_alone(simulation, guard)
    await heal(guard, way)
    assert stored(simulation, LOCAL).state is State.OPEN


@pytest.mark.parametrize("closed_first", [True, False])
async def test_of_two_replicas_that_were_both_alone_the_more_shut_holds(
    simulation: World, *, closed_first: bool
) -> None:
    await trip(simulation, LOCAL)
    simulation.store.away = ""
    ways = [await cut_off(simulation) for _ in range(2)]
    simulation.sleep(OPEN_SECONDS)
    closed, opened = ways if closed_first else reversed(ways)
    await close_alone(simulation, closed[0])
    await trip_alone(simulation, closed[0])
    simulation.sleep(OPEN_SECONDS)
    await close_alone(simulation, closed[0])
    await come(simulation, LOCAL, guard=opened[0])
    assert words(await opened[0].record_outcomes(LOCAL, [BAD]))[-1:] == ["HALF_OPEN OPEN"]
    for guard, way in ways:
        await heal(guard, way)
    assert stored(simulation, LOCAL).state is State.OPEN


async def test_a_replica_that_is_cut_off_alone_admits_its_part_of_the_probes_beside_those_of_the_others(
    simulation: World,
) -> None:
    await trip(simulation, LOCAL)
    simulation.store.away = ""
    guard, way = await cut_off(simulation)
    guard.set_replicas(2, 1)
    simulation.sleep(OPEN_SECONDS)
    assert (await refusals(simulation, LOCAL, 5, guard=guard)).count(None) == 2
    assert (await refusals(simulation, LOCAL, 5)).count(None) == BREAKER.probes
    await heal(guard, way)
    assert stored(simulation, LOCAL).probes_leased == BREAKER.probes


async def test_an_outcome_of_the_branch_that_was_given_up_changes_nothing(simulation: World) -> None:
    await trip(simulation, LOCAL)
    simulation.store.away = ""
    guard, way = await cut_off(simulation)
    simulation.sleep(OPEN_SECONDS)
    await come(simulation, LOCAL, "alone", guard=guard)
    alone = guard.known_breaker(LOCAL)
    assert alone is not None
    await guard.record_outcomes(LOCAL, [replace(BAD, uid="alone")])
    await come(simulation, LOCAL, "shared")
    await simulation.guard.record_outcomes(LOCAL, [replace(BAD, uid="shared")])
    await heal(guard, way)
    simulation.sleep(OPEN_SECONDS)
    await come(simulation, LOCAL, "probe")
    before = stored(simulation, LOCAL)
    assert before.state is State.HALF_OPEN
    for generation in range(alone.generation, alone.generation + 3):
        stale = [replace(BAD, generation=generation), replace(BAD, uid="alone", generation=generation)]
        assert await simulation.guard.record_outcomes(LOCAL, stale) == ()
    assert stored(simulation, LOCAL) == before


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("come"), st.integers(0, 1)),
        st.tuples(st.just("good"), st.integers(0, 1)),
        st.tuples(st.just("bad"), st.integers(0, 1)),
        st.tuples(st.just("many bad"), st.integers(0, 1)),
        st.tuples(st.just("tick"), st.integers(0, 1)),
        st.tuples(st.just("sleep"), st.sampled_from((1, 60, OPEN_SECONDS, LEASE_SECONDS))),
    ),
    max_size=40,
)
HEARD = {"good": GOOD, "bad": BAD, "many bad": Outcomes(0, 10, 0)}


async def live(steps: Sequence[tuple[str, int]], first_back: int) -> BreakerView:
    """Let two replicas live through the steps without the store, come back in an order; return what the store knows.

    All the while none lets in more than its part of the probes, and every OPEN ends.
    """
    simulation = World()
    guards = [simulation.another(replicas=2, ordinal=ordinal) for ordinal in range(2)]
    await trip(simulation, LOCAL)
    for guard in guards:
        simulation.store.away = ""
        await guard.snapshot(LOCAL)
    simulation.store.away = AWAY
    for what, number in steps:
        if what == "sleep":
            simulation.sleep(number)
            continue
        guard = guards[number]
        if what == "come":
            await come(simulation, LOCAL, guard=guard)
        elif what == "tick":
            with suppress(StoreUnavailableError):
                await guard.tick([LOCAL])
        else:
            await guard.record_outcomes(LOCAL, [HEARD[what]])
        _holds(guard, simulation)
    simulation.store.away = ""
    for guard in (guards[first_back], guards[1 - first_back]):
        await guard.close()
    found = stored(simulation, LOCAL)
    simulation.sleep(OPEN_SECONDS + LEASE_SECONDS)
    assert (await come(simulation, LOCAL)).refused is not DeniedBy.BREAKER, "nothing is stuck"
    await simulation.guard.close()
    return found


def _holds(guard: StoreFallback, simulation: World) -> None:
    view = guard.known_breaker(LOCAL)
    assert view is not None
    if view.state is State.HALF_OPEN:
        assert view.probes_leased + view.probes_succeeded <= 2
    if view.state is State.OPEN:
        assert 0 < view.open_until_us - guard.now_us() <= BREAKER.open_for_us
    assert simulation.store.away


TRIPPED_AGAIN = [step for _ in range(3) for step in (("many bad", 0), ("sleep", 1))]
PROBING_AND_CLOSED = [
    *[("sleep", OPEN_SECONDS), ("come", 0), ("come", 0), ("good", 0), ("good", 0), *TRIPPED_AGAIN, ("tick", 0)],
    *[("come", 1), ("bad", 1), ("sleep", OPEN_SECONDS), ("come", 0)],
    *[("come", 1), ("come", 1), ("good", 1), ("good", 1)],
]
"""One is closed, trips again and probes; the other fails, probes again and is closed: both of generation 5."""


@examples(60)
@example(PROBING_AND_CLOSED)
@given(STEPS)
def test_two_replicas_come_to_one_state_whoever_is_back_first(steps: list[tuple[str, int]]) -> None:
    found = [asyncio.run(live(steps, first_back)) for first_back in (0, 1)]
    one, other = [(view.state, view.since_us, view.open_until_us, view.tripped_at_us) for view in found]
    assert one == other
