"""Breaker transitions of a call that missed its deadline are reported once by the next tick: on a real server."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import Any

import pytest
from msgspec.structs import replace

from tests.contract.counter_store import BREAKER
from tests.core.plans import plan_of, window
from tests.redis_servers import RedisServer
from webhook.adapters.clocks import SystemClock
from webhook.adapters.redis_store import RedisStore, lane, open_transport, waiting_operations
from webhook.core.breaker import BreakerView, Forcing, QuotaEventPlan, State, Transition
from webhook.core.breaker.outcome_types import Outcomes, Start
from webhook.core.quota import Acquire, CounterPlan
from webhook.errors import StoreUnavailableError
from webhook.ports import StoreReports

pytest_plugins = ("tests.redis_servers.fixtures",)

FAR_US = 4_000_000_000_000_000
"""A time in the far future."""

PLAN = plan_of(breaker=replace(BREAKER, probes=1))
IDLE = plan_of(service="idle", tag="idle", breaker=BREAKER)
FULL = replace(
    plan_of(service="full", tag="full"),
    windows=(window(60, pods=0),),
    breaker=replace(BREAKER, quota=QuotaEventPlan(count=1, within_us=60_000_000, by_controller=True)),
)
FORCED = replace(PLAN, breaker=replace(BREAKER, forcing=Forcing(State.FORCED_OPEN, FAR_US, "INC-1")))
POD = Acquire(PLAN, "payments", "uid", {"pods": 1}, "controller:x")
EXPIRED = BreakerView(State.OPEN, 1, 1, 2, "tripped", tripped_at_us=1, tripped_by="tripped")
"""Open, with its time over: the next Pod may probe."""


@asynccontextmanager
async def store_on(server: RedisServer) -> AsyncIterator[RedisStore]:
    """Open a store with a breaker that waits for its probe, and another that is due for one."""
    reports = StoreReports(int, str, str)
    store = RedisStore(open_transport(server.url), "test", SystemClock(), reports, deadline_seconds=30)
    try:
        for plan in (PLAN, IDLE):
            await store.propose(plan, EXPIRED)
        assert (await store.acquire(POD)).charged
        yield store
    finally:
        await store.close()


async def check_reported(store: RedisStore, plan: CounterPlan, expected: list[str]) -> None:
    """Tick until the late answer has arrived, and once more."""
    transitions: Sequence[Transition] | None = None
    while transitions is None:
        with suppress(StoreUnavailableError):  # while an answer is late, the store sends nothing else
            transitions = await store.tick([plan])
    assert [f"{transition.old} {transition.new}" for transition in transitions] == expected
    assert await store.tick([plan]) == []


Call = Callable[[RedisStore], Awaitable[Any]]
CALLS: dict[str, tuple[Call, list[str]]] = {
    "acquire": (lambda store: store.acquire(replace(POD, plan=FULL)), ["CLOSED OPEN"]),
    "record_outcomes": (
        lambda store: store.record_outcomes(PLAN, [Outcomes.from_single(ok=True, latency_us=0, uid="uid")]),
        ["HALF_OPEN CLOSED"],
    ),
    "started": (lambda store: store.record_starts(PLAN, [Start("uid", ok=False, latency_us=0)]), ["HALF_OPEN OPEN"]),
    "apply_override": (lambda store: store.apply_override(FORCED), ["HALF_OPEN FORCED_OPEN"]),
    "tick": (lambda store: store.tick([IDLE]), ["OPEN HALF_OPEN"]),
    "snapshot": (lambda store: store.snapshot(PLAN), []),
}


async def run_with_late_answer(
    store: RedisStore, call: Call, monkeypatch: pytest.MonkeyPatch, in_time: int = 0
) -> None:
    """Make a call whose answer misses the deadline; the first `in_time` answers are in time."""
    run, answered, numbers = store._transport.run, asyncio.Event(), count()

    async def run_late(keys: Sequence[str], argument: bytes) -> Any:
        answer = await run(keys, argument)
        if next(numbers) >= in_time:
            await answered.wait()
        return answer

    with monkeypatch.context() as patched:
        patched.setattr(lane, "_PATIENT_SECONDS", 0.01)
        patched.setattr(store._lanes, "_deadline_seconds", 0.01)
        patched.setattr(store._transport, "run", run_late)
        store._lanes._lanes.clear()
        try:
            with pytest.raises(StoreUnavailableError):
                await call(store)
        finally:
            answered.set()


@pytest.mark.parametrize("kind", CALLS)
async def test_transition_of_a_late_answer_is_reported_once_by_the_next_tick(
    redis_server: RedisServer, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    call, expected = CALLS[kind]
    async with store_on(redis_server) as store:
        await run_with_late_answer(store, call, monkeypatch)
        await check_reported(store, FORCED if kind == "apply_override" else PLAN, expected)


async def test_timely_transition_is_reported_although_a_later_answer_was_late(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = [Start(uid, ok=False, latency_us=0) for uid in ("uid", "another")]
    async with store_on(redis_server) as store:
        monkeypatch.setattr(waiting_operations, "_PATIENT_MAX", 1)
        await run_with_late_answer(store, lambda store: store.record_starts(PLAN, starts), monkeypatch, in_time=1)
        await check_reported(store, PLAN, ["HALF_OPEN OPEN"])
