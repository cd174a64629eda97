"""Pushed outcomes reach the breakers: summed, in order, in their interval, once; or are counted as dropped."""

import asyncio
import dataclasses
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.controller.controller_simulation import compiled
from tests.harness.server_process import Files
from tests.timeouts import HANG_SECONDS
from webhook.adapters.clocks import SystemClock, VirtualClock
from webhook.adapters.memory_store import MemoryStore
from webhook.app.cluster import open_sources
from webhook.app.server import ServerProcess
from webhook.app.telemetry import Telemetry
from webhook.core.breaker import State, Transition
from webhook.core.breaker.outcome_types import Outcomes
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.outcomes.aggregation import SLOT_US
from webhook.core.outcomes.report import BadOutcomesError, Pushed
from webhook.core.quota import CounterPlan
from webhook.errors import NoPolicyError, StoreUnavailableError
from webhook.observers import Observers
from webhook.outcomes import endpoint
from webhook.outcomes.aggregator import OutcomeAggregator, OutcomeReports
from webhook.outcomes.endpoint import NotAReporterError, OutcomeEndpoint, TooManyReportsError
from webhook.ports import Caller
from webhook.settings import parse

START_US = 1_800_000_000_000_000
EDGE = Caller("reporter", "edge", "issuer", "subject", "CN=edge")
SERVICES = """
- name: web
  match: {namespaces: [web]}
  breaker: {outcomes: {source: Pushed, reporters: [edge]}, errorRate: {consecutive: 3}}
- name: api
  match: {namespaces: [api]}
  breaker: {outcomes: {source: Pushed, reporters: [edge, other]}, errorRate: {consecutive: 3}}
- name: theirs
  match: {namespaces: [theirs]}
  breaker: {outcomes: {source: Pushed, reporters: [other]}, errorRate: {consecutive: 1, minimumOutcomes: 1}}
- name: quiet
  match: {namespaces: [quiet]}
  modes: {breaker: Disabled}
  breaker: {outcomes: {source: Pushed, reporters: [edge]}, errorRate: {}}
"""


class CountingClock(VirtualClock):
    """Stands still, and counts who looks at it."""

    readings = 0

    def now_us(self) -> int:
        self.readings += 1
        return super().now_us()


class Listening(MemoryStore):
    """A store that writes down what it hears, can be away, and can be slow."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock, late_us=300_000)
        self.heard: list[tuple[str, list[Outcomes]]] = []
        self.away = False
        self.free = asyncio.Event()
        self.free.set()

    async def record_outcomes(self, plan: CounterPlan, outcomes: Sequence[Outcomes]) -> Sequence[Transition]:
        self.heard.append((plan.service, list(outcomes)))
        await self.free.wait()
        if self.away:
            raise StoreUnavailableError("timeout: no answer")
        return await super().record_outcomes(plan, outcomes)


class Observed(Observers):
    def __init__(self) -> None:
        super().__init__()
        self.transitions: list[Transition] = []

    def transitioned(self, transition: Transition) -> None:
        self.transitions.append(transition)


class World:
    """A reporter's way from its bytes to a breaker, on a clock that stands still."""

    def __init__(self) -> None:
        self.clock = CountingClock(START_US)
        self.store = Listening(self.clock)
        self.policy: CompiledPolicy | None = compiled(SERVICES)
        self.observed = Observed()
        self.counts: Counter[tuple[str, ...]] = Counter()
        self.reports = OutcomeReports(
            lambda service, source, result, count: self.counts.update({(service, source, result): count}),
            lambda service, reason, count: self.counts.update({("dropped", service, reason): count}),
            lambda reason, count: self.counts.update({("refused", reason): count}),
        )
        self.buffer = OutcomeAggregator(self.store, self.clock, self.observed, self.reports)
        self.receiver = OutcomeEndpoint(lambda: self.policy, self.buffer, self.clock, self.reports)

    async def push(self, *outcomes: tuple[str, bool]) -> tuple[int, list[int]]:
        """Push outcomes of 10 ms; return how many were accepted, and the indexes of the refused."""
        body = [{"service": service, "ok": ok, "latency": 0.01} for service, ok in outcomes]
        answer = json.loads(await self.receiver.receive(json.dumps(body).encode(), EDGE))
        return answer["accepted"], [refused["index"] for refused in answer["refused"]]

    def plan(self, service: str) -> CounterPlan:
        assert self.policy is not None
        return self.policy.plans[service]

    def state(self, service: str) -> State:
        view = self.store.known_breaker(self.plan(service))
        return view.state if view is not None else State.CLOSED

    def passed(self, us: int) -> None:
        self.clock.set(self.clock.now_us() + us)


