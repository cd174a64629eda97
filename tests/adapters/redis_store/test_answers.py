"""RedisStore learns the same from answers, whether or not it skips one that repeats the facts of the last."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.contract.counter_store import BREAKER
from tests.core.plans import plan_of, window
from webhook.adapters.clocks import VirtualClock
from webhook.adapters.redis_store.store import RedisStore
from webhook.adapters.redis_store.transport.stream import RespStream
from webhook.core.quota import Acquire
from webhook.ports import StoreReports

START_US = 1_700_000_000_000_000
PLAN = plan_of(window(60, pods=9), breaker=BREAKER)
PLANS = (PLAN, replace(PLAN, service="web"), replace(PLAN, windows=()))
VIEWS = (
    True,
    ["CLOSED", 1, START_US, 0, "", 0, 0],
    ["OPEN", 2, START_US, START_US + 9, "tripped", 0, 0, START_US, "errorRate", 0, []],
    False,
)
ANSWERS = st.tuples(
    st.sampled_from(PLANS),
    st.integers(START_US, START_US + 2),
    st.sampled_from(VIEWS),
    st.booleans(),
    st.booleans(),
    st.sampled_from([0, START_US, START_US + 1]),
)


class CannedTransport:
    """Answers each call with the result of one acquire."""

    one_tag_a_call = False
    on_connected = None

    def __init__(self) -> None:
        self.result: Sequence[Any] = ()

    def lane(self, _: str) -> str:
        return ""

    async def run(self, keys: Sequence[str], argument: bytes) -> bytes:  # noqa: ARG002  any call has this answer
        return msgspec.msgpack.encode([self.result])

    async def ask_histories(self) -> Mapping[str, str]:
        return {"": "server"}

    async def infos(self) -> Mapping[str, bytes]:
        return {}

    async def ping(self) -> None: ...

    async def forget(self, pattern: str) -> int:  # noqa: ARG002  the protocol's
        return 0

    async def dial(self, key: str = "") -> RespStream:
        raise NotImplementedError(key)

    async def close(self) -> None: ...


async def learn(answers: Sequence[tuple[Any, ...]], *, skips_repeated: bool) -> tuple[Any, ...]:
    """Return what a store knows after these answers."""
    losses: list[int] = []
    transport, clock = CannedTransport(), VirtualClock(START_US)
    reports = StoreReports(lambda: None, lambda _: None, lambda _: None)
    store = RedisStore(transport, "test", clock, reports, deadline_seconds=30)
    store.on_loss = lambda: losses.append(1)
    for number, (plan, at_us, view, charged, peek, born_us) in enumerate(answers):
        used = [0] * len(plan.limits)
        transport.result = at_us, 0, 0, charged and not peek, False, used, [], view, False, born_us, 0
        await store.acquire(Acquire(plan, "payments", f"{number}", {"pods": 1}, "user:x", peek))
        if not skips_repeated:
            store._learned = None
    known = [store.find_last_breaker(plan) for plan in PLANS]
    births = [store.losses.find_birth(store._plans.prepare(plan).keys.home, START_US) for plan in PLANS]
    await store.close()
    return known, births, len(losses), store.now_us()


@given(st.lists(st.tuples(ANSWERS, st.integers(1, 3)), max_size=12))
def test_repeated_facts_teach_nothing(runs: list[tuple[tuple[Any, ...], int]]) -> None:
    answers = [answer for answer, times in runs for _ in range(times)]
    with asyncio.Runner() as runner:
        expected = runner.run(learn(answers, skips_repeated=False))
        assert runner.run(learn(answers, skips_repeated=True)) == expected
