"""Controller reader: reads the controllers that Events name into the index of held controllers."""

import asyncio
from collections.abc import Callable

from webhook.controller.held_controllers.held_index import HeldIndex
from webhook.controller.held_controllers.reports import WakeReports, WakeTiming
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.controller.held_controller import ControllerReference
from webhook.errors import ControllerAccessError
from webhook.ports import ControllerClient, NamespaceLabels
from webhook.support.backoff import Backoff
from webhook.support.condition import Condition


class ControllerReader:
    """A `ports.CreationFailureHandler`."""

    def __init__(
        self,
        index: HeldIndex,
        client: ControllerClient,
        policy: Callable[[], CompiledPolicy | None],
        namespaces: NamespaceLabels,
        now_us: Callable[[], int],
        reports: WakeReports,
        timing: WakeTiming,
    ) -> None:
        self._index = index
        self._client = client
        self._policy = policy
        self._namespaces = namespaces
        self._now_us = now_us
        self._on_woken = reports.on_woken
        self._timing = timing
        self._failure = Condition(reports.on_trouble, reports.on_over)
        self._backoff = Backoff(1.0, 30.0)
        self.added, self.has_read = asyncio.Event(), asyncio.Event()

    async def on_creation_failed(self, controller: ControllerReference, *, at_us: int, is_held: bool) -> None:
        compiled = self._policy()
        if not is_held:
            self._index.forget(controller)  # room does not help: its newest Pod was denied for another reason
        elif compiled is not None and compiled.matcher.list_candidates(controller.namespace):
            self._index.note(controller, at_us)
            self.added.set()

    async def run(self) -> None:
        """Read until cancelled."""
        while True:
            self.added.clear()
            pause_seconds = await self.read()
            if pause_seconds is None:
                await self.added.wait()
            else:
                await asyncio.sleep(pause_seconds)

    async def read(self) -> float | None:
        """Read the next controllers; return the pause before the next ones, None if there are none."""
        batch = self._index.take_unread(self._timing.concurrent_requests_max)
        if not batch:
            return None
        failures = [
            error
            for error in await asyncio.gather(*(self._read_controller(*unread) for unread in batch))
            if error is not None
        ]
        self.has_read.set()
        if failures:
            self._failure.enter(str(failures[0]))
            return self._backoff.next_seconds(failures[0].retry_after_seconds)
        self._failure.leave()
        self._backoff.reset()
        return len(batch) / self._timing.reads_per_second

    async def _read_controller(self, reference: ControllerReference, refused_us: int) -> ControllerAccessError | None:
        try:
            found = await self._client.find(reference)
        except ControllerAccessError as error:
            self._index.note(reference, refused_us)
            return error
        labels = self._namespaces.find_labels(reference.namespace)
        if labels is None:
            labels = await self._namespaces.look_up_labels(reference.namespace)
        result = self._index.put(reference, found, labels or {}, refused_us, self._now_us())
        if result is not None:
            self._on_woken(*result)
        return None
