"""Contract of `SharedStore.withdraw`, run against each implementation: it undoes only a charge that nobody relies on.

The stores are those of `counter_store.py`, whose `store` fixture gives each in turn.
"""

from typing import Protocol

import pytest
from msgspec.structs import replace

from tests.contract.counter_store import (
    BREAKER,
    ONE,
    SECOND_US,
    HandClock,
    ask,
    clock,
    read_state,
    read_usage,
    store,
    trip,
)
from tests.core.plans import plan_of, standing, window
from webhook.core.breaker import State
from webhook.core.quota import Acquire, Booking, CounterPlan, Sighting
from webhook.ports import PodLedger, SharedStore

pytest_plugins = ("tests.redis_servers.fixtures",)

__all__ = ("clock", "store")

PLAN = plan_of(window(64, pods=2), standing=standing(pods=2))


class Store(SharedStore, PodLedger, Protocol):
    """The interface of both stores."""


async def withdraw(
    store: Store, uid: str, charged_us: int | None = None, *, plan: CounterPlan = PLAN, namespace: str = "payments"
) -> bool:
    return await store.withdraw(Acquire(plan, namespace, uid, ONE, ""), charged_us)


@pytest.mark.parametrize("is_known", [True, False])
async def test_charge_is_withdrawn_as_if_it_had_never_been_made(store: Store, *, is_known: bool) -> None:
    charged = await ask(store, PLAN, "a")
    assert await withdraw(store, "a", charged.at_us if is_known else None)
    assert await read_usage(store, PLAN) == {"": [0, 0]}
    assert await store.list_overdue(PLAN, 0, 9) == []
    assert await store.find_charged_us(Acquire(PLAN, "payments", "a", ONE, "")) is None
    assert not await withdraw(store, "a", charged.at_us), "once"
    assert await store.book(PLAN, [Booking("payments", "a", ONE, charged.at_us)]) == 1, "a refunded one is not booked"
    assert await read_usage(store, PLAN) == {"": [1, 1]}


async def test_charge_of_another_time_is_not_withdrawn(store: Store, clock: HandClock) -> None:
    first = await ask(store, PLAN, "a")
    assert await withdraw(store, "a", first.at_us)
    clock.sleep(1)
    await ask(store, PLAN, "a")
    assert not await withdraw(store, "a", first.at_us)
    assert await read_usage(store, PLAN) == {"": [1, 1]}


@pytest.mark.parametrize("seconds", [0, 1])
async def test_charge_that_another_call_has_confirmed_is_not_withdrawn(
    store: Store, clock: HandClock, seconds: int
) -> None:
    charged = await ask(store, PLAN, "a")
    booked = await ask(store, PLAN, "b")
    clock.sleep(seconds)
    assert (await ask(store, PLAN, "a")).repeated
    assert await store.book(PLAN, [Booking("payments", "b", ONE, booked.at_us)]) == 0
    for uid, at_us in (("a", charged.at_us), ("b", booked.at_us)):
        assert not await withdraw(store, uid, at_us)
        assert not await withdraw(store, uid)
    assert await read_usage(store, PLAN) == {"": [2, 2]}
    assert await store.refund(PLAN, "a"), "the controller knows that it was never created"


async def test_charge_that_was_asked_for_is_not_withdrawn(store: Store) -> None:
    charged = await ask(store, PLAN, "a")
    assert await store.find_charged_us(Acquire(PLAN, "payments", "a", ONE, "")) == charged.at_us
    assert not await withdraw(store, "a", charged.at_us)
    assert await read_usage(store, PLAN) == {"": [1, 1]}


async def test_dry_run_confirms_nothing(store: Store) -> None:
    charged = await ask(store, PLAN, "a")
    assert (await ask(store, PLAN, "a", peek=True)).repeated
    assert await store.find_charged_us(Acquire(PLAN, "payments", "a", ONE, "", peek=True)) == charged.at_us
    assert await withdraw(store, "a", charged.at_us)


async def test_charge_of_a_pod_that_was_seen_is_not_withdrawn(store: Store) -> None:
    charged = await ask(store, PLAN, "a")
    await store.observe(PLAN, [Sighting("payments", "a-pod", "a", ONE, lives=True)])
    assert not await withdraw(store, "a", charged.at_us)
    assert not await withdraw(store, "a")
    assert await read_usage(store, PLAN) == {"": [1, 1]}


async def test_charge_of_another_service_or_namespace_is_not_withdrawn(store: Store) -> None:
    other, scoped = replace(PLAN, service="other"), replace(PLAN, service="scoped", per_namespace=True)
    await ask(store, other, "a")
    await ask(store, scoped, "b")
    assert not await withdraw(store, "a")
    assert not await withdraw(store, "b", plan=scoped, namespace="elsewhere")
    assert await withdraw(store, "b", plan=scoped)


async def test_unknown_and_refunded_pods_are_not_withdrawn(store: Store) -> None:
    charged = await ask(store, PLAN, "a")
    await store.refund(PLAN, "a")
    assert not await withdraw(store, "a", charged.at_us)
    assert not await withdraw(store, "stranger")


async def test_probe_of_a_withdrawn_charge_is_given_back(store: Store, clock: HandClock) -> None:
    plan = plan_of(window(3600, pods=9), breaker=replace(BREAKER, probes=1))
    await trip(store, clock, plan)
    clock.sleep(180)
    probe = await ask(store, plan, "a")
    assert probe.charged
    assert await read_state(store, plan) is State.HALF_OPEN
    assert (await ask(store, plan, "b")).refused is not None
    assert await withdraw(store, "a", probe.at_us, plan=plan)
    assert (await ask(store, plan, "b")).charged


async def test_confirmed_pod_is_waited_for_as_long_as_others(store: Store, clock: HandClock) -> None:
    await ask(store, PLAN, "a")
    clock.sleep(60)
    await ask(store, PLAN, "a")
    assert [pod.uid for pod in await store.list_overdue(PLAN, 60 * SECOND_US, 9)] == ["a"]
