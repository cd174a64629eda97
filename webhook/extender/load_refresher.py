"""Load refresher: the load of nodes from all sources of the policy in force, at the interval of the policy."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter

from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.policy_fields.nodes import LoadSource, Nodes
from webhook.core.scheduling.measured_load import REQUESTS
from webhook.errors import LoadSourceError
from webhook.extender.load_table import LoadTable
from webhook.ports.scheduling import NodeLoads
from webhook.support.condition import Condition
from webhook.support.slices import slices

SETTLE_SECONDS = 1.0
"""How often the rows are computed between two refreshes: assumed load fades, and unconfirmed Pods are dropped."""
_STARTING_SECONDS = 0.05
_SLICE_MAX = 50
"""Nodes whose rows are computed in one turn of the event loop. More would delay calls."""
_US = 1_000_000

OpenSource = Callable[[str, LoadSource, Nodes], NodeLoads | None]
"""Opens a source under a name; None for the requests of Pods, which the table knows itself."""


@dataclass(frozen=True, slots=True)
class LoadReports:
    """Callbacks of the refresher, each with the source's name."""

    on_measured: Callable[[str, float], None]
    """With the seconds that it took."""
    on_failed: Callable[[str], None]
    on_unread: Callable[[str, Mapping[str, str]], None]
    """With what of the last answer could not be read: the reasons by name."""
    on_trouble: Callable[[str], None]
    """With the reason, once until it is over."""
    on_over: Callable[[str], None]


@dataclass(slots=True)
class _Source:
    """An open source, its trouble, and its reading under way."""

    loads: NodeLoads
    trouble: Condition[str]
    reading: asyncio.Task[None] | None = None


class LoadRefresher:
    """Keeps a load table current."""

    def __init__(
        self,
        table: LoadTable,
        policy: Callable[[], CompiledPolicy | None],
        open_source: OpenSource,
        now_seconds: Callable[[], float],
        reports: LoadReports,
    ) -> None:
        self._table = table
        self._policy = policy
        self._open_source = open_source
        self._now_seconds = now_seconds
        self._reports = reports
        self._nodes: Nodes | None = None
        self.has_read = False
        """Whether each source was read once, or has failed. Until then the rows lack the load of nodes."""
        self._sources: list[_Source] = []

    async def run(self) -> None:
        """Refresh until cancelled. A source that does not answer delays neither the others nor the rows."""
        loop, due_seconds = asyncio.get_running_loop(), 0.0
        try:
            while True:
                policy = self._policy()
                nodes = None if policy is None else policy.policy.nodes
                if nodes != self._nodes:
                    await self._configure(nodes)
                    await self._settle()
                    due_seconds = 0.0
                is_listed = self._table.index.is_complete  # before, a source's nodes would all be unknown
                if is_listed and loop.time() >= due_seconds and nodes is not None:
                    due_seconds = loop.time() + nodes.refresh.us / _US
                    for source in self._sources:
                        if source.reading is None or source.reading.done():
                            source.reading = asyncio.create_task(self._measure(source))
                readings = [source.reading for source in self._sources if source.reading is not None]
                if readings:
                    await asyncio.wait(readings, timeout=SETTLE_SECONDS)
                is_read = is_listed and all(reading.done() for reading in readings)
                await self._settle()
                self.has_read = self.has_read or is_read
                await asyncio.sleep(SETTLE_SECONDS if is_listed else _STARTING_SECONDS)
        finally:
            await self._close()

    async def _settle(self) -> None:
        async for nodes in slices(self._table.list_nodes(), _SLICE_MAX):
            self._table.settle(nodes)

    async def _configure(self, nodes: Nodes | None) -> None:
        await self._close()
        named = [] if nodes is None else name_sources(nodes.sources)
        opened = [(name, self._open_source(name, source, nodes)) for name, source in named if nodes is not None]
        self._sources = [
            _Source(loads, Condition(self._reports.on_trouble, self._reports.on_over))
            for _, loads in opened
            if loads is not None
        ]
        self._nodes = nodes
        self._table.configure(nodes, [name for name, _ in opened])

    async def _measure(self, source: _Source) -> None:
        started_seconds, name, trouble = perf_counter(), source.loads.name, source.trouble
        try:
            try:
                loads = await source.loads.measure(self._now_seconds())
            finally:
                self._reports.on_unread(name, source.loads.unread)
            unknown = self._table.take_measurements(name, loads)
        except Exception as error:  # noqa: BLE001  a defect in reading one source must not end the others
            self._reports.on_failed(name)
            trouble.enter(str(error) if isinstance(error, LoadSourceError) else repr(error))
            return
        self._reports.on_measured(name, perf_counter() - started_seconds)
        if loads and unknown == len(loads):
            trouble.enter(
                f"{name}: none of its {unknown} nodes is one of this cluster's, such as {next(iter(loads))!r}"
            )
        elif self._table.is_stale(name):
            trouble.enter(f"{name}: no sample is younger than nodes.staleAfter: raise it, or scrape nodes more often")
        else:
            trouble.leave()

    async def _close(self) -> None:
        sources, self._sources, self._nodes = self._sources, [], None
        readings = [source.reading for source in sources if source.reading is not None]
        for reading in readings:
            reading.cancel()
        await asyncio.gather(*readings, return_exceptions=True)
        await asyncio.gather(*(source.loads.close() for source in sources))


def name_sources(sources: Sequence[LoadSource]) -> list[tuple[str, LoadSource]]:
    """Return the sources by name; of several Prometheus servers the second one is prometheus-2."""
    found: list[tuple[str, LoadSource]] = []
    servers = 0
    for source in sources:
        if source.prometheus is not None:
            servers += 1
            found.append(("prometheus" if servers == 1 else f"prometheus-{servers}", source))
        else:
            found.append((REQUESTS if source.requests is not None else "metricsAPI", source))
    return found
