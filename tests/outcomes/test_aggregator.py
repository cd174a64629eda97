"""Pushed outcomes reach the breakers: summed, in order, in their interval, once; or are counted as dropped."""

import asyncio
import dataclasses
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.controller.controller_simulation import compile_policy
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
from webhook.core.outcomes import SLOT_US, BadOutcomesError, PushedOutcome
from webhook.core.quota import CounterPlan
from webhook.errors import NoPolicyError, StoreFault, StoreUnavailableError
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
    """A clock that only tests advance, and that counts its readings."""

    readings = 0

    def now_us(self) -> int:
        self.readings += 1
        return super().now_us()


class RecordingStore(MemoryStore):
    """A store that records its calls, and can be unavailable or slow."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock, late_us=300_000)
        self.received: list[tuple[str, list[Outcomes]]] = []
        self.is_away = False
        self.free = asyncio.Event()
        self.free.set()

    async def record_outcomes(self, plan: CounterPlan, outcomes: Sequence[Outcomes]) -> Sequence[Transition]:
        self.received.append((plan.service, list(outcomes)))
        await self.free.wait()
        if self.is_away:
            raise StoreUnavailableError("no answer", StoreFault.TIMEOUT)
        return await super().record_outcomes(plan, outcomes)


class Observed(Observers):
    def __init__(self) -> None:
        super().__init__()
        self.transitions: list[Transition] = []

    def on_transition(self, transition: Transition) -> None:
        self.transitions.append(transition)


class Simulation:
    """All parts from a report's bytes to a breaker, on a clock that only tests advance."""

    def __init__(self) -> None:
        self.clock = CountingClock(START_US)
        self.store = RecordingStore(self.clock)
        self.policy: CompiledPolicy | None = compile_policy(SERVICES)
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

    def read_state(self, service: str) -> State:
        view = self.store.find_known_breaker(self.plan(service))
        return view.state if view is not None else State.CLOSED

    def pass_time(self, us: int) -> None:
        self.clock.set(self.clock.now_us() + us)


async def test_many_requests_are_reported_as_one_sum_with_its_age() -> None:
    simulation = Simulation()
    assert await simulation.push(*[("web", False)] * 3, ("web", True), ("api", True)) == (5, [])
    simulation.pass_time(100_000)
    await simulation.buffer.flush()
    assert sorted(simulation.store.received) == [
        ("api", [Outcomes(1, 0, 10_000, age_us=50_000)]),
        ("web", [Outcomes(1, 3, 40_000, age_us=50_000)]),
    ]
    assert simulation.counts == {("web", "Pushed", "error"): 3, ("web", "Pushed", "ok"): 1, ("api", "Pushed", "ok"): 1}
    await simulation.buffer.flush()
    assert len(simulation.store.received) == 2


async def test_errors_in_three_seconds_trip_the_breaker_and_the_transition_is_reported() -> None:
    simulation = Simulation()
    for _ in range(5):
        await simulation.push(*[("web", False)] * 10)
        simulation.pass_time(100_000)
        await simulation.buffer.flush()
        simulation.pass_time(900_000)
    assert simulation.read_state("web") is State.OPEN
    assert simulation.read_state("api") is State.CLOSED
    assert [(transition.service, transition.old, transition.new) for transition in simulation.observed.transitions] == [
        ("web", State.CLOSED, State.OPEN)
    ]


async def test_outcomes_of_foreign_and_unknown_services_are_refused_alike() -> None:
    simulation = Simulation()
    pushes = [("theirs", False), ("web", True), ("ghost", False), ("theirs", False)]
    assert await simulation.push(*pushes) == (1, [0, 2, 3])
    await simulation.buffer.flush()
    assert [service for service, _ in simulation.store.received] == ["web"]
    assert simulation.counts["refused", "notNamed"] == 2
    assert simulation.counts["refused", "noService"] == 1


async def test_no_more_than_twenty_refusals_are_listed() -> None:
    accepted, listed = await Simulation().push(*[("theirs", False)] * 30, ("web", True))
    assert (accepted, listed) == (1, list(range(20)))


async def test_batch_without_an_accepted_outcome_is_refused_in_the_same_words() -> None:
    simulation, messages = Simulation(), set()
    for service in ("theirs", "ghost"):
        with pytest.raises(NotAReporterError) as caught:
            await simulation.push((service, False), (service, False))
        messages.add(str(caught.value).replace(service, "SERVICE"))
    remedy = "check the name, or have the policy list it in breaker.outcomes.reporters"
    assert messages == {f"[0].service: SERVICE: no service of this name accepts outcomes from 'edge': {remedy}"}
    await simulation.buffer.flush()
    assert simulation.store.received == []


