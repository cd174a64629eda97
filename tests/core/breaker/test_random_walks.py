"""Random walks of a breaker: it agrees with a simple model, can always close, and time may pass in any steps."""

from functools import partial

from hypothesis import example, given
from hypothesis import strategies as st

from tests.core.breaker.random_walks import Operation, Pair, convert_transition, plans, strip_view
from tests.core.breaker_model import plan_of
from tests.core.strategies import examples
from webhook.core import breaker as machine
from webhook.core.breaker import (
    TRANSITIONS,
    BreakerPlan,
    QuotaEventPlan,
    State,
)

uids = st.sampled_from("abcd")
sources = st.sampled_from(["a", "b", "c", "d", "user:e", ""])
operations: st.SearchStrategy[Operation] = st.one_of(
    st.tuples(
        st.just("record_outcomes"),
        st.sampled_from([(1, 0), (0, 1), (0, 1), (3, 2), (0, 0)]),
        st.sampled_from([0, 5, 9]),
        st.none() | uids,
        st.sampled_from([None, None, 0, -1]),
        st.sampled_from([0, 0, 1, 7, 12, -3]),
        sources,
    ),
    st.tuples(st.just("refused"), sources),
    st.tuples(st.just("charge"), uids, sources),
    st.tuples(st.just("charge"), uids, st.sampled_from("xyz")),
    st.tuples(st.just("give back"), uids),
)
manual_operations: st.SearchStrategy[Operation] = st.one_of(
    st.tuples(st.just("force"), st.sampled_from([None, State.FORCED_OPEN, State.FORCED_CLOSED]), st.integers(-5, 40)),
    st.tuples(st.just("by hand"), st.sampled_from([None, None, -3, 0, 9])),
    st.tuples(st.just("suppress_quota_events"), st.lists(sources, max_size=2)),
    st.tuples(
        st.just("propose"),
        st.sampled_from([State.CLOSED, State.OPEN, State.HALF_OPEN, State.FORCED_OPEN]),
        st.integers(-1, 2),
        st.integers(-9, 30),
        st.lists(st.sampled_from(["controller:a", "user:e"]), unique=True),
    ),
    st.tuples(st.just("guard"), st.sampled_from([None, 0, 2]), st.integers(0, 3)),
)
gaps = st.sampled_from([0, 0, 1, 3, 5, 10, 12, 41])
walks = st.lists(st.tuples(gaps, operations), max_size=60)
manual_walks = st.lists(st.tuples(gaps, operations | operations | manual_operations), max_size=60)
lates = st.sampled_from([0, 3, 14])


EARLY = partial(plan_of, quota=QuotaEventPlan(1, 25, by_controller=True), has_outcomes=True)
EXPIRES_AS_GIVEN_BACK: list[tuple[int, Operation]] = [
    (3, ("refused", "c")),
    (12, ("charge", "b", "y")),
    (1, ("give back", "b")),
]
TWICE_A_PROBE: list[tuple[int, Operation]] = [
    (0, ("refused", "c")),
    (3, ("charge", "b", "x")),
    (0, ("charge", "b", "x")),
    (0, ("give back", "b")),
]


@examples(150)
@given(plans, lates, manual_walks)
@example(EARLY(probe_timeout_us=1), 0, EXPIRES_AS_GIVEN_BACK)
@example(EARLY(), 0, TWICE_A_PROBE)
def test_any_walk_agrees_with_the_model(plan: BreakerPlan, late_us: int, walk: list) -> None:  # type: ignore[type-arg]
    pair = Pair.from_plan(plan, late_us)
    breaker, model = pair
    for gap_us, operation in walk:
        now_us = model.now_us + gap_us
        model.pass_time(now_us)
        if operation[0] in {"force", "guard", "propose"}:
            breaker.find_state(now_us)  # these do not advance the breaker
        pair.apply(operation)
        view = strip_view(breaker.view(now_us))
        assert view == model.view()
        assert view.probes_leased + view.probes_succeeded <= plan.probes
    breaker.find_state(model.now_us)
    assert [convert_transition(move) for move in breaker.moves] == model.moves
    transitions = {(old, new) for (old, _), new in TRANSITIONS.items()}
    assert {(move.old, move.new) for move in breaker.moves if move.is_change} <= transitions


