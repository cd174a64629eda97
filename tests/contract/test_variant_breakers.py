"""The law of a variant's breaker, on each store: Pods that find no node open it, and probes that find one close it."""

from collections.abc import Sequence

from msgspec.structs import replace

from tests.contract.counter_store import SECOND_US, HandClock, ask, clock, read_state, store
from tests.contract.store_steps import Store
from tests.core.breakers import VARIANT
from tests.core.plans import plan_of
from webhook.core.breaker import BreakerPlan, Forcing, State, Transition, TransitionCause
from webhook.core.breaker.outcome_types import Outcomes
from webhook.core.quota import CounterPlan, DeniedBy
from webhook.ports import CounterStore

__all__ = ["clock", "store"]

pytest_plugins = ("tests.redis_servers.fixtures",)

OPEN_US = VARIANT.open_for_us
PROBE_US = VARIANT.probe_timeout_us
SPOT = plan_of(service="web/spot", tag="web", breaker=VARIANT)
WEB = plan_of(service="web", tag="web")


async def report(store: CounterStore, plan: CounterPlan, *claims: str, ok: bool = False) -> Sequence[Transition]:
    outcomes = [Outcomes.from_single(ok=ok, latency_us=0, uid=claim) for claim in claims]
    return await store.record_outcomes(plan, outcomes)


async def open_variant(store: CounterStore, clock: HandClock, plan: CounterPlan = SPOT) -> Transition:
    await report(store, plan, "a", "b", "c")
    clock.sleep(1)
    (opened,) = await store.tick([plan, WEB])
    return opened


async def probe(store: CounterStore, clock: HandClock, plan: CounterPlan = SPOT) -> None:
    """Open it, wait for HALF_OPEN, and take the one token."""
    await open_variant(store, clock, plan)
    clock.us += OPEN_US
    await store.tick([plan, WEB])
    assert (await ask(store, plan, "d")).charged


async def test_pods_without_a_node_open_it(store: CounterStore, clock: HandClock) -> None:
    opened = await open_variant(store, clock)
    assert (opened.service, opened.old, opened.new) == ("web/spot", State.CLOSED, State.OPEN)
    assert opened.cause is TransitionCause.UNSCHEDULABLE
    assert opened.reason == "unschedulable: no node for 300s, 3 Pods"
    view = (await store.snapshot(SPOT)).breaker
    assert view is not None
    assert (view.state, view.open_until_us, view.early) == (State.OPEN, clock.us + OPEN_US, 0)
    assert (await ask(store, SPOT, "d")).refused is DeniedBy.BREAKER


async def test_one_pod_is_enough_whatever_the_others_do(store: CounterStore, clock: HandClock) -> None:
    await store.record_outcomes(SPOT, [Outcomes(1000, 0, 0), Outcomes(0, 1, 0)])
    clock.sleep(1)
    (opened,) = await store.tick([SPOT])
    assert opened.reason == "unschedulable: no node for 300s, 1 Pod"


async def test_pods_that_found_a_node_do_not_open_it(store: CounterStore, clock: HandClock) -> None:
    await report(store, SPOT, "a", "b", ok=True)
    clock.sleep(2)
    assert not await store.tick([SPOT])
    assert await read_state(store, SPOT) is State.CLOSED


async def test_one_token_is_given_once_open_for_has_passed(store: CounterStore, clock: HandClock) -> None:
    await probe(store, clock)
    assert await read_state(store, SPOT) is State.HALF_OPEN
    assert [(await ask(store, SPOT, claim)).refused for claim in "efg"] == [DeniedBy.BREAKER] * 3
    assert (await ask(store, SPOT, "d")).repeated, "the same claim has its token"


async def test_a_bound_probe_closes_it(store: CounterStore, clock: HandClock) -> None:
    await probe(store, clock)
    assert not await report(store, SPOT, "unknown", ok=True), "a Pod that is no probe proves nothing"
    (closed,) = await report(store, SPOT, "d", ok=True)
    assert (closed.new, closed.cause, closed.reason) == (
        State.CLOSED,
        TransitionCause.PROBES_SUCCEEDED,
        "1 probe succeeded",
    )
    assert (await ask(store, SPOT, "e")).charged


