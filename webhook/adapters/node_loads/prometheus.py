"""PrometheusLoads: the load of nodes from the HTTP API of a Prometheus."""

import asyncio
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from msgspec.structs import replace

from webhook.adapters.node_loads.prometheus_api import BadSeries, PrometheusApi, Series
from webhook.adapters.node_loads.queries import INSTANCE, build_queries
from webhook.core.policy_fields.nodes import PROMETHEUS_FILES, Nodes, PrometheusSource
from webhook.core.scheduling.measured_load import Decay, NodeLoad, average_with_decay, compute_deviation
from webhook.errors import LoadSourceError

_TIMEOUT_SECONDS = 5.0
_US = 1_000_000
_VALUE_CHARACTERS_MAX = 40
_VALUE_MAX = 1e100
"""No node has so much of anything, and sums of squares of a larger one are infinite."""
_NEEDED = frozenset({"cpu", "memory", "freshness"})
"""Signals of which NaN is a fault. A latency or a pressure may be a quotient of nothing by nothing."""


class PrometheusLoads:
    """A `ports.NodeLoads`. Averages are computed from the samples of the last window, so a restart forgets nothing."""

    def __init__(
        self,
        name: str,
        source: PrometheusSource,
        nodes: Nodes,
        needs_deviation: Callable[[], bool] = lambda: False,
        files: Path = Path(PROMETHEUS_FILES),
    ) -> None:
        """Create it. `files`: the folder of the credentials. Who writes the policy must not choose any file."""
        self.name = name
        self._needs_deviation = needs_deviation
        self._deviations: dict[str, dict[str, float]] = {}
        """By signal and node, of the reading under way; empty if nobody needs them."""
        self._source = source
        self._decay = Decay(nodes.decay.factor, nodes.decay.every.us / _US)
        self._queries = build_queries(source, self._decay)
        self._window_seconds = nodes.window.us / _US
        self._api = PrometheusApi(name, source, files)
        self.unread: dict[str, str] = {}

    async def measure(self, now_seconds: float) -> Mapping[str, NodeLoad]:
        """Return the loads of the nodes whose cpu, memory and sample time are known."""
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                loads = await self._loads(now_seconds)
        except TimeoutError as error:
            raise LoadSourceError(
                f"{self.name}: {self._source.url}: no answer within {_TIMEOUT_SECONDS:g} s"
            ) from error
        return loads

    async def _loads(self, now_seconds: float) -> Mapping[str, NodeLoad]:
        queries, self.unread = self._queries, {}
        averaged = ("cpu", "memory")
        instant = ("freshness", "latency", "cpu_pressure", "memory_pressure", "io_pressure")
        spread = self._deviations = {"cpu": {}, "memory": {}} if self._needs_deviation() else {}
        cpu, memory, fresh, *others = await asyncio.gather(
            *(self._averages(signal, getattr(queries, signal), now_seconds) for signal in averaged),
            *(self._values(signal, getattr(queries, signal), now_seconds) for signal in instant),
        )
        loads = {
            name: NodeLoad(
                self.name, fresh[name], 1000 * cpu[name], memory[name], *(values.get(name) for values in others)
            )
            for name in fresh.keys() & cpu.keys() & memory.keys()
        }
        for name in loads if spread else ():
            millis, bytes_ = 1000 * spread["cpu"][name], spread["memory"][name]
            loads[name] = replace(loads[name], cpu_deviation_millis=millis, memory_deviation_bytes=bytes_)
        if not loads:
            counts = f"cpu of {len(cpu)} nodes, memory of {len(memory)}, sample times of {len(fresh)}"
            raise LoadSourceError(
                f"{self.name}: {self._source.url}: no node with all of cpu, memory and a sample time ({counts}): "
                "check profile, nodeLabel and queries"
            )
        return loads

    async def close(self) -> None:
        await self._api.close()

    async def _averages(self, signal: str, query: str, now_seconds: float) -> dict[str, float]:
        step_seconds = self._decay.every_seconds
        parameters = {
            "query": query,
            "start": f"{now_seconds - self._window_seconds:.3f}",
            "end": f"{now_seconds:.3f}",
            "step": f"{step_seconds:.3f}",
        }
        found: dict[str, float] = {}
        async for series in self._api.ask("query_range", **parameters):
            for node_series in series:
                self._take(found, node_series, signal, now_seconds)
        return found

    async def _values(self, signal: str, query: str, now_seconds: float) -> dict[str, float]:
        """Return the values of an instant query; those that are no measurement are left out."""
        found: dict[str, float] = {}
        if not query:
            return found
        async for series in self._api.ask("query", query=query, time=f"{now_seconds:.3f}"):
            for node_series in series:
                self._take(found, node_series, signal, now_seconds)
        return found

    def _take(self, found: dict[str, float], series: Series | BadSeries, signal: str, now_seconds: float) -> None:
        """Add the average of a series' samples; one without any measurement loses its node's value alone."""
        node = self._find_node(series.metric)
        if isinstance(series, BadSeries):
            self.unread[f"{node or 'a series'} {signal}"] = series.reason
            return
        pairs = series.values if series.value is None else [series.value]
        samples = _parse_samples(pairs)
        value = average_with_decay(samples, now_seconds, self._decay)
        _keep_largest(found, node, value)
        if signal in self._deviations and value is not None:
            _keep_largest(self._deviations[signal], node, compute_deviation(samples, value, now_seconds, self._decay))
        if value is None and pairs and signal in _NEEDED:
            self.unread[f"{node} {signal}"] = f"{pairs[-1][1][:_VALUE_CHARACTERS_MAX]!r}: not a number of 0 or more"

    def _find_node(self, metric: Mapping[str, str]) -> str:
        """Return the name of a series' node: its label, else its instance without the port."""
        name = metric.get(self._source.node_label)
        if name:
            return name
        host = metric.get(INSTANCE, "")
        return host.rpartition(":")[0].strip("[]") if ":" in host else host


def _parse_samples(pairs: Iterable[tuple[float, str]]) -> list[tuple[float, float]]:
    return [(at_seconds, _parse_number(text)) for at_seconds, text in pairs]


def _keep_largest(found: dict[str, float], node: str, value: float | None) -> None:
    """Add the value of a node; of several series for one node the largest stays: a hot node must not look cool."""
    if node and value is not None:
        found[node] = max(value, found.get(node, 0.0))


def _parse_number(text: str) -> float:
    """Return a sample value; one that is no number, or too large to compute with, is NaN, which no average takes in."""
    try:
        value = float(text)
    except ValueError:
        return math.nan
    return value if value <= _VALUE_MAX else math.nan
