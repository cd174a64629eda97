"""An API server that answers nobody for a while: classes keep their order, and one namespace holds up no other."""

import asyncio
from collections import Counter

import pytest

from tests.controller.release.queue_simulation import SECOND_US, FakeGates, QueueSimulation
from webhook.adapters.clocks import VirtualClock
from webhook.errors import GateError

_CLASSES = ("gold", "silver", "bronze")
_POOL = "pools: [{name: shared, windows: [{window: 64s, hard: {pods: 900}}], whenExceeded: Queue}]"
_SERVICE = """
- name: {name}
  match: {{namespaces: [{name}]}}
  slaClass: {name}
  pool: shared
  quota: {{whenExceeded: Queue, queue: {{maxPods: 900, maxWait: 1h}}}}
"""


class _SilentGates(FakeGates):
    """Until `until_us` calls wait for an answer, or fail at once: those of `namespaces`, or all and pings."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock
        self.until_us = 0
        self.fails = False
        self.namespaces: tuple[str, ...] = ()
        self.pings = "answered"
        self._count = 0

    async def remove(self, namespace: str, name: str, uid: str) -> bool:
        if (not self.namespaces or namespace in self.namespaces) and await self._is_silent():
            raise GateError(f"{namespace}/{name}", "cannot release: no connection")
        return await super().remove(namespace, name, uid)

    async def is_reachable(self) -> bool:
        if self.pings == "answered":
            return bool(self.namespaces) or not await self._is_silent()
        self._count += 1
        ends_us = self._clock.now_us() + SECOND_US // 2
        while self.pings == "late" and self._clock.now_us() < ends_us:  # noqa: ASYNC110  the test advances the clock
            await asyncio.sleep(0)
        return self.pings == "late" or (self.pings == "flapping" and self._count % 2 == 0)

    async def _is_silent(self) -> bool:
        ends_us = min(self.until_us, self._clock.now_us() + 5 * SECOND_US if self.namespaces else self.until_us)
        while self._clock.now_us() < ends_us and not self.fails:  # noqa: ASYNC110  the test advances the clock
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        return self._clock.now_us() < self.until_us


async def wait_in_classes() -> tuple[QueueSimulation, _SilentGates]:
    """Let 40 Pods of each class wait, which all have room."""
    simulation = QueueSimulation("".join(_SERVICE.format(name=name) for name in _CLASSES), head=_POOL)
    simulation.gates = gates = _SilentGates(simulation.clock)
    simulation.lead()
    for name in reversed(_CLASSES):
        await simulation.create(*(f"{name}-{number}" for number in range(40)), namespace=name)
    return simulation, gates


def list_classes(uids: list[str]) -> list[str]:
    return [uid.partition("-")[0] for uid in uids]


@pytest.mark.parametrize("seconds", [0.5, 1.1, 1.5, 2.5, 3.1, 4, 12])
async def test_classes_keep_their_order_after_all_answers_were_late(seconds: float) -> None:
    """So does a machine that runs nothing for a while."""
    simulation, gates = await wait_in_classes()
    gates.until_us = simulation.clock.now_us() + int(seconds * SECOND_US)
    await simulation.run_settled(seconds + 4)
    classes = list_classes(gates.ungated)
    assert classes[:24] == ["gold"] * 24, "gates of the last ones are removed side by side"
    assert len(classes) == 120


@pytest.mark.parametrize("seconds", [0.5, 1.1, 1.5, 2.5, 3.1, 4, 12, 29])
async def test_nobody_is_charged_while_all_calls_fail_and_classes_keep_their_order(seconds: float) -> None:
    simulation, gates = await wait_in_classes()
    gates.until_us, gates.fails = simulation.clock.now_us() + int(seconds * SECOND_US), True
    await simulation.run_settled(seconds - 0.2)
    charged = Counter(pod.waiting.service for _, pod, _ in simulation.loop._removal._charged.values())
    assert charged.keys() <= {"gold"}
    assert charged["gold"] <= 16
    await simulation.run_settled(8)
    classes = list_classes(gates.ungated)
    assert classes[:24] == ["gold"] * 24
    assert len(classes) == 120


@pytest.mark.parametrize("seconds", [31, 61])
async def test_one_pod_of_each_other_service_is_charged_while_calls_fail_for_half_a_minute(seconds: float) -> None:
    """A proxy may answer calls and no pings."""
    simulation, gates = await wait_in_classes()
    gates.until_us, gates.fails = simulation.clock.now_us() + seconds * SECOND_US, True
    await simulation.run_settled(seconds - 0.2)
    charged = Counter(pod.waiting.service for _, pod, _ in simulation.loop._removal._charged.values())
    assert max(charged["silver"], charged["bronze"]) <= 1
    await simulation.run_settled(8)
    classes = list_classes(gates.ungated)
    assert classes[:24].count("gold") >= 22
    assert len(classes) == 120


@pytest.mark.parametrize("pings", ["lost", "late", "flapping"])
@pytest.mark.parametrize("fails", ["at once", "never ends"])
async def test_pings_that_fail_while_calls_are_answered_hold_up_nobody_for_long(fails: str, pings: str) -> None:
    """Beside one namespace without answers."""
    simulation, gates = await wait_in_classes()
    gates.until_us, gates.namespaces = simulation.clock.now_us() + 200 * SECOND_US, ("gold",)
    gates.fails, gates.pings = fails == "at once", pings
    await simulation.run_settled(35 if pings == "lost" else 5)
    late = 0
    for number in range(60):
        await simulation.create(f"silver-late-{number}", namespace="silver")
        await simulation.run_settled(1)
        late += f"silver-late-{number}" not in gates.ungated
        assert number < 6 or f"silver-late-{number - 6}" in gates.ungated
    assert late <= 20


@pytest.mark.parametrize("fails", ["at once", "never ends"])
async def test_one_namespace_without_answers_holds_up_no_other(fails: str) -> None:
    simulation, gates = await wait_in_classes()
    gates.until_us, gates.namespaces = simulation.clock.now_us() + 60 * SECOND_US, ("gold",)
    gates.fails = fails == "at once"
    await simulation.run_settled(2)
    assert len(gates.ungated) == 80
    for number in range(60):
        await simulation.create(f"silver-late-{number}", namespace="silver")
        await simulation.run_settled(0.5)
        assert f"silver-late-{number}" in gates.ungated, "at once"
