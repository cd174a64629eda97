"""Refreshes with sources that hang, fail and lie: the others are read, and the rows stay current."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.document import Purpose
from webhook.core.document import load as load_policy
from webhook.core.policy_fields.nodes import LoadSource, Nodes
from webhook.core.policy_fields.scheduling import Estimate
from webhook.core.scheduling.measured_load import NodeLoad
from webhook.core.scheduling.node_table import KnownNode, SchedulableNode
from webhook.errors import LoadSourceError
from webhook.extender import load_refresher
from webhook.extender.load_refresher import LoadRefresher, LoadReports
from webhook.extender.load_table import LoadTable

START = 1_000_000.0
GIB = float(1 << 30)
POLICY = b"""\
apiVersion: podgate.io/v1alpha1
kind: Policy
nodes:
  refresh: 10ms
  staleAfter: 90s
  sources: [{prometheus: {url: "https://prometheus:9090"}}, {metricsAPI: {}}, {requests: {}}]
services: [{name: web, match: {namespaces: [shop]}}]
"""


@dataclass
class FakeSource:
    """Returns `loads`, raises them, or hangs if they are None."""

    name: str
    loads: Mapping[str, NodeLoad] | Exception | None = None
    unread: Mapping[str, str] = field(default_factory=dict)
    readings: int = 0
    is_closed: bool = False

    async def measure(self, now_seconds: float) -> Mapping[str, NodeLoad]:
        del now_seconds
        self.readings += 1
        if self.loads is None:
            await asyncio.Event().wait()
        if isinstance(self.loads, Exception):
            raise self.loads
        assert self.loads is not None
        return self.loads

    async def close(self) -> None:
        self.is_closed = True


class Refreshed:
    """A refresher at work with its table, and what it reported."""

    def __init__(self, sources: dict[str, FakeSource]) -> None:
        self.sources = sources
        self.now_seconds = START
        self.failed: list[str] = []
        self.troubles: list[str] = []
        self.table = LoadTable(lambda _: Estimate(), lambda: self.now_seconds, lambda *_: None)
        known = (
            KnownNode(SchedulableNode(name, 8000.0, 32 * GIB), (address,))
            for name, address in (("a", "10.0.0.1"), ("b", "10.0.0.2"))
        )
        self._known = tuple(known)
        policy = CompiledPolicy(load_policy(POLICY, Purpose.SCHEDULE).policy)
        self.unread: dict[str, Mapping[str, str]] = {}
        reports = LoadReports(
            lambda *_: None, self.failed.append, self.unread.__setitem__, self.troubles.append, lambda _: None
        )
        self.refresher = LoadRefresher(self.table, lambda: policy, self._open, lambda: self.now_seconds, reports)
        self.task = asyncio.create_task(self.refresher.run())

    def _open(self, name: str, source: LoadSource, _: Nodes) -> FakeSource | None:
        return None if source.requests is not None else self.sources[name]

    async def list_nodes(self) -> None:
        """Let the watches have listed all Nodes, and no Pods."""
        index = self.table.index
        index.on_nodes_listed(self._known)
        await index.on_list_begun()
        await index.on_list_complete()

    def restart(self) -> None:
        """Start it again, as the supervisor does after a defect."""
        self.task = asyncio.create_task(self.refresher.run())

    async def wait_until(self, condition: Callable[[], object]) -> None:
        """Wait for a condition while the refresher runs."""
        while not condition():
            assert not self.task.done()
            await asyncio.sleep(0.002)

    async def wait_for_source(self, node: str, source: str) -> None:
        """Wait until the load of a node is from a source."""
        await self.wait_until(lambda: node in self.table.rows and self.find_source(node) == source)

    def find_source(self, node: str) -> str:
        load = self.table.rows[node].load
        return "" if load is None else load.source


def load(source: str, cpu_millis: float, at_seconds: float = START) -> NodeLoad:
    return NodeLoad(source, at_seconds, cpu_millis, GIB)


@asynccontextmanager
async def refresh_loads(
    monkeypatch: pytest.MonkeyPatch, *, is_listed: bool = True, **loads: Mapping[str, NodeLoad] | Exception | None
) -> AsyncIterator[Refreshed]:
    """Refresh the load of the nodes a and b with these loads of `prometheus` and `metricsAPI`."""
    for interval in ("SETTLE_SECONDS", "_STARTING_SECONDS"):
        monkeypatch.setattr(load_refresher, interval, 0.005)
    state = Refreshed({name: FakeSource(name, loads.get(name, {})) for name in ("prometheus", "metricsAPI")})
    if is_listed:
        await state.list_nodes()
    async with asyncio.timeout(60):
        yield state
    state.task.cancel()
    await asyncio.gather(state.task, return_exceptions=True)
    assert all(source.is_closed for source in state.sources.values())


async def test_source_that_hangs_delays_neither_the_next_one_nor_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = {"a": load("metricsAPI", 7000)}
    async with refresh_loads(monkeypatch, prometheus=None, metricsAPI=measured) as state:
        await state.wait_for_source("a", "metricsAPI")
        assert (state.find_source("b"), state.table.rows["b"].is_silent) == ("requests", True), "per node"
        seen = state.sources["metricsAPI"].readings
        await state.wait_until(lambda: state.sources["metricsAPI"].readings > seen + 3)
        assert state.sources["prometheus"].readings == 1, "a reading under way is not started again"


@pytest.mark.parametrize("error", [LoadSourceError("prometheus: gone"), ValueError("a defect")])
async def test_source_that_fails_is_counted_and_the_next_one_takes_over_once_its_last_load_is_stale(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = {"a": load("prometheus", 7000), "b": load("prometheus", 1000)}
    async with refresh_loads(
        monkeypatch, prometheus=measured, metricsAPI={"a": load("metricsAPI", 6500, START + 95)}
    ) as state:
        await state.wait_for_source("a", "prometheus")
        state.sources["prometheus"].loads = error
        await state.wait_until(lambda: state.failed.count("prometheus") > 2)
        assert state.find_source("a") == "prometheus", "the last load is fresh"
        state.now_seconds = START + 95
        await state.wait_for_source("a", "metricsAPI")
        assert (state.find_source("b"), state.table.rows["b"].is_silent) == ("prometheus", True), "per node"
        state.sources["prometheus"].loads = {
            "a": load("prometheus", 7100, START + 96),
            "b": load("prometheus", 7, START + 96),
        }
        await state.wait_for_source("a", "prometheus")
        assert state.find_source("b") == "prometheus"
        assert len(state.troubles) == 1, "told once"


async def test_source_whose_samples_are_all_stale_is_in_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    async with refresh_loads(monkeypatch, prometheus={"a": load("prometheus", 1, START - 91)}) as state:
        await state.wait_until(lambda: any("staleAfter" in trouble for trouble in state.troubles))
        state.sources["prometheus"].loads = {"a": load("prometheus", 1)}
        await state.wait_for_source("a", "prometheus")


async def test_names_of_no_node_are_left_out_and_a_source_of_nothing_else_is_in_trouble(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with refresh_loads(monkeypatch, prometheus={"stranger": load("prometheus", 1)}) as state:
        await state.wait_until(lambda: state.troubles)
        assert "none of its 1 nodes is one of this cluster's, such as 'stranger'" in state.troubles[0]
        assert state.table.rows.keys() == {"a", "b"}
        state.sources["prometheus"].loads = {"stranger": load("prometheus", 1), "a": load("prometheus", 5)}
        await state.wait_for_source("a", "prometheus")


async def test_node_with_two_names_has_the_larger_load_and_no_time_in_the_future(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for cpu in (7000, 1000):
        loads = {"a": load("prometheus", cpu), "10.0.0.1": load("prometheus", 8000 - cpu, START + 1e9)}
        async with refresh_loads(monkeypatch, prometheus=loads) as state:
            await state.wait_for_source("a", "prometheus")
            found = state.table.rows["a"].load
            assert found is not None
            assert (found.cpu_millis, found.measured_at_seconds) == (7000, START)
            state.sources["prometheus"].loads = LoadSourceError("gone")
            state.now_seconds = START + 95
            await state.wait_for_source("a", "requests")


async def test_sources_are_read_once_the_nodes_are_listed_and_the_extender_is_ready_after_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = {"a": load("prometheus", 7000)}
    async with refresh_loads(
        monkeypatch, is_listed=False, prometheus=found, metricsAPI=LoadSourceError("gone")
    ) as state:
        await asyncio.sleep(0.05)
        assert state.sources["prometheus"].readings == 0, (
            "its nodes would be unknown, and be read again at the next time"
        )
        assert not state.refresher.has_read
        await state.list_nodes()
        await state.wait_until(lambda: state.refresher.has_read)
        assert state.find_source("a") == "prometheus", "the rows have the load as soon as the extender is ready"
        assert state.failed == ["metricsAPI"], "a source that fails does not keep it unready"


async def test_restarted_refresher_reads_its_sources_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The supervisor restarts a loop that failed."""
    async with refresh_loads(monkeypatch, prometheus={"a": load("prometheus", 1)}) as state:
        await state.wait_for_source("a", "prometheus")
        with monkeypatch.context() as broken:
            broken.setattr(state.table, "settle", lambda _: 1 / 0)
            await asyncio.wait([state.task])
        with pytest.raises(ZeroDivisionError):
            state.task.result()
        seen = state.sources["prometheus"].readings
        state.restart()
        await state.wait_until(lambda: state.sources["prometheus"].readings > seen)
