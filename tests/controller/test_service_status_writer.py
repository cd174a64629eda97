"""The writer of ServiceStatuses: changes are written, within bounds, and nothing else."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.core.rollout.policies import build_canary, write_divided
from tests.harness.fake_apiserver import wait_until
from webhook.controller import ServiceStatusWriter, StatusReports, StatusTiming
from webhook.core.breaker import BreakerView, State
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.document.loading import load_effective
from webhook.core.policy.model import LoadedPolicy
from webhook.core.quota import CounterPlan
from webhook.core.reporting.status_parts import render_service_status
from webhook.errors import StatusError, StatusNotInstalledError

DEFINITION = Path(__file__).parents[2] / "manifests/base/05-servicestatus.yaml"
CLOSED, OPEN = BreakerView(State.CLOSED, 0, 0), BreakerView(State.OPEN, 1, 1_800_000_000_000_000, 1_800_000_180_000_000)
TIMING = StatusTiming(round_seconds=1, writes_max=2, read_seconds=300, first_pause_seconds=1, pause_seconds_max=4)
READ_EACH_ROUND = StatusTiming(writes_max=2, read_seconds=0)
"""The writer reads the statuses in each round."""
FORBIDDEN = StatusError("cannot write: HTTP 403")


def compile_policy(*services: str, mode: str = "Enforce") -> CompiledPolicy:
    """Return a policy whose services have a breaker each, except for `plain`."""
    breaker = f"breaker: {{quotaExceeded: {{}}}}, modes: {{breaker: {mode}}}"
    breaker += ", quota: {windows: [{window: 1m, hard: {pods: 1}}]}"
    rows = [f"- {{name: {name}, match: {{namespaces: [{name}]}}, {breaker}}}" for name in services if name != "plain"]
    rows += ["- {name: plain, match: {namespaces: [plain]}}"] * ("plain" in services)
    text = "apiVersion: podgate.io/v1alpha1\nkind: Policy\nservices:\n" + "\n".join(rows)
    return CompiledPolicy(LoadedPolicy(load_effective(text.encode(), None).policy, "0" * 16))


class FakeStatusApi:
    """The API of ServiceStatuses in memory, with errors for all calls or some services; it records calls."""

    def __init__(self, statuses: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self.statuses = dict(statuses or {})
        self.errors: dict[str, Exception] = {}
        self.calls: list[str] = []

    async def read(self) -> Mapping[str, Mapping[str, Any]]:
        self._record("read")
        return self.statuses

    async def write(self, service: str, status: Mapping[str, Any]) -> None:
        self._record(service)
        self.statuses = {**self.statuses, service: status}

    async def delete(self, service: str) -> None:
        self._record(f"-{service}")
        self.statuses = {name: status for name, status in self.statuses.items() if name != service}

    def _record(self, call: str) -> None:
        self.calls.append(call)
        for key in (call, "*"):
            if key in self.errors:
                raise self.errors[key]

    def take_calls(self) -> list[str]:
        calls, self.calls = self.calls, []
        return calls


class WriterSimulation:
    """A policy, its breakers, ServiceStatuses, and their writer."""

    def __init__(self, *services: str, api: FakeStatusApi | None = None, timing: StatusTiming = TIMING) -> None:
        self.policy: CompiledPolicy | None = compile_policy(*services)
        self.views: dict[str, BreakerView] = dict.fromkeys(services, CLOSED)
        self.api = api or FakeStatusApi()
        self.reported: list[str] = []
        report = self.reported.append
        reports = StatusReports(lambda text: report(f"absent {text}"), report, lambda text: report(f"over {text}"))
        self.writer = ServiceStatusWriter(self.api, self._find_view, lambda: self.policy, reports, timing=timing)

    def _find_view(self, plan: CounterPlan) -> BreakerView | None:
        return self.views.get(plan.service)

    def build_status(self, service: str) -> Mapping[str, Any]:
        assert self.policy is not None
        return render_service_status(self.policy.plans[service], self.views[service])

    async def run_round(self) -> list[str]:
        """Run one round; return the calls of the API."""
        await self.writer.round()
        return self.api.take_calls()


async def test_only_changed_statuses_are_written() -> None:
    simulation = WriterSimulation("a", "b")
    assert await simulation.run_round() == ["read", "a", "b"]
    assert await simulation.run_round() == []
    simulation.views["b"] = OPEN
    assert await simulation.run_round() == ["b"]
    assert simulation.api.statuses == {"a": simulation.build_status("a"), "b": simulation.build_status("b")}
    assert simulation.api.statuses["b"]["breaker"]["state"] == "OPEN"


async def test_next_leader_writes_only_differing_statuses() -> None:
    simulation = WriterSimulation("a", "b")
    simulation.api.statuses = {"a": simulation.build_status("a"), "b": {}}
    assert await simulation.run_round() == ["read", "b"]


async def test_writes_per_round_are_bounded_and_oldest_first() -> None:
    simulation = WriterSimulation("a", "b", "c")
    assert await simulation.run_round() == ["read", "a", "b"]
    simulation.views |= {"a": OPEN, "b": OPEN}
    assert await simulation.run_round() == ["c", "a"]
    assert await simulation.run_round() == ["b"]


async def test_status_of_a_removed_service_is_deleted() -> None:
    simulation = WriterSimulation("a", "b")
    await simulation.run_round()
    simulation.policy = compile_policy("b")
    assert await simulation.run_round() == ["-a"]
    assert set(simulation.api.statuses) == {"b"}
    simulation.policy = None
    assert await simulation.run_round() == [], "without a policy no status is deleted"


async def test_policy_changes_are_written() -> None:
    simulation = WriterSimulation("a")
    await simulation.run_round()
    simulation.policy = compile_policy("a")
    assert await simulation.run_round() == [], "compiled again, without changes"
    simulation.policy = compile_policy("a", mode="Audit")
    assert await simulation.run_round() == ["a"]
    assert simulation.api.statuses["a"]["breaker"]["mode"] == "Audit"


async def test_service_without_a_breaker_has_a_status() -> None:
    simulation = WriterSimulation("a", "plain")
    await simulation.run_round()
    assert simulation.api.statuses["plain"] == {}


async def test_status_of_an_uncounted_breaker_is_kept() -> None:
    simulation = WriterSimulation("a")
    simulation.api.statuses = {"a": {"breaker": {"state": "OPEN"}}}
    simulation.views.clear()
    assert await simulation.run_round() == ["read"]
    simulation.views["a"] = CLOSED
    assert await simulation.run_round() == ["a"]


async def test_status_changed_by_another_client_is_restored_in_the_next_round() -> None:
    simulation = WriterSimulation("a", "b", timing=READ_EACH_ROUND)
    await simulation.run_round()
    simulation.api.statuses = {"b": {}}
    assert await simulation.run_round() == ["read", "a", "b"]


async def test_missing_status_crd_is_reported_once_and_retried_later() -> None:
    simulation = WriterSimulation("a")
    simulation.api.errors["*"] = StatusNotInstalledError("put one up")
    assert [await simulation.writer.round() for _ in range(2)] == [TIMING.read_seconds] * 2
    assert simulation.reported == ["absent put one up"]
    simulation.api.errors.clear()
    simulation.api.take_calls()
    assert await simulation.run_round() == ["read", "a"]
    simulation.api.errors["*"] = StatusNotInstalledError("put one up")
    simulation.views["a"] = OPEN
    assert await simulation.writer.round() == TIMING.read_seconds, "the CRD was removed"
    assert simulation.reported == ["absent put one up"] * 2
    simulation.api.errors.clear()
    simulation.api.statuses, simulation.api.calls = {}, []
    assert await simulation.run_round() == ["read", "a"], "a new CRD has no statuses"


async def test_unavailable_status_api_is_reported_once_and_retried_with_backoff() -> None:
    simulation = WriterSimulation("a")
    simulation.api.errors["*"] = FORBIDDEN
    assert [await simulation.writer.round() for _ in range(4)] == [1, 2, 4, 4]
    simulation.api.errors["*"] = StatusError("busy", retry_after_seconds=30)
    assert await simulation.writer.round() == 30
    simulation.api.errors.clear()
    assert await simulation.writer.round() == TIMING.round_seconds
    assert simulation.reported == [f"{FORBIDDEN}", f"over {FORBIDDEN}", "busy", "over busy"]
    simulation.api.errors["a"], simulation.views["a"] = FORBIDDEN, OPEN
    assert await simulation.writer.round() == 1, "the backoff starts again"


async def test_error_that_ends_in_a_missing_crd_is_not_reported_as_resolved() -> None:
    simulation = WriterSimulation("a")
    for error in (
        StatusNotInstalledError("put one up"),
        FORBIDDEN,
        StatusNotInstalledError("put one up"),
        StatusNotInstalledError("put one up"),
    ):
        simulation.api.errors["*"] = error
        await simulation.writer.round()
    assert simulation.reported == ["absent put one up", f"{FORBIDDEN}", "absent put one up"]


async def test_rejected_status_delays_no_other_service() -> None:
    simulation = WriterSimulation("a", "b", "c")
    simulation.api.errors["a"] = FORBIDDEN
    assert await simulation.run_round() == ["read", "a"]
    assert await simulation.run_round() == ["b", "c"]
    assert await simulation.run_round() == ["a"]
    simulation.api.errors.clear()
    assert await simulation.run_round() == ["a"]


async def test_writer_runs_until_cancelled() -> None:
    simulation = WriterSimulation("a", timing=StatusTiming(round_seconds=0))
    running = asyncio.create_task(simulation.writer.run())
    await wait_until(lambda: "a" in simulation.api.statuses)
    simulation.views["a"] = OPEN
    await wait_until(lambda: simulation.api.statuses["a"] == simulation.build_status("a"))
    running.cancel()


DIVIDED = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: web
  match: {namespaces: [shop]}
  placement:
    shares:
      variants:
      - {name: spot, weight: 1, nodeSelector: {kind: spot}}
      - {name: arm, weight: 1, nodeSelector: {kind: arm}}
      - {name: on-demand, weight: 1, nodeSelector: {kind: on-demand}}
"""


