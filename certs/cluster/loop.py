"""Loop of the leader over its tasks: compares the wall clock with the cluster, and runs the steps that are due.

It sleeps for a fixed time, not until a deadline: a timer would miss it after a suspend, or when the clock is corrected.
"""

import asyncio
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from kubernetes_asyncio.client import ApiClient

from certs.cluster.api import Api
from certs.errors import CertsError

MADE, MENDED, OTHER = "made", "mended", "other"


@dataclass(frozen=True, slots=True)
class Action:
    """One write. `kind` is MADE (a certificate), MENDED (a change by another writer was undone), or OTHER."""

    kind: str
    what: str
    """Name of the object."""
    text: str


@dataclass(frozen=True, slots=True)
class TaskResult:
    """Result of one call of `reconcile`."""

    action: Action | None = None
    errors: tuple[str, ...] = ()
    ends: Mapping[str, datetime] = field(default_factory=dict)
    """Expiry of the certificates, by the name of their Secret."""
    is_overtaken: bool = False

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to do now."""
        return self.action is None and not self.is_overtaken


class Task(Protocol):
    """One thing to reconcile. Its state is in the cluster, because another process may lead next time."""

    async def reconcile(self, api: Api, now: datetime) -> TaskResult:
        """Take one step that is due, if any is. Failures of the cluster are returned as errors, not raised."""
        ...


def format_error(error: CertsError) -> str:
    return f"{error}: {error.remedy}" if error.remedy else str(error)


PAUSE_SECONDS_MAX = 10.0
"""Between two passes: bounds how long drift lasts and how late a due step is taken."""
_STAND_BY_SECONDS = 0.5
_STEPS_MAX = 50
"""Limit per pass. More would mean that two writers undo each other's changes."""


@dataclass(frozen=True, slots=True)
class TaskReports:
    """Callbacks of the loop. An error is reported once, and once more with the same text when it is over."""

    on_action: Callable[[Action], None]
    on_error: Callable[[str], None]
    on_recovered: Callable[[str], None]
    on_ends: Callable[[Mapping[str, datetime]], None]
    on_reset: Callable[[], None]
    """Earlier reports no longer hold: the loop has just started, or another process leads."""


async def run(
    client: ApiClient,
    is_leader: Callable[[], bool],
    tasks: Sequence[Task],
    reports: TaskReports,
    pause_seconds: float,
) -> None:
    """Reconcile all tasks whenever `is_leader`, until cancelled."""
    api = Api(client, is_leader)
    errors: tuple[str, ...] = ()
    has_led = False
    reports.on_reset()
    while True:
        if has_led and not is_leader():
            errors, has_led = (), False
            reports.on_reset()
        if is_leader():
            has_led = True
            found = await reconcile(api, tasks, reports)
            for text in errors:
                if text not in found:
                    reports.on_recovered(text)
            for text in found:
                if text not in errors:
                    reports.on_error(text)
            errors = found
        await asyncio.sleep(min(pause_seconds, PAUSE_SECONDS_MAX if is_leader() else _STAND_BY_SECONDS))


async def reconcile(api: Api, tasks: Sequence[Task], reports: TaskReports) -> tuple[str, ...]:
    """Run all steps that are due now; return the errors that are left."""
    errors: list[str] = []
    for task in tasks:
        for _ in range(_STEPS_MAX):
            result = await _take_step(task, api)
            reports.on_ends(result.ends)
            if result.action is not None:
                reports.on_action(result.action)
            if result.is_over or not api.may_write():
                break
        errors += result.errors
    return tuple(dict.fromkeys(errors))


async def _take_step(task: Task, api: Api) -> TaskResult:
    """Take one step of a task. A defect in it does not stop the other tasks."""
    try:
        return await task.reconcile(api, datetime.now(UTC).replace(microsecond=0))
    except Exception as error:  # noqa: BLE001  any defect; its message may hold a secret
        at = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{type(error).__name__} at {Path(at.filename).name}:{at.lineno}"
        return TaskResult(errors=(f"{type(task).__name__}: internal error ({place}): please report it",))
