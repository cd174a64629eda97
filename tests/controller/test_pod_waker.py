"""Waking of Pods that wait for a node: each once, whoever asks, and failures are reported once."""

import asyncio

from webhook.adapters.clocks import VirtualClock
from webhook.controller.pod_waker import PodWaker, PodWakeReports
from webhook.core.scheduling.unschedulable_pods import PodReference
from webhook.errors import SchedulerWakeError
from webhook.ports.scheduling import PodWakeHandler


class Wakes:
    """A `ports.PodWakes`."""

    def __init__(self) -> None:
        self.woken: list[str] = []
        self.under_way = self.under_way_max = 0
        self.is_forbidden = False

    async def run(self, handler: PodWakeHandler) -> None:
        """Pass nothing on."""

    async def wake(self, pod: PodReference, at_us: int) -> bool:
        assert at_us
        self.under_way += 1
        self.under_way_max = max(self.under_way, self.under_way_max)
        await asyncio.sleep(0)
        self.under_way -= 1
        if self.is_forbidden:
            raise SchedulerWakeError("HTTP 403")
        self.woken.append(pod.name)
        return pod.name != "gone"


def refer(*names: str) -> list[PodReference]:
    return [PodReference("shop", name, f"uid-{name}") for name in names]


async def test_pod_is_woken_once_although_two_replicas_ask_and_again_a_second_later() -> None:
    wakes, clock, results, said = Wakes(), VirtualClock(1_000_000_000), list[str](), list[str]()
    waker = PodWaker(
        wakes, clock, PodWakeReports(results.append, said.append, lambda text: said.append(f"over {text}"))
    )
    await waker.on_wake_requested(refer("a", "b", "gone"))
    await waker.on_wake_requested(refer("b", "c"))
    assert wakes.woken == ["a", "b", "gone", "c"]
    assert results == ["annotated", "annotated", "gone", "annotated"]
    clock.set(1_001_000_000)
    wakes.is_forbidden = True
    await waker.on_wake_requested(refer("a", "b"))
    assert (results[4:], said) == (["failed", "failed"], ["HTTP 403"])
    wakes.is_forbidden = False
    await waker.on_wake_requested(refer(*(f"p-{number}" for number in range(20))))
    assert len(wakes.woken) == 24
    assert said == ["HTTP 403", "over HTTP 403"]
    assert wakes.under_way_max == 5