async def test_a_service_with_shares_has_the_breakers_of_its_variants() -> None:
    simulation = WriterSimulation("plain")
    simulation.policy = CompiledPolicy(LoadedPolicy(load_effective(DIVIDED.encode(), None).policy, "0" * 16))
    assert await simulation.run_round() == ["read"], "they are not known yet"
    simulation.views |= {"web/spot": CLOSED, "web/arm": OPEN}
    assert await simulation.run_round() == ["web"]
    assert simulation.api.statuses["web"] == {
        "variants": [
            {"name": "spot", "state": "CLOSED"},
            {"name": "arm", "state": "OPEN", "until": "2027-01-15T08:03:00.000Z"},
        ]
    }
    assert await simulation.run_round() == []
    simulation.views["web/spot"] = OPEN
    assert await simulation.run_round() == ["web"]
    assert [variant["state"] for variant in simulation.api.statuses["web"]["variants"]] == ["OPEN", "OPEN"]


async def test_variants_of_both_policies_of_a_canary_are_shown_and_no_more_than_the_definition_allows() -> None:
    stable = [*(f"s{number}" for number in range(9)), "on-demand"]
    candidate = [*(f"c{number}" for number in range(9)), "s0", "on-demand"]
    simulation = WriterSimulation("plain")
    simulation.policy = build_canary(write_divided(*stable), write_divided(*candidate))
    simulation.views = dict.fromkeys((plan.service for plan in simulation.policy.list_breakers()), CLOSED)
    await simulation.run_round()
    names = [variant["name"] for variant in simulation.api.statuses["a"]["variants"]]
    assert names == [*stable[:-1], *candidate[:7]]
    assert len(names) == read_definition()["maxItems"]


def read_definition() -> dict[str, Any]:
    """Return the schema of `status.variants`."""
    definition = yaml.safe_load(DEFINITION.read_text())
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    variants: dict[str, Any] = schema["properties"]["status"]["properties"]["variants"]
    return variants


def test_the_definition_knows_each_state_and_field_of_a_variant() -> None:
    items = read_definition()["items"]
    assert set(items["properties"]) == {"name", "state", "until"}
    assert set(items["properties"]["state"]["enum"]) == set(State)
