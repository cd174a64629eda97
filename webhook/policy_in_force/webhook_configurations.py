"""Writer of the webhook configurations: compares the live ones with the policy in force, and replaces their webhooks.

Without the writer, the API server would not call for a new service until somebody renders the configurations again.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from webhook.core.policy.model import LoadedPolicy
from webhook.core.webhook_configurations import (
    ConfigurationName,
    OutdatedConfiguration,
    TooManyEntriesError,
    find_outdated,
    leaves_out_no_call,
    render_either_webhooks,
)
from webhook.errors import WebhookConfigurationError
from webhook.ports import WebhookConfigurationClient
from webhook.support.backoff import Backoff
from webhook.support.condition import Condition


@dataclass(frozen=True, slots=True)
class WebhookConfigurationReports:
    """Callbacks of the writer; `on_end` is called when it no longer runs."""

    on_compared: Callable[[Sequence[str]], None]
    """Called after each comparison with the configurations that differ."""
    on_written: Callable[[str], None]
    on_trouble: Callable[[str], None]
    on_over: Callable[[str], None]
    on_end: Callable[[], None]


@dataclass(frozen=True, slots=True)
class WebhookConfigurationTiming:
    """Intervals and bounds of the writer."""

    poll_seconds: float = 0.5
    """Interval of polling the policy: for that long a new service may be unknown to the API server."""
    check_seconds: float = 10.0
    """Interval of reading the configurations while the policy stays the same."""
    longest_pause_seconds: float = 60.0
    writes_max: int = 5
    """Writes of a configuration within `writes_seconds` for a policy: another writer may undo each of them."""
    writes_seconds: float = 3600.0


class WebhookConfigurationWriter:
    """Created for each term of leadership. With `writes=False` it only compares.

    `candidate`: the policy that is tried beside the one in force; the API server calls for Pods of either.
    """

    def __init__(
        self,
        client: WebhookConfigurationClient,
        policy: Callable[[], LoadedPolicy | None],
        reports: WebhookConfigurationReports,
        *,
        writes: bool,
        candidate: Callable[[], LoadedPolicy | None] = lambda: None,
        timing: WebhookConfigurationTiming = WebhookConfigurationTiming(),
    ) -> None:
        self._client = client
        self._policy = policy
        self._candidate = candidate
        self._reports = reports
        self._writes = writes
        self._timing = timing
        self._wanted: tuple[tuple[str, bool], Mapping[ConfigurationName, Sequence[Any]]] | None = None
        """Webhooks by the policies' hashes and whether no call is left out: rendered once for each."""
        self._checked = ""
        """The hashes of the policies that were compared."""
        self._check_at_seconds = 0.0
        self._written_at_seconds: dict[ConfigurationName, deque[float]] = defaultdict(deque)
        self._failure = Condition(reports.on_trouble, reports.on_over)
        self._backoff = Backoff(timing.poll_seconds, timing.longest_pause_seconds)

    async def run(self) -> None:
        """Compare and write until cancelled."""
        try:
            while True:
                pause_seconds = await self.run_round()
                await asyncio.sleep(pause_seconds)
        finally:
            self._reports.on_end()

    async def run_round(self) -> float:
        """Compare if that is due; return the delay before the next round, in seconds."""
        loaded, candidate, now_seconds = self._policy(), self._candidate(), asyncio.get_running_loop().time()
        hashes = _join_hashes(loaded, candidate)
        if loaded is None or (hashes == self._checked and now_seconds < self._check_at_seconds):
            return self._timing.poll_seconds
        if hashes != self._checked:
            self._written_at_seconds.clear()
        try:
            is_settled = await self._reconcile(loaded, candidate, now_seconds)
        except WebhookConfigurationError as error:
            self._failure.enter(str(error))
            return self._backoff.next_seconds(error.retry_after_seconds)
        self._failure.leave()
        self._backoff.reset()
        self._checked = hashes
        self._check_at_seconds = now_seconds + (self._timing.check_seconds if is_settled else 0)
        return self._timing.poll_seconds

    async def _reconcile(self, loaded: LoadedPolicy, candidate: LoadedPolicy | None, now_seconds: float) -> bool:
        """Compare and write once; return False if another writer was faster."""
        live = await self._client.read()
        wanted = await self._render_wanted(loaded, candidate, all_calls=leaves_out_no_call(live))
        left: list[str] = []
        is_settled = True
        for changed in find_outdated(wanted, live):
            if not self._writes or not changed.resource_version:
                left.append(str(changed))
            elif not self._may_write(changed, now_seconds):
                left.append(
                    f"{changed}; not written again: {self._timing.writes_max} writes were undone by another writer"
                )
            elif await self._client.write(changed):
                self._written_at_seconds[changed.name].append(now_seconds)
                self._reports.on_written(str(changed))
            else:
                left.append(str(changed))
                is_settled = False
        self._reports.on_compared(left)
        return is_settled

    def _may_write(self, changed: OutdatedConfiguration, now_seconds: float) -> bool:
        written = self._written_at_seconds[changed.name]
        while written and now_seconds - written[0] >= self._timing.writes_seconds:
            written.popleft()
        return len(written) < self._timing.writes_max

    async def _render_wanted(
        self, loaded: LoadedPolicy, candidate: LoadedPolicy | None, *, all_calls: bool
    ) -> Mapping[ConfigurationName, Sequence[Any]]:
        key = _join_hashes(loaded, candidate), all_calls
        if self._wanted is None or self._wanted[0] != key:
            try:
                # In a thread: reviews do not wait for it.
                self._wanted = (
                    key,
                    await asyncio.to_thread(render_either_webhooks, loaded, candidate, all_calls=all_calls),
                )
            except TooManyEntriesError as error:
                raise WebhookConfigurationError(f"{error}: {error.remedy}") from None
        return self._wanted[1]


def _join_hashes(*policies: LoadedPolicy | None) -> str:
    return " ".join(policy.hash for policy in policies if policy is not None)
