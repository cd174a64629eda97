"""Controller waker: wakes controllers whose Pods were denied, when quota and breaker have room for them."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from webhook.controller.held_controllers.controller_reader import ControllerReader
from webhook.controller.held_controllers.held_index import HeldIndex
from webhook.controller.held_controllers.reports import WakeReports, WakeResult, WakeTiming
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.controller.free_capacity import FreeCapacity
from webhook.core.controller.selection import HeldController, select
from webhook.core.quota import ServiceSnapshot
from webhook.errors import ControllerAccessError, StoreUnavailableError
from webhook.ports import Clock, ControllerClient, CounterStore, NamespaceLabels
from webhook.support.condition import Condition

_SECOND_US = 1_000_000
_PAUSE_SECONDS_MIN = 0.05


def split_batches(chosen: Sequence[HeldController], size: int) -> Iterable[Sequence[HeldController]]:
    return (chosen[first : first + size] for first in range(0, len(chosen), size))


class ControllerWaker:
    """Created for each term of leadership: the Events of the last hour name the controllers that are held."""

    def __init__(
        self,
        client: ControllerClient,
        counters: CounterStore,
        clock: Clock,
        policy: Callable[[], CompiledPolicy | None],
        namespaces: NamespaceLabels,
        reports: WakeReports,
        *,
        timing: WakeTiming = WakeTiming(),  # noqa: B008  frozen
    ) -> None:
        self._client = client
        self._counters = counters
        self._now_us = clock.now_us
        """The store's clock may be stepped: whoever waits for a moment of it would wait as long."""
        self._policy = policy
        self._reports = reports
        self._timing = timing
        self._index = HeldIndex(timing)
        self.reader = ControllerReader(self._index, client, policy, namespaces, clock.now_us, reports, timing)
        self._due_us: dict[str, int] = {}
        """When to take the next snapshots, by tag."""
        self._generations: Mapping[str, int] = {}
        """Generation of each service's breaker, as last known without a call."""
        self._restless_until_us = 0
        """Policy or overrides have changed, and resets that they request are applied soon."""
        self._woken_us: list[int] = []
        """When controllers were woken within the last second."""
        self._failure = Condition(reports.on_trouble, reports.on_over)

    async def run(self) -> None:
        """Find and wake held controllers until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._client.run(self.reader), name="creation-failures")
                tasks.create_task(self.reader.run(), name="held-controllers")
                tasks.create_task(self._wake(), name="waking")
        finally:
            self._reports.on_held({})

    async def _wake(self) -> None:
        while True:
            self.reader.has_read.clear()
            pause_seconds = await self.round()
            try:
                async with asyncio.timeout(pause_seconds):
                    await self.reader.has_read.wait()
            except TimeoutError:
                pass

    async def round(self) -> float | None:
        """Wake the controllers that have room now; return the pause in seconds, None while no controller is held."""
        compiled, now_us = self._policy(), self._now_us()
        if compiled is None:
            return 1.0
        if self._index.use(compiled):
            self._due_us.clear()
            self._restless_until_us = now_us + 3 * _SECOND_US
        if not len(self._index):
            self._failure.leave()
            self._reports.on_held({})
            return None
        if self._index.requeue_woken(now_us):
            self.reader.added.set()
        held = self._index.list_held()
        self._reports.on_held(Counter(controller.demand.service for controller in held))
        self._forget_due(held, compiled)
        due = [controller for controller in held if self._due_us.get(controller.demand.tag, 0) <= now_us]
        if due:
            await self._wake_due(due, compiled, now_us)
        earliest_us = min(
            (self._due_us.get(controller.demand.tag, 0) for controller in held), default=now_us + _SECOND_US
        )
        # At most a second: policies and breakers are compared with those of the last round, without a call.
        return min(1.0, max(_PAUSE_SECONDS_MIN, (earliest_us - self._now_us()) / _SECOND_US))

    def _forget_due(self, held: Sequence[HeldController], compiled: CompiledPolicy) -> None:
        """Have new snapshots taken for controllers that were read, and for breakers that have changed."""
        tags = {controller.demand.tag for controller in held}
        generations = {
            service: view.generation
            for service in {controller.demand.service for controller in held}
            if (view := self._counters.find_last_breaker(compiled.plans[service])) is not None
        }
        changed = {
            service for service, generation in generations.items() if self._generations.get(service) != generation
        }
        self._generations = generations
        self._index.changed_tags.update(compiled.plans[service].tag for service in changed)
        self._due_us = {
            tag: us for tag, us in self._due_us.items() if tag in tags and tag not in self._index.changed_tags
        }
        self._index.changed_tags.clear()

    async def _wake_due(self, due: Sequence[HeldController], compiled: CompiledPolicy, now_us: int) -> None:
        free, unknown = await self._compute_free_capacity(due, compiled)
        self._woken_us = [us for us in self._woken_us if us > now_us - _SECOND_US]
        most = self._timing.wakes_per_second - len(self._woken_us)
        selection = select(
            (controller for controller in due if controller.demand.tag not in unknown), free, now_us, most
        )
        soon_us = now_us + round(self._timing.poll_seconds * _SECOND_US)
        is_restless = now_us < self._restless_until_us
        latest_us = soon_us if is_restless else now_us + round(self._timing.fallback_seconds * _SECOND_US)
        for tag in {controller.demand.tag for controller in due}:
            due_us = selection.due_us.get(tag, 0)
            self._due_us[tag] = min(due_us if due_us > now_us else soon_us, latest_us)
        for batch in split_batches(selection.woken, self._timing.concurrent_requests_max):
            await asyncio.gather(*(self._wake_one(controller) for controller in batch))

    async def _compute_free_capacity(
        self, due: Iterable[HeldController], compiled: CompiledPolicy
    ) -> tuple[FreeCapacity, frozenset[str]]:
        """Return the free capacity of these controllers' services, and the tags of which the store says nothing."""
        asked = {
            (controller.demand.service, compiled.plans[controller.demand.service].scope_of(controller.demand))
            for controller in due
        }
        free, unknown, requests = FreeCapacity(), set[str](), asyncio.Semaphore(self._timing.concurrent_requests_max)

        async def add(service: str, namespace: str) -> None:
            part = compiled.parts[service]
            async with requests:
                try:
                    snapshot: ServiceSnapshot = await self._counters.snapshot(part.plan, namespace)
                except StoreUnavailableError:
                    unknown.add(part.plan.tag)  # already reported; the next round asks again
                    return
            free.add(part, snapshot, self._now_us() - snapshot.at_us)

        await asyncio.gather(*(add(*pair) for pair in sorted(asked)))
        return free, frozenset(unknown)

    async def _wake_one(self, chosen: HeldController) -> None:
        reference, now_us = chosen.reference, self._now_us()
        self._woken_us.append(now_us)
        try:
            exists = await self._client.wake(reference, now_us)
        except ControllerAccessError as error:
            self._failure.enter(str(error))
            self._index.note_wake(reference, now_us, is_done=False)
            self._reports.on_woken(chosen.demand.service, WakeResult.FAILED)
            return
        self._failure.leave()
        if exists:
            self._index.note_wake(reference, now_us, is_done=True)
        else:
            self._index.forget(reference)