@examples(50)
@given(plans, lates, walks)
def test_each_transition_increments_the_generation(plan: BreakerPlan, late_us: int, walk: list) -> None:  # type: ignore[type-arg]
    pair = Pair.from_plan(plan, late_us)
    for gap_us, operation in walk:
        pair.model.pass_time(pair.model.now_us + gap_us)
        pair.apply(operation)
    changes = [move.generation for move in pair.breaker.moves if move.is_change]
    assert changes == list(range(1, len(changes) + 1))


@examples(50)
@given(plans, lates, manual_walks, st.integers(0, 60), st.integers(0, 60))
def test_advance_in_two_steps_equals_one_step(
    plan: BreakerPlan,
    late_us: int,
    walk: list,  # type: ignore[type-arg]
    first: int,
    second: int,
) -> None:
    pair = Pair.from_plan(plan, late_us)
    for gap_us, operation in walk:
        pair.model.pass_time(pair.model.now_us + gap_us)
        pair.breaker.find_state(pair.model.now_us)
        pair.apply(operation)
    breaker, now_us = pair.breaker, pair.model.now_us
    whole = machine.advance(breaker.record, breaker.plan, now_us + first + second, breaker.environment)
    early = machine.advance(breaker.record, breaker.plan, now_us + first, breaker.environment)
    late = machine.advance(early.record, breaker.plan, now_us + first + second, breaker.environment)
    assert late.record == whole.record
    assert early.transitions + late.transitions == whole.transitions


@examples(50)
@given(plans, lates, manual_walks, plans)
def test_breaker_closes_after_any_walk_and_policy_change(
    plan: BreakerPlan, late_us: int, walk: list, newer: BreakerPlan
) -> None:  # type: ignore[type-arg]
    pair = Pair.from_plan(plan, late_us)
    for gap_us, operation in walk:
        pair.model.pass_time(pair.model.now_us + gap_us)
        pair.breaker.find_state(pair.model.now_us)
        pair.apply(operation)
    breaker, now_us = pair.breaker, pair.model.now_us
    breaker.plan = newer
    now_us += max(plan.open_for_us, newer.open_for_us) + plan.probe_timeout_us + 100
    assert breaker.find_state(now_us) in {State.CLOSED, State.HALF_OPEN}, "all other states end by time"
    for number in range(newer.probes):
        uid = f"good-{number}"
        if breaker.record.state is State.HALF_OPEN:
            assert breaker.charge(now_us, uid)
            breaker.record_outcome(now_us, ok=True, uid=uid)
    assert breaker.record.state is State.CLOSED


@examples(50)
@given(plans, lates, walks, st.tuples(st.sampled_from([-1, 1]), st.booleans()))
def test_an_outcome_of_another_generation_changes_nothing(
    plan: BreakerPlan,
    late_us: int,
    walk: list,  # type: ignore[type-arg]
    stray: tuple[int, bool],
) -> None:
    offset, ok = stray
    pair = Pair.from_plan(plan, late_us)
    for gap_us, operation in walk:
        pair.model.pass_time(pair.model.now_us + gap_us)
        pair.apply(operation)
    breaker, now_us = pair.breaker, pair.model.now_us
    breaker.find_state(now_us)
    before, kept = breaker.record, {lease.generation for lease in breaker.record.leases}
    if before.generation + offset not in kept:
        for uid in (None, *"abcd"):
            breaker.record_outcome(now_us, ok=ok, uid=uid, generation=before.generation + offset, latency_us=99)
    assert breaker.record is before