async def test_many_requests_are_reported_as_one_sum_with_its_age_and_counted() -> None:
    simulation = World()
    assert await simulation.push(*[("web", False)] * 3, ("web", True), ("api", True)) == (5, [])
    simulation.passed(100_000)
    await simulation.buffer.flush()
    assert sorted(simulation.store.heard) == [
        ("api", [Outcomes(1, 0, 10_000, age_us=50_000)]),
        ("web", [Outcomes(1, 3, 40_000, age_us=50_000)]),
    ]
    assert simulation.counts == {("web", "Pushed", "error"): 3, ("web", "Pushed", "ok"): 1, ("api", "Pushed", "ok"): 1}
    await simulation.buffer.flush()
    assert len(simulation.store.heard) == 2


async def test_errors_in_three_seconds_trip_the_breaker_and_the_transition_is_reported() -> None:
    simulation = World()
    for _ in range(5):
        await simulation.push(*[("web", False)] * 10)
        simulation.passed(100_000)
        await simulation.buffer.flush()
        simulation.passed(900_000)
    assert simulation.state("web") is State.OPEN
    assert simulation.state("api") is State.CLOSED
    assert [(told.service, told.old, told.new) for told in simulation.observed.transitions] == [
        ("web", State.CLOSED, State.OPEN)
    ]


async def test_what_others_are_named_for_is_refused_alike_and_what_is_ones_own_is_taken() -> None:
    simulation = World()
    pushes = [("theirs", False), ("web", True), ("ghost", False), ("theirs", False)]
    assert await simulation.push(*pushes) == (1, [0, 2, 3])
    await simulation.buffer.flush()
    assert [service for service, _ in simulation.store.heard] == ["web"]
    assert simulation.counts["refused", "notNamed"] == 2
    assert simulation.counts["refused", "noService"] == 1


async def test_no_more_than_twenty_refusals_are_listed() -> None:
    accepted, listed = await World().push(*[("theirs", False)] * 30, ("web", True))
    assert (accepted, listed) == (1, list(range(20)))


async def test_a_batch_of_which_nothing_may_be_pushed_is_refused_with_the_same_words_for_all() -> None:
    simulation, said = World(), set()
    for service in ("theirs", "ghost"):
        with pytest.raises(NotAReporterError) as caught:
            await simulation.push((service, False), (service, False))
        said.add(str(caught.value).replace(service, "SERVICE"))
    remedy = "check the name, or have the policy list it in breaker.outcomes.reporters"
    assert said == {f"[0].service: SERVICE: no service of this name accepts outcomes from 'edge': {remedy}"}
    await simulation.buffer.flush()
    assert simulation.store.heard == []


async def test_of_a_batch_that_is_wrong_in_one_place_nothing_is_taken() -> None:
    simulation = World()
    with pytest.raises(BadOutcomesError):
        await simulation.receiver.receive(b'[{"service": "web", "ok": false, "latency": 0}, 7]', EDGE)
    await simulation.buffer.flush()
    assert simulation.store.heard == []


async def test_an_empty_batch_is_taken_and_without_a_policy_none_is() -> None:
    simulation = World()
    assert await simulation.push() == (0, [])
    simulation.policy = None
    with pytest.raises(NoPolicyError):
        await simulation.push(("web", True))


async def test_a_disabled_breaker_takes_outcomes_and_counts_none_of_them() -> None:
    simulation = World()
    assert await simulation.push(("quiet", False), ("quiet", True)) == (2, [])
    await simulation.buffer.flush()
    assert simulation.store.heard == []
    assert simulation.counts == {("dropped", "quiet", "disabled"): 2}


