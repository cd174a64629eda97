"""Load refresher: the load of nodes from all sources of the policy in force, at the interval of the policy."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter

from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.policy_spec.nodes import LoadSource, Nodes
from webhook.core.scheduling.filters import REQUESTS
from webhook.errors import LoadSourceError
from webhook.extender.load_table import LoadTable
from webhook.ports.scheduling import NodeLoads
from webhook.support.condition import Condition

_SETTLE_SECONDS = 1.0
"""How often the rows are computed anew between two refreshes: assumed load fades, and unconfirmed Pods are dropped."""
_US = 1_000_000

OpenSource = Callable[[str, LoadSource, Nodes], NodeLoads | None]
"""Opens a source under a name; None for the requests of Pods, which the table knows itself."""


@dataclass(frozen=True, slots=True)
class LoadReports:
    """Callbacks of the refresher, each with the source's name."""

    on_measured: Callable[[str, float], None]
    """With the seconds that it took."""
    on_failed: Callable[[str], None]
    on_trouble: Callable[[str], None]
    """With the reason, once until it is over."""
    on_over: Callable[[str], None]


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
        self._sources: list[tuple[NodeLoads, Condition[str]]] = []

    async def run(self) -> None:
        """Refresh until cancelled."""
        loop, due_seconds = asyncio.get_running_loop(), 0.0
        try:
            while True:
                policy = self._policy()
                nodes = None if policy is None else policy.policy.nodes
                if nodes != self._nodes:
                    await self._configure(nodes)
                    due_seconds = 0.0
                if loop.time() >= due_seconds and nodes is not None:
                    due_seconds = loop.time() + nodes.refresh.us / _US
                    await asyncio.gather(*(self._measure(source, trouble) for source, trouble in self._sources))
                self._table.settle()
                await asyncio.sleep(_SETTLE_SECONDS)
        finally:
            await self._close()

    async def _configure(self, nodes: Nodes | None) -> None:
        await self._close()
        named = [] if nodes is None else names_of(nodes.sources)
        opened = [(name, self._open_source(name, source, nodes)) for name, source in named if nodes is not None]
        self._sources = [
            (source, Condition(self._reports.on_trouble, self._reports.on_over))
            for _, source in opened
            if source is not None
        ]
        self._nodes = nodes
        self._table.configure(nodes, [name for name, _ in opened])

    async def _measure(self, source: NodeLoads, trouble: Condition[str]) -> None:
        started_seconds = perf_counter()
        try:
            loads = await source.measure(self._now_seconds())
        except LoadSourceError as error:
            self._reports.on_failed(source.name)
            trouble.enter(str(error))
            return
        unknown = self._table.measured(source.name, loads)
        self._reports.on_measured(source.name, perf_counter() - started_seconds)
        if loads and unknown == len(loads):
            name = next(iter(loads))
            trouble.enter(f"{source.name}: none of its {unknown} nodes is one of this cluster's, such as {name!r}")
        else:
            trouble.leave()

    async def _close(self) -> None:
        await asyncio.gather(*(source.close() for source, _ in self._sources))
        self._sources = []


def names_of(sources: Sequence[LoadSource]) -> list[tuple[str, LoadSource]]:
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
