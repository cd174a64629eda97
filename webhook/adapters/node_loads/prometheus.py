"""PrometheusLoads: the load of nodes from the HTTP API of a Prometheus."""

import asyncio
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from msgspec import Struct, field

from webhook.adapters.node_loads.queries import INSTANCE, queries_of
from webhook.core.policy_spec.nodes import Nodes, PrometheusSource
from webhook.core.scheduling.node_load import Decay, LoadSample, NodeLoad, decayed_average
from webhook.errors import LoadSourceError

_TIMEOUT_SECONDS = 5.0
_BODY_BYTES_MAX = 64 << 20
_IN_THREAD_BYTES = 32 << 10
_ERROR_SHOWN = 200
_US = 1_000_000


class _Series(Struct):
    metric: dict[str, str]
    value: tuple[float, str] | None = None
    values: list[tuple[float, str]] = []


class _Data(Struct):
    result_type: str = field(name="resultType", default="")
    result: list[_Series] = []


class _Answer(Struct):
    status: str
    data: _Data = field(default_factory=_Data)
    error: str = ""


class PrometheusLoads:
    """A `ports.NodeLoads`. Averages are computed from the samples of the last window, so a restart forgets nothing."""

    def __init__(self, name: str, source: PrometheusSource, nodes: Nodes) -> None:
        self.name = name
        self._source = source
        self._decay = Decay(nodes.decay.factor, nodes.decay.every.us / _US)
        self._queries = queries_of(source, self._decay)
        self._window_seconds = nodes.window.us / _US
        self._session: aiohttp.ClientSession | None = None

    async def measure(self, now_seconds: float) -> Mapping[str, NodeLoad]:
        queries = self._queries
        averaged = (queries.cpu, queries.memory)
        instant = (
            queries.freshness,
            queries.latency,
            queries.cpu_pressure,
            queries.memory_pressure,
            queries.io_pressure,
        )
        cpu, memory, fresh, *others = await asyncio.gather(
            *(self._averages(one, now_seconds) for one in averaged),
            *(self._values(one, now_seconds) for one in instant),
        )
        latency, cpu_pressure, memory_pressure, io_pressure = others
        loads: dict[str, NodeLoad] = {}
        for name, measured_at_seconds in fresh.items():
            cores = cpu.get(name)
            loads[name] = NodeLoad(
                self.name,
                measured_at_seconds,
                None if cores is None else 1000 * cores,
                memory.get(name),
                latency.get(name),
                cpu_pressure.get(name),
                memory_pressure.get(name),
                io_pressure.get(name),
            )
        return loads

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _averages(self, query: str, now_seconds: float) -> dict[str, float]:
        step_seconds = self._decay.every_seconds
        series = await self._ask(
            "query_range",
            query=query,
            start=f"{now_seconds - self._window_seconds:.3f}",
            end=f"{now_seconds:.3f}",
            step=f"{step_seconds:g}",
        )
        found: dict[str, float] = {}
        for name, one in series.items():
            samples = [LoadSample(at_seconds, _number(text)) for at_seconds, text in one.values]
            average = decayed_average(samples, now_seconds, self._decay)
            if average is not None:
                found[name] = average
        return found

    async def _values(self, query: str, now_seconds: float) -> dict[str, float]:
        """Return the values of an instant query; those that are no measurement are left out."""
        if not query:
            return {}
        found: dict[str, float] = {}
        for name, one in (await self._ask("query", query=query, time=f"{now_seconds:.3f}")).items():
            value = (
                None if one.value is None else decayed_average([LoadSample(0, _number(one.value[1]))], 0, Decay(1, 1))
            )
            if value is not None:
                found[name] = value
        return found

    async def _ask(self, path: str, **parameters: str) -> dict[str, _Series]:
        """Return the series of an answer by node. LoadSourceError: there is none."""
        session = self._session = self._session or self._open()
        url = f"{self._source.url.rstrip('/')}/api/v1/{path}"
        try:
            async with session.post(url, data=parameters, headers=self._headers()) as response:
                body = await response.content.read(_BODY_BYTES_MAX)
                status = response.status
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise LoadSourceError(f"{self.name}: {url}: {str(error) or type(error).__name__}") from error
        is_large = len(body) > _IN_THREAD_BYTES
        answer = await asyncio.to_thread(self._read, body, status) if is_large else self._read(body, status)
        if answer.status != "success":
            raise LoadSourceError(f"{self.name}: {url}: {answer.error[:_ERROR_SHOWN] or f'HTTP {status}'}")
        return {name: one for one in answer.data.result if (name := self._node_of(one.metric))}

    def _read(self, body: bytes, status: int) -> _Answer:
        try:
            return msgspec.json.decode(body, type=_Answer)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            shown = f"HTTP {status}, and not an answer of Prometheus: {error}"
            raise LoadSourceError(f"{self.name}: {self._source.url}: {shown}") from error

    def _node_of(self, metric: Mapping[str, str]) -> str:
        """Return the name of a series' node: its label, else its instance without the port."""
        name = metric.get(self._source.node_label)
        if name:
            return name
        host = metric.get(INSTANCE, "")
        return host.rpartition(":")[0].strip("[]") if ":" in host else host

    def _headers(self) -> dict[str, str]:
        if self._source.token_file is None:
            return {}
        try:
            return {"Authorization": f"Bearer {Path(self._source.token_file).read_text().strip()}"}
        except OSError as error:
            raise LoadSourceError(f"{self.name}: tokenFile: {self._source.token_file}: {error.strerror}") from error

    def _open(self) -> aiohttp.ClientSession:
        context: Any = True
        if self._source.ca_file is not None:
            try:
                context = ssl.create_default_context(cafile=self._source.ca_file)
            except (OSError, ssl.SSLError) as error:
                raise LoadSourceError(f"{self.name}: caFile: {self._source.ca_file}: {error}") from error
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT_SECONDS)
        return aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context), timeout=timeout)


def _number(text: str) -> float:
    """Return a sample value; one that is not a number is NaN, which no average takes in."""
    try:
        return float(text)
    except ValueError:
        return float("nan")