async def test_the_largest_batch_is_taken_whole_and_reported_in_parts_in_its_order() -> None:
    simulation = World()
    uids = [f"u-{number}" for number in range(1200)]
    body = [{"service": "web", "ok": True, "latency": 0, "uid": uid} for uid in uids]
    await simulation.receiver.receive(json.dumps(body).encode(), EDGE)
    await simulation.buffer.flush()
    assert [len(outcomes) for _, outcomes in simulation.store.heard] == [100] * 12
    assert [outcome.uid for _, outcomes in simulation.store.heard for outcome in outcomes] == uids


@pytest.mark.parametrize(("batches", "size"), [(20, 1200), (20, 400)], ids=["large", "small"])
async def test_however_many_report_all_else_has_its_turn_after_every_part(batches: int, size: int) -> None:
    simulation, taken = World(), [0]
    body = json.dumps([{"service": "web", "ok": True, "latency": 0}] * size).encode()
    take = simulation.buffer.take

    def counting(plan: CounterPlan, outcomes: Sequence[Pushed], at_us: int) -> None:
        taken[-1] += len(outcomes)
        take(plan, outcomes, at_us)

    simulation.buffer.take = counting  # type: ignore[method-assign]  # a spy
    reporting = [asyncio.create_task(simulation.receiver.receive(body, EDGE)) for _ in range(batches)]
    while not all(report.done() for report in reporting):
        await asyncio.sleep(0)
        taken.append(0)
    assert sum(taken) == batches * size
    assert max(taken) <= endpoint._AT_ONCE


@pytest.mark.parametrize(("room", "taken"), [(0.5, 1), (1, 1), (2, 2)])
async def test_what_waits_to_be_taken_is_bounded_but_one_report_always_is(
    monkeypatch: pytest.MonkeyPatch, room: float, taken: int
) -> None:
    """`room` is for how many of them."""
    simulation = World()
    body = json.dumps([{"service": "web", "ok": True, "latency": 0}] * 1000).encode()
    monkeypatch.setattr(endpoint, "_WAITING_MAX_BYTES", int(len(body) * room))
    for _ in range(2):
        answers = await asyncio.gather(
            *(simulation.receiver.receive(body, EDGE) for _ in range(5)), return_exceptions=True
        )
        assert [type(answer) for answer in answers] == [bytes] * taken + [TooManyReportsError] * (5 - taken)


async def test_what_a_store_does_not_answer_is_dropped_and_counted_and_the_next_is_reported_again() -> None:
    simulation = World()
    simulation.store.away = True
    await simulation.push(("web", False), ("web", True), ("api", True))
    await simulation.buffer.flush()
    assert simulation.counts == {("dropped", "web", "store"): 2, ("dropped", "api", "store"): 1}
    simulation.store.away = False
    await simulation.push(("web", True))
    await simulation.buffer.flush()
    assert simulation.counts["web", "Pushed", "ok"] == 1


async def test_who_wants_what_the_store_did_not_answer_gets_it_and_the_store_is_not_asked_for_the_rest() -> None:
    simulation, unheard = World(), list[tuple[str, int]]()
    buffer = OutcomeAggregator(
        simulation.store,
        simulation.clock,
        simulation.observed,
        simulation.reports,
        lambda plan, outcomes: unheard.append((plan.service, len(outcomes))),
    )
    simulation.store.away = True
    outcomes = [Pushed("web", True, 0, f"u-{number}") for number in range(1200)]  # noqa: FBT003  as the wire has it
    buffer.take(simulation.plan("web"), outcomes, START_US)
    await buffer.flush()
    assert unheard == [("web", 1200)]
    assert len(simulation.store.heard) == 1
    assert simulation.counts == {}


