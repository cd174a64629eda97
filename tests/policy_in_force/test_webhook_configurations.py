"""Writer of the webhook configurations: what differs is written, within bounds, and reported."""

import asyncio
from collections.abc import Mapping
from typing import Any

from tests.core.webhook_configurations.configurations import policy_of
from tests.core.webhook_configurations.live import CLIENTS, HASH, Live, build_stored_configurations
from tests.harness.fake_apiserver import wait_until
from webhook.core.policy.model import LoadedPolicy
from webhook.core.webhook_configurations import NAMES, ConfigurationName, OutdatedConfiguration
from webhook.errors import WebhookConfigurationError
from webhook.policy_in_force.webhook_configurations import (
    WebhookConfigurationReports,
    WebhookConfigurationTiming,
    WebhookConfigurationWriter,
)

FIRST, SECOND = (
    LoadedPolicy(policy_of({"match": {"namespaces": [name]}}), policy_hash)
    for name, policy_hash in (("a", HASH), ("b", "b" * 16))
)
AT_ONCE = WebhookConfigurationTiming(poll_seconds=0, check_seconds=0, longest_pause_seconds=0)


class FakeConfigurations:
    """Webhook configurations in memory. `is_overtaken`: another writer is faster. `undoes`: one restores the former."""

    def __init__(self, live: Live) -> None:
        self.live = live
        self.error: WebhookConfigurationError | None = None
        self.reads = self.writes = 0
        self.is_overtaken = self.undoes = False

    async def read(self) -> Mapping[ConfigurationName, dict[str, Any]]:
        self.reads += 1
        if self.error is not None:
            raise self.error
        return self.live

    async def write(self, changed: OutdatedConfiguration) -> bool:
        if self.is_overtaken:
            return False
        self.writes += 1
        if not self.undoes:
            self.live = {**self.live, changed.name: {**self.live[changed.name], "webhooks": changed.webhooks}}
        return True


class Running:
    """A writer whose rounds a test makes, and its reports."""

    def __init__(
        self, policy: LoadedPolicy | None = FIRST, *, writes: bool = True, timing: WebhookConfigurationTiming = AT_ONCE
    ) -> None:
        self.client = FakeConfigurations(build_stored_configurations(FIRST.policy, CLIENTS[0]))
        self.policy = policy
        self.compared: list[list[str]] = []
        self.written: list[str] = []
        self.troubles: list[str] = []
        self.ends = 0
        reports = WebhookConfigurationReports(
            lambda outdated: self.compared.append(list(outdated)),
            self.written.append,
            self.troubles.append,
            lambda reason: self.troubles.append(f"over: {reason}"),
            self._end,
        )
        self.writer = WebhookConfigurationWriter(
            self.client, lambda: self.policy, reports, writes=writes, timing=timing
        )

    def _end(self) -> None:
        self.ends += 1

    def run_rounds(self, count: int = 1) -> "Running":
        async def write_rounds() -> None:
            for _ in range(count):
                await self.writer.run_round()

        asyncio.run(write_rounds())
        return self


def names_of_namespaces(live: Live) -> str:
    return str(live[NAMES[0]]["webhooks"][0]["matchConditions"][0]["expression"])


def test_nothing_is_written_while_nothing_differs() -> None:
    running = Running().run_rounds(3)
    assert running.written == []
    assert running.compared == [[], [], []]


def test_a_new_policy_is_written_in_the_next_round() -> None:
    running = Running().run_rounds(2)
    assert names_of_namespaces(running.client.live) == "request.namespace == 'a'"
    running.policy = SECOND
    running.run_rounds(1)
    assert names_of_namespaces(running.client.live) == "request.namespace == 'b'"
    assert running.compared[-1] == []
    assert any(str(NAMES[0]) in text for text in running.written)


def test_without_writes_the_differences_are_only_reported() -> None:
    running = Running(SECOND, writes=False).run_rounds(1)
    assert running.client.writes == 0
    assert [line.split(":")[0] for line in running.compared[-1]] == [str(name) for name in NAMES[:2]]


def test_the_configurations_are_read_only_when_it_is_time_or_the_policy_has_changed() -> None:
    running = Running(timing=WebhookConfigurationTiming(poll_seconds=0, check_seconds=3600)).run_rounds(5)
    assert running.client.reads == 1
    running.policy = SECOND
    assert running.run_rounds(5).client.reads == 2


def test_no_policy_writes_nothing() -> None:
    assert Running(None).run_rounds(3).client.reads == 0


def test_after_an_overtaken_write_the_next_round_reads_again() -> None:
    running = Running(SECOND, timing=WebhookConfigurationTiming(poll_seconds=0, check_seconds=3600))
    running.client.is_overtaken = True
    running.run_rounds(3)
    assert running.client.reads == 3
    assert len(running.compared[-1]) == 2
    running.client.is_overtaken = False
    running.run_rounds(3)
    assert running.client.reads == 4
    assert running.compared[-1] == []


def test_a_writer_that_undoes_each_write_is_named_after_a_bounded_number_of_writes() -> None:
    running = Running(SECOND)
    running.client.undoes = True
    running.run_rounds(20)
    assert running.client.writes == 2 * AT_ONCE.writes_max
    assert all("5 writes were undone by another writer" in line for line in running.compared[-1])
    running.policy = FIRST
    running.run_rounds(1)
    assert running.compared[-1] == [], "another policy is written"


def test_an_absent_configuration_is_reported_and_not_created() -> None:
    running = Running()
    del running.client.live[NAMES[1]]
    running.run_rounds(2)
    assert running.compared[-1] == [f"{NAMES[1]}: absent"]
    assert set(running.client.live) == {NAMES[0], NAMES[2]}


def test_a_failure_is_reported_once_and_its_end() -> None:
    running = Running()
    running.client.error = WebhookConfigurationError("cannot read: HTTP 403")
    running.run_rounds(3)
    running.client.error = None
    running.run_rounds(1)
    assert running.troubles == ["cannot read: HTTP 403", "over: cannot read: HTTP 403"]


def test_the_end_is_reported_when_the_writer_is_cancelled() -> None:
    running = Running()

    async def lead() -> None:
        task = asyncio.create_task(running.writer.run())
        await wait_until(lambda: bool(running.compared))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(lead())
    assert running.ends == 1
    assert running.compared
