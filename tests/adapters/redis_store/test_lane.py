import asyncio
import time
from collections.abc import Sequence
from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import OutOfMemoryError, ReadOnlyError

from tests.core.plans import plan_of, window
from webhook.adapters.redis_store import lane as lanes
from webhook.adapters.redis_store.lane import Lane
from webhook.adapters.redis_store.lane_group import Lanes
from webhook.adapters.redis_store.operations import ScriptOperation
from webhook.adapters.redis_store.plans import PlanCache
from webhook.errors import NoStoreAnswerError
from webhook.ports import StoreReports

PLAN = PlanCache("test").prepare(plan_of(window(60, pods=100)))


class Server:
    """Answers calls and probes on request; records calls and reports."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.messages: list[str] = []
        self.answers: list[asyncio.Future[Any]] = []
        self.left: list[tuple[str, Any]] = []
        self.probes: list[asyncio.Future[None]] = []
        self.reports = StoreReports(
            lambda: None,
            lambda failure: self.messages.append(str(failure)),
            lambda text: self.messages.append(f"over: {text}"),
        )

    async def run(self, operations: Sequence[ScriptOperation]) -> Sequence[Any]:
        self.calls.append([operation.keys[0] for operation in operations])
        self.answers.append(asyncio.get_running_loop().create_future())
        names = self.calls[-1]
        return await self.answers[-1] or [[name] for name in names]

    async def probe(self, _: str) -> None:
        self.probes.append(asyncio.get_running_loop().create_future())
        await self.probes[-1]

    async def wait_for_calls(self, times: int) -> None:
        while len(self.calls) < times:  # noqa: ASYNC110  the test waits for a turn of this loop
            await asyncio.sleep(0)

    async def wait_for_probes(self, times: int) -> None:
        while len(self.probes) < times:  # noqa: ASYNC110  the test waits for a turn of this loop
            await asyncio.sleep(0)

    def batch(self, deadline_seconds: float = 30) -> Lane:
        def leave(asked: ScriptOperation, result: Any) -> None:
            self.left.append((asked.keys[0], result))

        return Lane(self, "tag", deadline_seconds, self.reports, leave)


def operation(name: str) -> ScriptOperation:
    return ScriptOperation(PLAN, "", (name,))


def ask_all(batch: Lane, names: str) -> "list[asyncio.Future[Any]]":
    return [batch.ask(operation(name)) for name in names]


async def failure(task: "asyncio.Future[Any]") -> tuple[str, bool]:
    with pytest.raises(NoStoreAnswerError) as failed:
        await task
    return str(failed.value), failed.value.sent


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setattr(lanes, "_FIRST_PAUSE_SECONDS", 1e-4)
    monkeypatch.setattr(lanes, "_PAUSE_SECONDS_MAX", 8e-4)
    return Server()


async def test_operations_of_one_loop_iteration_share_a_call(server: Server) -> None:
    batch = server.batch()
    first = ask_all(batch, "ab")
    await server.wait_for_calls(1)
    second = ask_all(batch, "cde")
    server.answers[0].set_result(None)
    await server.wait_for_calls(2)
    server.answers[1].set_result(None)
    assert await asyncio.gather(*first, *second) == [[name] for name in "abcde"]
    assert server.calls == [["a", "b"], ["c", "d", "e"]]
    assert server.messages == []


async def test_admissions_precede_background_operations_in_one_call(server: Server) -> None:
    batch = server.batch()
    patient = [batch.ask(operation(f"p{number}"), is_patient=True) for number in range(100)]
    urgent = batch.ask(operation("u"))
    await server.wait_for_calls(1)
    assert server.calls[0] == ["u", *(f"p{number}" for number in range(64))]
    server.answers[0].set_result(None)
    await server.wait_for_calls(2)
    server.answers[1].set_result(None)
    await asyncio.gather(urgent, *patient)


async def test_background_operations_with_many_keys_are_few_in_one_call(server: Server) -> None:
    batch = server.batch()
    keys = (100, 90, 20, 512, 1, 1)
    asked = [
        batch.ask(ScriptOperation(PLAN, "", (f"p{count}", *["key"] * (count - 1))), is_patient=True) for count in keys
    ]
    while not all(future.done() for future in asked):
        await asyncio.sleep(0)
        for answer in server.answers:
            if not answer.done():
                answer.set_result(None)
    assert server.calls == [["p100", "p90"], ["p20"], ["p512"], ["p1", "p1"]]


async def test_timed_out_caller_leaves_the_call_running_and_others_do_not_wait(server: Server) -> None:
    batch = server.batch(0.01)
    assert await failure(ask_all(batch, "a")[0]) == ("timeout: no answer within 10 ms", True)
    for is_patient in (False, True):
        with pytest.raises(NoStoreAnswerError, match=r"no answer for \d+\.\d s") as failed:
            await batch.ask(operation("b"), is_patient=is_patient)
        assert not failed.value.sent
    assert server.messages == ["timeout: no answer within 10 ms"], "reported once"
    assert server.calls == [["a"]], "the late caller sent nothing"
    server.answers[0].set_result(None)
    await batch.close()
    assert server.messages[1:] == ["over: timeout: no answer within 10 ms"]
    (answered,) = ask_all(batch, "c")
    await server.wait_for_calls(2)
    server.answers[1].set_result(None)
    assert await answered == ["c"]
    assert server.probes == [], "an answer replaces the probe"


def do_not_run(seconds: float) -> None:
    """Keep this process from running, as a busy machine does."""
    time.sleep(seconds)


async def test_process_that_did_not_run_still_takes_an_answer(server: Server) -> None:
    (asked,) = ask_all(server.batch(0.1), "a")
    await server.wait_for_calls(1)
    do_not_run(0.2)
    asyncio.get_running_loop().call_later(0.01, server.answers[0].set_result, None)
    assert await asked == ["a"]
    assert server.messages == []


async def test_on_a_busy_machine_the_next_operations_are_given_more_time_too(server: Server) -> None:
    batch, loop = server.batch(0.05), asyncio.get_running_loop()
    (first,) = ask_all(batch, "a")
    await server.wait_for_calls(1)
    do_not_run(0.25)
    loop.call_soon(server.answers[0].set_result, None)
    assert await first == ["a"]
    (second,) = ask_all(batch, "b")
    await server.wait_for_calls(2)
    loop.call_later(0.15, server.answers[1].set_result, None)  # Redis does not run either
    assert await second == ["b"]
    assert server.messages == []


async def test_operation_fails_at_last_in_a_process_that_hardly_runs(server: Server) -> None:
    began, lane, loop = time.monotonic(), server.batch(0.01), asyncio.get_running_loop()
    (asked,) = ask_all(lane, "a")
    while not asked.done():
        do_not_run(max(0, lane._alarm_due - loop.time()) + 0.01)  # each alarm is late
        await asyncio.sleep(0)
    assert await failure(asked) == ("timeout: no answer within 10 ms", True)
    assert time.monotonic() - began > 0.11, "its timeout and ten times as much"


async def answer_late(lane: Lane, operation: ScriptOperation) -> "asyncio.Future[int | None]":
    """Let an operation fail at its deadline; return what its late answer will say."""
    with pytest.raises(NoStoreAnswerError) as failed:
        await lane.ask(operation)
    assert failed.value.charged_us is not None
    return failed.value.charged_us


@pytest.mark.parametrize(
    ("name", "result", "charged_us"),
    [
        ("acquire", [[7, 0, 0, True]], 7),
        ("acquire", [[7, 2, 0, False]], 0),
        ("refund", [[True]], 0),
        ("acquire", ["ERR its own"], None),
    ],
)
async def test_late_answer_tells_what_was_charged(
    server: Server, name: str, result: list[Any], charged_us: int | None
) -> None:
    answer = await answer_late(server.batch(0.01), ScriptOperation(PLAN, name, ("a",)))
    server.answers[0].set_result(result)
    assert await answer == charged_us


async def test_failed_call_tells_those_whose_deadline_has_passed_that_no_answer_will_come(server: Server) -> None:
    batch = server.batch(0.01)
    answer = await answer_late(batch, operation("a"))
    server.answers[0].set_exception(RedisConnectionError("reset"))
    assert await answer is None
    await batch.close()


async def test_late_result_that_cannot_be_read_leaves_no_other_caller_waiting(server: Server) -> None:
    batch = server.batch(0.01)
    asked = batch.ask(ScriptOperation(PLAN, "acquire", ("a",)))
    other = batch.ask(operation("b"), is_patient=True)
    with pytest.raises(NoStoreAnswerError) as failed:
        await asked
    server.answers[0].set_result([[None], ["b"]])
    answer = failed.value.charged_us
    assert answer is not None
    assert await answer is None
    assert (await failure(other))[0].startswith("script: IndexError")
    await batch.close()
    (asked,) = ask_all(batch, "c")
    await server.wait_for_calls(2)
    server.answers[1].set_result(None)
    assert await asked == ["c"]


async def test_operation_that_never_reached_the_server_has_no_late_answer(server: Server) -> None:
    batch = server.batch(0.01)
    answer = await answer_late(batch, operation("a"))
    for failed in ask_all(batch, "b"):
        with pytest.raises(NoStoreAnswerError) as error:
            await failed
        assert error.value.charged_us is None
    server.answers[0].set_result(None)
    assert await answer == 0


async def test_what_a_late_answer_undoes_precedes_the_next_admissions(server: Server) -> None:
    batch = server.batch(0.01)
    answer = await answer_late(batch, operation("a"))
    undone: list[asyncio.Future[Any]] = []
    answer.add_done_callback(lambda _: undone.append(batch.ask_first(operation("undo"))))
    server.answers[0].set_result(None)
    while batch._late:  # noqa: ASYNC110  the test waits for a turn of this loop
        await asyncio.sleep(0)
    asked = batch.ask(operation("b"))
    await server.wait_for_calls(2)
    assert server.calls[1] == ["undo", "b"]
    server.answers[1].set_result(None)
    assert [await undone[0], await asked] == [["undo"], ["b"]]


async def test_what_a_task_of_a_caller_undoes_precedes_the_next_admissions(server: Server) -> None:
    batch = server.batch()
    undoing: list[asyncio.Task[Any]] = []

    async def undo() -> Any:
        return await batch.ask_first(operation("undo"))

    answer = batch.ask(operation("a"))
    answer.add_done_callback(lambda _: undoing.append(asyncio.create_task(undo())))
    await server.wait_for_calls(1)
    asked = batch.ask(operation("b"))
    server.answers[0].set_result(None)
    await server.wait_for_calls(2)
    assert server.calls[1] == ["undo", "b"]
    server.answers[1].set_result(None)
    assert [await undoing[0], await asked] == [["undo"], ["b"]]


async def test_first_operation_waits_for_a_late_call_and_fails_with_a_lane_that_is_down(server: Server) -> None:
    batch = server.batch(0.01)
    answer = await answer_late(batch, operation("a"))
    first = batch.ask_first(operation("undo"))
    server.answers[0].set_exception(RedisConnectionError("reset"))
    assert await failure(first) == ("unreachable: reset", False)
    assert await answer is None
    assert await failure(batch.ask_first(operation("undo"))) == ("unreachable: reset", False)
    await batch.close()


async def test_result_of_a_cancelled_operation_is_handled_once(server: Server) -> None:
    batch = server.batch()
    kept, cancelled, broken = ask_all(batch, "abc")
    await server.wait_for_calls(1)
    for task in (cancelled, broken):
        task.cancel()
    await asyncio.wait([cancelled, broken])
    server.answers[0].set_result([["a"], ["b"], "ERR its own"])
    assert await kept == ["a"]
    assert server.left == [("b", ["b"])], "an error has no result to handle"


async def test_operation_cancelled_before_the_call_is_not_sent(server: Server) -> None:
    batch = server.batch()
    first = ask_all(batch, "a")
    await server.wait_for_calls(1)
    cancelled, kept = ask_all(batch, "bc")
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.wait([cancelled])
    server.answers[0].set_result(None)
    await server.wait_for_calls(2)
    server.answers[1].set_result(None)
    await asyncio.gather(*first, kept)
    assert server.calls == [["a"], ["c"]]


async def test_failed_call_takes_the_lane_down_until_a_probe_succeeds(server: Server) -> None:
    batch = server.batch()
    running = ask_all(batch, "ab")
    await server.wait_for_calls(1)
    waiting = ask_all(batch, "c")
    await asyncio.sleep(0)
    server.answers[0].set_exception(RedisConnectionError("refused"))
    assert [await failure(task) for task in running] == [("unreachable: refused", True)] * 2
    assert await failure(waiting[0]) == ("unreachable: refused", False)
    await server.wait_for_probes(1)
    assert await failure(ask_all(batch, "d")[0]) == ("unreachable: refused", False)
    server.probes[0].set_exception(RedisConnectionError("still refused"))
    await server.wait_for_probes(2)
    assert await failure(ask_all(batch, "e")[0]) == ("unreachable: still refused", False)
    assert server.calls == [["a", "b"]], "only a probe uses the network"
    server.probes[1].set_result(None)
    while batch._down:  # noqa: ASYNC110  the test waits for a turn of this loop
        await asyncio.sleep(0)
    (answered,) = ask_all(batch, "f")
    await server.wait_for_calls(2)
    server.answers[1].set_result(None)
    assert await answered == ["f"]
    assert server.messages == ["unreachable: refused", "over: unreachable: refused"]
    await batch.close()


async def test_repeated_failures_lengthen_the_pause_and_are_reported_once(server: Server) -> None:
    batch, failures = server.batch(), []
    for number in range(6):
        (asked,) = ask_all(batch, "a")
        await server.wait_for_calls(number + 1)
        failures.append(batch._backoff._failures)
        server.answers[number].set_exception(ReadOnlyError("You can't write against a read only replica."))
        await failure(asked)
        await server.wait_for_probes(number + 1)
        server.probes[number].set_result(None)
        while batch._down:  # noqa: ASYNC110  the test waits for a turn of this loop
            await asyncio.sleep(0)
    assert failures == [0, 1, 2, 3, 4, 5], "a probe alone does not reset the delays"
    assert len(server.messages) == 1
    (asked,) = ask_all(batch, "a")
    await server.wait_for_calls(7)
    server.answers[6].set_result(None)
    await asked
    assert batch._backoff._failures == 0
    await batch.close()


async def test_new_kind_of_trouble_ends_the_former(server: Server) -> None:
    batch = server.batch()
    (asked,) = ask_all(batch, "a")
    await server.wait_for_calls(1)
    server.answers[0].set_exception(RedisConnectionError("refused"))
    await failure(asked)
    await server.wait_for_probes(1)
    server.probes[0].set_exception(OutOfMemoryError("command not allowed"))
    await server.wait_for_probes(2)
    assert server.messages == ["unreachable: refused", "over: unreachable: refused", "full: command not allowed"]
    await batch.close()


async def test_failed_operation_fails_alone_and_is_reported_once(server: Server) -> None:
    batch = server.batch()
    for number in range(3):
        broken, fine = ask_all(batch, "ab")
        await server.wait_for_calls(number + 1)
        server.answers[number].set_result(["WRONGTYPE Operation against a key", ["b"]])
        assert (await failure(broken))[0] == "script: WRONGTYPE Operation against a key"
        assert await fine == ["b"]
    assert server.messages == ["script: WRONGTYPE Operation against a key"]
    assert server.probes == []


@pytest.mark.parametrize(
    ("error", "word"),
    [
        ("OOM command not allowed when used memory > 'maxmemory'.", "full"),
        ("@user_script: 12: -OOM command not allowed when used memory > 'maxmemory'.", "full"),
        ("READONLY You can't write against a read only replica.", "readonly"),
        ("NOREPLICAS Not enough good replicas to write.", "readonly"),
    ],
)
async def test_server_wide_error_of_one_operation_takes_the_lane_down(server: Server, error: str, word: str) -> None:
    batch = server.batch()
    refused, fine = ask_all(batch, "ab")
    await server.wait_for_calls(1)
    server.answers[0].set_result([error, ["b"]])
    assert await failure(refused) == (f"{word}: {error}", True)
    assert await fine == ["b"]
    assert await failure(ask_all(batch, "c")[0]) == (f"{word}: {error}", False)
    assert server.messages == [f"{word}: {error}"]
    await batch.close()


async def test_defect_fails_its_call_and_leaves_the_lane_open(server: Server) -> None:
    batch = server.batch()
    (asked,) = ask_all(batch, "a")
    await server.wait_for_calls(1)
    server.answers[0].set_exception(ValueError("cannot pack"))
    assert (await failure(asked))[0] == "script: ValueError('cannot pack')"
    (asked,) = ask_all(batch, "b")
    await server.wait_for_calls(2)
    server.answers[1].set_result(None)
    assert await asked == ["b"]


async def test_each_operation_fails_at_its_own_deadline(server: Server) -> None:
    batch, failed = server.batch(1), []

    async def ask_after(name: str, seconds: float) -> float:
        await asyncio.sleep(seconds)
        asked = asyncio.get_running_loop().time()
        with pytest.raises(NoStoreAnswerError, match="no answer within 1000 ms"):
            await batch.ask(operation(name))
        failed.append(name)
        return asyncio.get_running_loop().time() - asked

    patient = batch.ask(operation("p"), is_patient=True)  # its deadline is not first
    took_seconds = await asyncio.gather(ask_after("b", 0.1), ask_after("a", 0), ask_after("c", 0.2))
    assert failed == ["a", "b", "c"]
    assert min(took_seconds) >= 0.998, "none fails before its deadline"
    server.answers[0].set_result(None)
    assert await patient == ["p"]


async def test_deadline_of_an_operation_after_an_earlier_answer_is_its_own(server: Server) -> None:
    batch = server.batch(0.5)
    (answered,) = ask_all(batch, "a")
    await server.wait_for_calls(1)
    server.answers[0].set_result(None)
    assert await answered == ["a"]
    await asyncio.sleep(0.3)  # the alarm for the first one is still set
    asked = asyncio.get_running_loop().time()
    assert await failure(ask_all(batch, "b")[0]) == ("timeout: no answer within 500 ms", True)
    assert asyncio.get_running_loop().time() - asked >= 0.499
    server.answers[1].set_result(None)
    await batch.close()


async def test_failure_of_a_node_that_has_nothing_any_more_is_over(server: Server) -> None:
    homes = {"tag": "first"}
    nodes = Lanes(homes.__getitem__, server, 30, server.reports, lambda *_: None)
    batch = nodes.get_lane("tag")
    asked = batch.ask(operation("a"))
    await server.wait_for_calls(1)
    server.answers[0].set_exception(RedisConnectionError("gone"))
    await failure(asked)
    await server.wait_for_probes(1)
    nodes.drop_moved()
    assert len(server.messages) == 1, "it has its part still"
    homes["tag"] = "second"
    nodes.drop_moved()
    assert server.messages[1].startswith("over: ")
    assert nodes.get_lane("tag") is not batch
    with pytest.raises(NoStoreAnswerError):
        await batch.ask(operation("b"))
    assert len(server.messages) == 2, "nobody asks it again"
    await nodes.close()