async def test_what_comes_while_a_slow_store_is_reported_waits_for_its_turn() -> None:
    simulation = World()
    simulation.store.free.clear()
    await simulation.push(("web", True))
    first = asyncio.create_task(simulation.buffer.flush())
    await asyncio.sleep(0)
    await simulation.push(("web", False))
    second = asyncio.create_task(simulation.buffer.flush())
    await asyncio.sleep(0.01)
    assert len(simulation.store.heard) == 1
    simulation.store.free.set()
    await asyncio.gather(first, second)
    assert [(of.succeeded, of.failed) for _, [of] in simulation.store.heard] == [(1, 0), (0, 1)]


async def test_who_comes_while_another_services_flood_is_reported_does_not_wait_for_its_end() -> None:
    simulation = World()
    simulation.store.free.clear()
    flood = [Pushed("web", True, 0, f"u-{number}") for number in range(1200)]  # noqa: FBT003  as the wire has it
    simulation.buffer.take(simulation.plan("web"), flood, START_US)
    telling = asyncio.create_task(simulation.buffer.flush())
    await asyncio.sleep(0)
    await simulation.push(("api", True))
    simulation.store.free.set()
    await telling
    assert [service for service, _ in simulation.store.heard] == ["web", "web", "api", *["web"] * 10]


async def test_of_the_slot_that_has_begun_since_nothing_is_reported_before_its_end() -> None:
    simulation = World()
    simulation.store.free.clear()
    await simulation.push(("web", True))
    running = asyncio.create_task(simulation.buffer.run())
    async with asyncio.timeout(HANG_SECONDS):
        while not simulation.store.heard:  # noqa: ASYNC110 - as below
            await asyncio.sleep(0.01)
        simulation.passed(SLOT_US)
        await simulation.push(("web", False))
        simulation.store.free.set()
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(simulation.store.heard) == 1
        while len(simulation.store.heard) < 2:  # noqa: ASYNC110 - as below
            await asyncio.sleep(0.01)
    running.cancel()
    assert [(of.succeeded, of.failed) for _, [of] in simulation.store.heard] == [(1, 0), (0, 1)]


async def test_it_reports_by_itself_and_goes_on_when_more_comes() -> None:
    simulation = World()
    running = asyncio.create_task(simulation.buffer.run())
    async with asyncio.timeout(HANG_SECONDS):
        for told in (1, 2):
            await simulation.push(("web", True))
            while len(simulation.store.heard) < told:  # noqa: ASYNC110 - the store has no event for it
                await asyncio.sleep(0.01)
    running.cancel()


async def test_it_sleeps_while_nothing_comes() -> None:
    simulation = World()
    running = asyncio.create_task(simulation.buffer.run())
    await simulation.push(("web", True))
    async with asyncio.timeout(HANG_SECONDS):
        while not simulation.store.heard:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)
    for _ in range(20):  # it looks once more whether there is anything to tell
        await asyncio.sleep(0)
    before = simulation.clock.readings
    await asyncio.sleep(0.3)
    running.cancel()
    assert simulation.clock.readings == before


async def test_the_last_outcomes_are_reported_when_a_server_ends_before_its_store_closes(tmp_path: Path) -> None:
    files = Files.create(tmp_path, f"apiVersion: podgate.io/v1alpha1\nkind: Policy\nservices:{SERVICES}")
    flags = files.arguments()
    names = [flag.removeprefix("--").replace("-", "_") for flag in flags[::2]]
    settings = parse(dict(zip(names, flags[1::2], strict=True)), {})
    telemetry, clock, at_close = Telemetry(settings, "0"), SystemClock(), list[bytes]()
    podgate = ServerProcess(settings, telemetry, clock, await open_sources(settings, telemetry, clock))
    close = podgate._store.close

    async def closing() -> None:
        at_close.append(telemetry.metrics.render())
        await close()

    podgate._store = dataclasses.replace(podgate._store, close=closing)
    await podgate.start()
    in_force = podgate._sources.policies.current()
    assert in_force is not None
    podgate._outcomes.take(in_force.plans["web"], [Pushed("web", False, 0.1)], clock.now_us())  # noqa: FBT003  as above
    await podgate.stop(asyncio.Event())
    [text] = at_close
    assert b'podgate_outcomes_total{result="error",service="web",source="Pushed"} 1.0' in text