async def test_batch_with_one_bad_entry_is_refused_whole() -> None:
    simulation = Simulation()
    with pytest.raises(BadOutcomesError):
        await simulation.receiver.receive(b'[{"service": "web", "ok": false, "latency": 0}, 7]', EDGE)
    await simulation.buffer.flush()
    assert simulation.store.received == []


async def test_empty_batch_is_accepted_and_none_without_a_policy() -> None:
    simulation = Simulation()
    assert await simulation.push() == (0, [])
    simulation.policy = None
    with pytest.raises(NoPolicyError):
        await simulation.push(("web", True))


async def test_disabled_breaker_accepts_outcomes_and_counts_none() -> None:
    simulation = Simulation()
    assert await simulation.push(("quiet", False), ("quiet", True)) == (2, [])
    await simulation.buffer.flush()
    assert simulation.store.received == []
    assert simulation.counts == {("dropped", "quiet", "disabled"): 2}


async def test_largest_batch_is_accepted_and_reported_in_ordered_parts() -> None:
    simulation = Simulation()
    uids = [f"u-{number}" for number in range(1200)]
    body = [{"service": "web", "ok": True, "latency": 0, "uid": uid} for uid in uids]
    await simulation.receiver.receive(json.dumps(body).encode(), EDGE)
    await simulation.buffer.flush()
    assert [len(outcomes) for _, outcomes in simulation.store.received] == [100] * 12
    assert [outcome.uid for _, outcomes in simulation.store.received for outcome in outcomes] == uids


@pytest.mark.parametrize(("batches", "size"), [(20, 1200), (20, 400)], ids=["large", "small"])
async def test_many_reports_yield_to_other_tasks_after_every_part(batches: int, size: int) -> None:
    simulation, taken = Simulation(), [0]
    body = json.dumps([{"service": "web", "ok": True, "latency": 0}] * size).encode()
    take = simulation.buffer.take

    def count_and_take(plan: CounterPlan, outcomes: Sequence[PushedOutcome], at_us: int) -> None:
        taken[-1] += len(outcomes)
        take(plan, outcomes, at_us)

    simulation.buffer.take = count_and_take  # type: ignore[method-assign]  # a spy
    reporting = [asyncio.create_task(simulation.receiver.receive(body, EDGE)) for _ in range(batches)]
    while not all(report.done() for report in reporting):
        await asyncio.sleep(0)
        taken.append(0)
    assert sum(taken) == batches * size
    assert max(taken) <= endpoint._TURN_OUTCOMES_MAX


@pytest.mark.parametrize(("room", "taken"), [(0.5, 1), (1, 1), (2, 2)])
async def test_waiting_reports_are_bounded_but_one_is_always_accepted(
    monkeypatch: pytest.MonkeyPatch, room: float, taken: int
) -> None:
    """`room` is the number of reports that fit."""
    simulation = Simulation()
    body = json.dumps([{"service": "web", "ok": True, "latency": 0}] * 1000).encode()
    monkeypatch.setattr(endpoint, "_WAITING_BYTES_MAX", int(len(body) * room))
    for _ in range(2):
        answers = await asyncio.gather(
            *(simulation.receiver.receive(body, EDGE) for _ in range(5)), return_exceptions=True
        )
        assert [type(answer) for answer in answers] == [bytes] * taken + [TooManyReportsError] * (5 - taken)


async def test_unanswered_outcomes_are_dropped_and_counted() -> None:
    simulation = Simulation()
    simulation.store.is_away = True
    await simulation.push(("web", False), ("web", True), ("api", True))
    await simulation.buffer.flush()
    assert simulation.counts == {("dropped", "web", "store"): 2, ("dropped", "api", "store"): 1}
    simulation.store.is_away = False
    await simulation.push(("web", True))
    await simulation.buffer.flush()
    assert simulation.counts["web", "Pushed", "ok"] == 1


async def test_unanswered_outcomes_are_passed_to_their_handler() -> None:
    simulation, unanswered = Simulation(), list[tuple[str, int]]()
    buffer = OutcomeAggregator(
        simulation.store,
        simulation.clock,
        simulation.observed,
        simulation.reports,
        lambda plan, outcomes: unanswered.append((plan.service, len(outcomes))),
    )
    simulation.store.is_away = True
    outcomes = [PushedOutcome("web", True, 0, f"u-{number}") for number in range(1200)]  # noqa: FBT003  as the wire has it
    buffer.take(simulation.plan("web"), outcomes, START_US)
    await buffer.flush()
    assert unanswered == [("web", 1200)]
    assert len(simulation.store.received) == 1
    assert simulation.counts == {}


