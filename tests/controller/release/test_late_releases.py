"""Gates that the API server removes slowly: how many Pods more than `hard` a window holds by the time of their release.

The bound is the one of docs/controller.md.
"""

import asyncio
import random

import pytest

from tests.controller.release.queue_simulation import SECOND_US, FakeGates, QueueSimulation
from tests.controller.release.release_loop import read_usage
from webhook.adapters.clocks import VirtualClock
from webhook.core.quota import CounterPlan
from webhook.errors import StoreUnavailableError

WINDOW_SECONDS, HARD, IN_FLIGHT_MAX = 10, 24, 32
STORM = f"""
- name: web
  match: {{namespaces: [shop]}}
  quota:
    windows: [{{window: {WINDOW_SECONDS}s, hard: {{pods: {HARD}}}}}]
    whenExceeded: Queue
    queue: {{maxPods: 999, maxWait: 60m}}
"""


class SlowGates(FakeGates):
    """Each removal takes effect, and is answered, after up to `slowest_seconds`; some are not answered at all."""

    def __init__(self, clock: VirtualClock, slowest_seconds: float, unanswered: float) -> None:
        super().__init__()
        self._clock = clock
        self._slowest_seconds = slowest_seconds
        self._unanswered = unanswered
        self._dice = random.Random(1)  # noqa: S311  not for secrets
        self.released_us: list[int] = []

    async def remove(self, namespace: str, name: str, uid: str) -> bool:
        effect_us = self._clock.now_us() + int(self._dice.uniform(0, self._slowest_seconds) * SECOND_US)
        while self._clock.now_us() < effect_us:  # noqa: ASYNC110  the test advances the clock
            await asyncio.sleep(0)
        if self._dice.random() < self._unanswered:
            self.trouble = 1
        return await super().remove(namespace, name, uid)

    def _ungate(self, uid: str) -> None:
        before = len(self.ungated)
        super()._ungate(uid)
        self.released_us += [self._clock.now_us()] * (len(self.ungated) - before)


@pytest.mark.parametrize(("slowest_seconds", "unanswered"), [(0, 0), (0.5, 0), (4, 0), (9, 0), (4, 0.2)])
async def test_a_window_holds_at_most_32_pods_more_by_the_time_of_their_release(
    slowest_seconds: float, unanswered: float
) -> None:
    simulation = QueueSimulation(STORM)
    simulation.gates = gates = SlowGates(simulation.clock, slowest_seconds, unanswered)
    simulation.lead()
    await simulation.create(*(f"uid-{number}" for number in range(200)))

    async def lead() -> None:
        while True:
            await simulation.loop.round()
            await asyncio.sleep(0)

    leading = asyncio.create_task(lead())
    for _ in range(120 * 20):
        simulation.clock.set(simulation.clock.now_us() + SECOND_US // 20)
        for _ in range(8):
            await asyncio.sleep(0)
    leading.cancel()
    await asyncio.wait([leading])
    times = sorted(gates.released_us)
    most = max(sum(start <= at_us < start + WINDOW_SECONDS * SECOND_US for at_us in times) for start in times)
    assert len(times) > 3 * HARD, "the queue moves"
    assert most <= HARD + (IN_FLIGHT_MAX if slowest_seconds else 0)
    print(f"removals of up to {slowest_seconds} s: at most {most} in {WINDOW_SECONDS} s, hard {HARD}")  # noqa: T201  a measurement is for people


async def test_a_pod_that_ran_stays_charged_although_the_answer_to_its_release_was_lost_and_it_is_gone() -> None:
    simulation = QueueSimulation()
    await simulation.create("a")
    simulation.gates.trouble, simulation.gates.loses_answers = 1, True
    await simulation.run_rounds(0.1)
    assert simulation.gates.ungated == ["a"]
    del simulation.gates.pods["a"]
    simulation.observer.on_deleted("a")
    await simulation.run_rounds(2)
    assert await read_usage(simulation) == 1


async def test_a_pod_that_is_gone_at_the_first_attempt_is_refunded_once_the_store_answers() -> None:
    simulation = QueueSimulation()
    await simulation.create("a")
    refund, tries = simulation.store.refund, list[str]()

    async def fail_once(plan: CounterPlan, uid: str) -> bool:
        tries.append(uid)
        if len(tries) == 1:
            raise StoreUnavailableError("the store is away")
        return await refund(plan, uid)

    simulation.store.refund = fail_once  # type: ignore[method-assign]  fails once
    del simulation.gates.pods["a"]
    await simulation.run_rounds(2)
    assert (tries, await read_usage(simulation)) == (["a", "a"], 0)
