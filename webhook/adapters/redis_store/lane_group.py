"""Lanes: one lane for each node of the store."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from webhook.adapters.redis_store.lane import Lane, OnLate, OperationRunner
from webhook.adapters.redis_store.operations import ScriptOperation
from webhook.ports import StoreReports
from webhook.ports.traces import timed_calls


class Lanes:
    """One lane per node; `name_of` returns the node of a tag, which may change."""

    def __init__(
        self,
        name_of: Callable[[str], str],
        caller: OperationRunner,
        deadline_seconds: float,
        reports: StoreReports,
        on_late: OnLate,
    ) -> None:
        self._name_of = name_of
        self._caller = caller
        self._deadline_seconds = deadline_seconds
        self._reports = reports
        self._on_late = on_late
        self._lanes: dict[str, Lane] = {}

    def get_lane(self, tag: str) -> Lane:
        name = self._name_of(tag)
        lane = self._lanes.get(name)
        if lane is None:
            lane = Lane(self._caller, tag, self._deadline_seconds, self._reports, self._on_late)
            self._lanes[name] = lane
        return lane

    def ask(self, operation: ScriptOperation) -> Awaitable[Any]:
        """Ask for the result of an urgent operation; of a traced review, add the call that carries it."""
        tag, timed = operation.planned.plan.tag, timed_calls.get()
        lane = self._lanes.get(self._name_of(tag)) or self.get_lane(tag)
        return lane.ask(operation) if timed is None else lane.ask_timed(operation, timed, self._name_of(tag))

    def ask_patiently(self, operation: ScriptOperation) -> "asyncio.Future[Any]":
        """Ask for the result of an operation that is not urgent."""
        return self.get_lane(operation.planned.plan.tag).ask(operation, is_patient=True)

    def ask_first(self, operation: ScriptOperation) -> "asyncio.Future[Any]":
        """Ask for the result of an operation that takes effect before those of the same call."""
        return self.get_lane(operation.planned.plan.tag).ask_first(operation)

    def drop_moved(self) -> None:
        """Forget lanes of nodes that have nothing any more: nothing is asked there, so that no failure would end."""
        for name, lane in [*self._lanes.items()]:
            if self._name_of(lane.tag) != name:
                del self._lanes[name]
                lane.retire()

    async def close(self) -> None:
        for lane in self._lanes.values():
            await lane.close()