async def test_report_to_a_slow_store_is_finished_before_the_next() -> None:
    simulation = Simulation()
    simulation.store.free.clear()
    await simulation.push(("web", True))
    first = asyncio.create_task(simulation.buffer.flush())
    await asyncio.sleep(0)
    await simulation.push(("web", False))
    second = asyncio.create_task(simulation.buffer.flush())
    await asyncio.sleep(0.01)
    assert len(simulation.store.received) == 1
    simulation.store.free.set()
    await asyncio.gather(first, second)
    assert [(of.succeeded, of.failed) for _, [of] in simulation.store.received] == [(1, 0), (0, 1)]


async def test_flood_of_one_service_does_not_delay_another() -> None:
    simulation = Simulation()
    simulation.store.free.clear()
    flood = [PushedOutcome("web", True, 0, f"u-{number}") for number in range(1200)]  # noqa: FBT003  as the wire has it
    simulation.buffer.take(simulation.plan("web"), flood, START_US)
    flushing = asyncio.create_task(simulation.buffer.flush())
    await asyncio.sleep(0)
    await simulation.push(("api", True))
    simulation.store.free.set()
    await flushing
    assert [service for service, _ in simulation.store.received] == ["web", "web", "api", *["web"] * 10]


async def test_current_slot_is_not_reported_before_its_end() -> None:
    simulation = Simulation()
    simulation.store.free.clear()
    await simulation.push(("web", True))
    running = asyncio.create_task(simulation.buffer.run())
    async with asyncio.timeout(HANG_SECONDS):
        while not simulation.store.received:  # noqa: ASYNC110 - as below
            await asyncio.sleep(0.01)
        simulation.pass_time(SLOT_US)
        await simulation.push(("web", False))
        simulation.store.free.set()
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(simulation.store.received) == 1
        while len(simulation.store.received) < 2:  # noqa: ASYNC110 - as below
            await asyncio.sleep(0.01)
    running.cancel()
    assert [(of.succeeded, of.failed) for _, [of] in simulation.store.received] == [(1, 0), (0, 1)]


async def test_aggregator_reports_each_push_by_itself() -> None:
    simulation = Simulation()
    running = asyncio.create_task(simulation.buffer.run())
    async with asyncio.timeout(HANG_SECONDS):
        for count in (1, 2):
            await simulation.push(("web", True))
            while len(simulation.store.received) < count:  # noqa: ASYNC110 - the store has no event for it
                await asyncio.sleep(0.01)
    running.cancel()


async def test_aggregator_sleeps_without_outcomes() -> None:
    simulation = Simulation()
    running = asyncio.create_task(simulation.buffer.run())
    await simulation.push(("web", True))
    async with asyncio.timeout(HANG_SECONDS):
        while not simulation.store.received:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)
    for _ in range(20):  # it checks once more for outcomes
        await asyncio.sleep(0)
    before = simulation.clock.readings
    await asyncio.sleep(0.3)
    running.cancel()
    assert simulation.clock.readings == before


async def test_last_outcomes_are_reported_before_the_store_closes(tmp_path: Path) -> None:
    files = Files.create(tmp_path, f"apiVersion: podgate.io/v1alpha1\nkind: Policy\nservices:{SERVICES}")
    flags = files.arguments()
    names = [flag.removeprefix("--").replace("-", "_") for flag in flags[::2]]
    settings = parse(dict(zip(names, flags[1::2], strict=True)), {})
    telemetry, clock, at_close = Telemetry(settings, "0"), SystemClock(), list[bytes]()
    podgate = ServerProcess(settings, telemetry, clock, await open_sources(settings, telemetry, clock))
    close = podgate._store.close

    async def record_and_close() -> None:
        at_close.append(telemetry.metrics.render())
        await close()

    podgate._store = dataclasses.replace(podgate._store, close=record_and_close)
    await podgate.start()
    in_force = podgate._sources.policies.get_current()
    assert in_force is not None
    podgate._outcomes.take(in_force.plans["web"], [PushedOutcome("web", False, 0.1)], clock.now_us())  # noqa: FBT003  as above
    await podgate.stop(asyncio.Event())
    [text] = at_close
    assert b'podgate_outcomes_total{result="error",service="web",source="Pushed"} 1.0' in text