async def test_a_probe_without_a_node_opens_it_again(store: CounterStore, clock: HandClock) -> None:
    await probe(store, clock)
    (opened,) = await report(store, SPOT, "d")
    assert (opened.old, opened.new, opened.cause) == (State.HALF_OPEN, State.OPEN, TransitionCause.PROBE_FAILED)
    assert (await ask(store, SPOT, "e")).refused is DeniedBy.BREAKER
    clock.us += OPEN_US
    await store.tick([SPOT])
    assert (await ask(store, SPOT, "f")).charged


async def test_a_probe_that_says_nothing_expires(store: CounterStore, clock: HandClock) -> None:
    await probe(store, clock)
    clock.us += PROBE_US - 1
    assert not await store.tick([SPOT])
    clock.us += 1
    (expired,) = await store.tick([SPOT])
    assert (expired.cause, expired.is_change) == (TransitionCause.PROBE_EXPIRED, False)
    assert (await ask(store, SPOT, "e")).charged, "the next Pod takes the token"


async def test_a_probe_that_was_not_made_gives_its_token_back(store: CounterStore, clock: HandClock) -> None:
    await probe(store, clock)
    await store.refund(SPOT, "d")
    assert (await ask(store, SPOT, "e")).charged


async def test_as_many_probes_as_the_policy_says_must_be_bound(store: CounterStore, clock: HandClock) -> None:
    plan = replace(SPOT, breaker=replace(VARIANT, probes=2))
    await probe(store, clock, plan)
    assert (await ask(store, plan, "e")).charged
    assert (await ask(store, plan, "f")).refused is DeniedBy.BREAKER
    assert not await report(store, plan, "d", ok=True)
    (closed,) = await report(store, plan, "e", ok=True)
    assert closed.reason == "2 probes succeeded"


async def test_a_forced_state_holds_whatever_pods_find(store: Store, clock: HandClock) -> None:
    until_us = clock.us + 60 * SECOND_US
    for state, refused in ((State.FORCED_OPEN, DeniedBy.BREAKER), (State.FORCED_CLOSED, None)):
        forced = replace(SPOT, breaker=replace(VARIANT, forcing=Forcing(state, until_us, "INC-1")))
        (entered,) = await store.apply_override(forced)
        assert (entered.new, entered.reason) == (state, "INC-1")
        assert not await report(store, forced, "a", "b")
        clock.sleep(1)
        assert not await store.tick([forced])
        assert (await ask(store, forced, f"pod-{state}")).refused is refused
    clock.us = until_us
    (released,) = await store.tick([SPOT])
    assert (released.new, released.cause) == (State.CLOSED, TransitionCause.RELEASED)


async def test_a_reset_closes_it(store: Store, clock: HandClock) -> None:
    await open_variant(store, clock)
    clock.sleep(1)
    (reset,) = await store.apply_override(SPOT, clock.us)
    assert (reset.old, reset.new, reset.cause) == (State.OPEN, State.CLOSED, TransitionCause.RESET)


async def test_a_variant_does_not_count_for_the_guard(store: CounterStore, clock: HandClock) -> None:
    guarded = replace(WEB, breaker=_guard(1))
    await open_variant(store, clock)
    await store.tick([SPOT, guarded])
    await report(store, guarded, "x")
    clock.sleep(1)
    (opened,) = await store.tick([SPOT, guarded])
    assert (opened.service, opened.new) == ("web", State.OPEN), "nothing else that counts is open"
    other = replace(WEB, service="shop", breaker=_guard(1))
    await report(store, other, "y")
    await report(store, replace(SPOT, service="shop/spot"), "z")
    clock.sleep(1)
    held, more = await store.tick([SPOT, guarded, other, replace(SPOT, service="shop/spot")])
    assert (held.service, held.is_held_back) == ("shop", True)
    assert (more.service, more.new) == ("shop/spot", State.OPEN), "a variant is never held back"


def _guard(open_max: int) -> BreakerPlan:
    return replace(VARIANT, open_max=open_max)
