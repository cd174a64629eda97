import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from tests.contract.test_counter_store import DEADLINE_SECONDS, HandClock, ask, used
from tests.core.plans import plan_of, window
from tests.redis_servers import RedisServer
from webhook.adapters.redis_store import RedisStore, connect
from webhook.adapters.redis_store.batch import Batch, Operation
from webhook.errors import StoreUnavailableError
from webhook.ports import WatchReports

pytest_plugins = ("tests.redis_servers.fixtures",)

PLAN = plan_of(window(60, pods=100))


class Server:
    """Answers when told to, with what it was asked."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.late: list[str] = []
        self.answers: list[asyncio.Future[None]] = []

    async def send(self, operations: Sequence[Operation]) -> Sequence[Any]:
        self.calls.append([operation.keys[0] for operation in operations])
        self.answers.append(asyncio.get_running_loop().create_future())
        await self.answers[-1]
        return self.calls[-1]

    async def called(self, times: int) -> None:
        while len(self.calls) < times:  # noqa: ASYNC110  what is waited for is a turn of this loop
            await asyncio.sleep(0)


def operation(name: str) -> Operation:
    return Operation(PLAN, (name,), [])


@pytest.fixture
def server() -> Server:
    return Server()


async def test_what_is_asked_in_one_turn_travels_together_and_the_rest_in_the_next_call(server: Server) -> None:
    batch = Batch(server.send, 30, server.late.append)
    first = [asyncio.create_task(batch.ask(operation(name))) for name in "ab"]
    await server.called(1)
    second = [asyncio.create_task(batch.ask(operation(name))) for name in "cde"]
    server.answers[0].set_result(None)
    await server.called(2)
    server.answers[1].set_result(None)
    assert await asyncio.gather(*first, *second) == list("abcde")
    assert server.calls == [["a", "b"], ["c", "d", "e"]]


async def test_admissions_go_before_what_nobody_waits_for_and_not_without_it(server: Server) -> None:
    batch = Batch(server.send, 30, server.late.append)
    patient = [asyncio.create_task(batch.ask_patiently(operation(f"p{number}"))) for number in range(100)]
    urgent = asyncio.create_task(batch.ask(operation("u")))
    await server.called(1)
    assert server.calls[0] == ["u", *(f"p{number}" for number in range(64))]
    server.answers[0].set_result(None)
    await server.called(2)
    server.answers[1].set_result(None)
    await asyncio.gather(urgent, *patient)


async def test_who_waits_too_long_leaves_the_call_goes_on_and_others_do_not_wait_at_all(server: Server) -> None:
    batch = Batch(server.send, 0.01, server.late.append)
    with pytest.raises(StoreUnavailableError, match="no answer within 10 ms"):
        await batch.ask(operation("a"))
    for method in (batch.ask, batch.ask_patiently):
        with pytest.raises(StoreUnavailableError, match=r"no answer for \d+\.\d s"):
            await method(operation("b"))
    assert server.late == ["no answer within 10 ms"], "told once"
    assert server.calls == [["a"]], "the one that found it late asked nothing"
    server.answers[0].set_result(None)
    await batch.close()
    answered = asyncio.create_task(batch.ask(operation("c")))
    await server.called(2)
    server.answers[1].set_result(None)
    assert await answered == "c"


async def test_who_leaves_before_the_call_is_not_asked_for(server: Server) -> None:
    batch = Batch(server.send, 30, server.late.append)
    first = asyncio.create_task(batch.ask(operation("a")))
    await server.called(1)
    gone, stays = (asyncio.create_task(batch.ask(operation(name))) for name in "bc")
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.wait([gone])
    server.answers[0].set_result(None)
    await server.called(2)
    server.answers[1].set_result(None)
    await asyncio.gather(first, stays)
    assert server.calls == [["a"], ["c"]]


async def test_a_call_that_fails_fails_for_all_of_it_and_the_next_one_is_made(server: Server) -> None:
    batch = Batch(server.send, 30, server.late.append)
    asked = [asyncio.create_task(batch.ask(operation(name))) for name in "ab"]
    await server.called(1)
    server.answers[0].set_exception(StoreUnavailableError("refused"))
    for task in asked:
        with pytest.raises(StoreUnavailableError, match="refused"):
            await task
    again = asyncio.create_task(batch.ask(operation("c")))
    await server.called(2)
    server.answers[1].set_result(None)
    assert await again == "c"


class Told:
    """A store on a real server, and what it told."""

    def __init__(self, server: RedisServer) -> None:
        self.said: list[str] = []
        reports = WatchReports(int, self.said.append, lambda text: self.said.append(f"over: {text}"))
        clock = HandClock()
        self.store = RedisStore(
            connect(server.url), "test", clock, reports, deadline_seconds=DEADLINE_SECONDS, time_us=clock.now_us
        )


async def test_flushed_scripts_and_killed_connections_cost_nothing_or_one_answer(redis_server: RedisServer) -> None:
    told = Told(redis_server)
    assert (await ask(told.store, PLAN, "a")).charged
    redis_server.cli("SCRIPT", "FLUSH")
    assert (await ask(told.store, PLAN, "b")).charged
    redis_server.cli("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    charged = ["a", "b"]
    for uid in "cdef":
        try:
            await ask(told.store, PLAN, uid)
        except StoreUnavailableError:
            continue
        charged.append(uid)
    assert len(charged) >= 5, "a connection is made anew at once"
    assert (await used(told.store, PLAN))[""][0] >= len(charged)
    await told.store.close()


async def test_a_broken_record_fails_its_own_service_alone_and_is_named(redis_server: RedisServer) -> None:
    told, other = Told(redis_server), plan_of(window(60, pods=5), service="other", tag="other")
    redis_server.cli("SET", "podgate:{payment-api}:v1:test:ring:payment-api", "not a hash")
    asked = asyncio.gather(ask(told.store, PLAN, "a"), ask(told.store, other, "b"), return_exceptions=True)
    broken, fine = await asked
    assert isinstance(broken, StoreUnavailableError)
    assert "WRONGTYPE" in str(broken)
    assert not isinstance(fine, BaseException)
    assert fine.charged
    assert "WRONGTYPE" in told.said[0]
    await told.store.close()


async def test_a_server_that_went_and_came_back_is_told_once_each(own_redis_server: RedisServer) -> None:
    told = Told(own_redis_server)
    await ask(told.store, PLAN, "a")
    own_redis_server.kill()
    for uid in "bc":
        with pytest.raises(StoreUnavailableError):
            await ask(told.store, PLAN, uid)
    own_redis_server.start()
    assert (await ask(told.store, PLAN, "d")).charged
    assert told.said[-1].startswith("over: ")
    assert not any(text.startswith("over: ") for text in told.said[:1])
    await told.store.close()
