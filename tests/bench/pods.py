"""Cost of the controller in a large cluster: start, memory per Pod, and steady state.

`podgate controller` runs as a process of its own, beside one without Pods, on one Redis; the API server is simulated.
"""

import asyncio
import json
import re
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from tests.bench.cpu import cpu_seconds
from tests.bench.traffic import Workload, typical_pod
from tests.harness.fake_apiserver import PODS, FakeApiServer, fake_apiserver
from tests.redis_servers import RedisServer
from webhook.adapters.kubernetes.api.objects import WatchEvent
from webhook.core.kubernetes.pod import Pod

WATCHED = 20_000
SERVICES = 20
ROUNDS = 5
QUIET_SECONDS = 4.0
CHANGES_PER_SECOND = 50
PAGE = 500
_LONG_AGO = "2026-01-01T00:00:00Z"
_START_SECONDS = 300
_REPEATS = 500
_WIDTH = 46


@dataclass(frozen=True)
class Started:
    """A controller that has told the store of all Pods, and what that took."""

    pid: int
    seconds: float
    cpu_seconds: float
    resident_bytes: int
    peak_bytes: int


class ManyPods:
    """Answers of an API server with many Pods, made beforehand or by a process that is not measured."""

    def __init__(self, api: FakeApiServer, pods: int) -> None:
        self._api, self._pods = api, pods
        self._first = api.revision
        api.revision += pods
        api.always["list"] = self._list
        self._pages = [self._page(begin) for begin in range(0, max(pods, 1), PAGE)]

    @property
    def bytes_of_one(self) -> int:
        """The length of a Pod as it travels."""
        return len(encode(make_stored_pod(0, self._api.revision)))

    def change(self, number: int) -> None:
        """Write a Pod's status."""
        self._api.revision += 1
        line = event(number % self._pods, self._api.revision)
        for watch in self._api.watching:
            if watch.request.path == PODS:
                watch.items.put_nowait(line)

    def _page(self, begin: int) -> bytes:
        end = min(begin + PAGE, self._pods)
        metadata = {"resourceVersion": str(self._api.revision)} | ({"continue": str(end)} if end < self._pods else {})
        items = [make_stored_pod(number, self._first + number) for number in range(begin, end)]
        return encode({"kind": "PodList", "metadata": metadata, "items": items})

    async def _list(self, request: web.Request) -> web.StreamResponse:
        if request.path != PODS:
            return await self._api.list(request)
        page = self._pages[int(request.query.get("continue", 0)) // PAGE]
        return web.Response(body=page, content_type="application/json")


def make_stored_pod(number: int, version: int) -> dict[str, Any]:
    """Return a Pod that runs, as an API server stores it, of the size that Pods have."""
    pod: dict[str, Any] = typical_pod("0" * 16, Workload())
    service = number % SERVICES
    pod["metadata"] |= {
        "name": f"web-6b7f9c5d8-{number:05}",
        "namespace": f"n{service}",
        "uid": str(uuid.UUID(int=number)),
        "labels": {"app": "web", "podgate.io/service": f"s{service}"},
        "creationTimestamp": _LONG_AGO,
        "resourceVersion": str(version),
    }
    return {**pod, "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}


def encode(document: object) -> bytes:
    """Return JSON, compact, as the API server writes it."""
    return json.dumps(document, separators=(",", ":")).encode()


def event(number: int, version: int) -> bytes:
    """Return the line of a watch that tells of a Pod's new status."""
    return encode({"type": "MODIFIED", "object": make_stored_pod(number, version)}) + b"\n"


def policy() -> str:
    """Return one that limits the live Pods of each service."""
    quota = "{windows: [{window: 1h, hard: {pods: 100000}}], standing: {hard: {pods: 100000, cpu: 100000}}}"
    services = "".join(f"- {{name: s{n}, match: {{namespaces: [n{n}]}}, quota: {quota}}}\n" for n in range(SERVICES))
    return f"apiVersion: podgate.io/v1alpha1\nkind: Policy\nservices:\n{services}"


@asynccontextmanager
async def run_controller(redis: RedisServer, pods: int) -> AsyncIterator[tuple[ManyPods, Started]]:
    """Run a controller until the block ends; all Pods have been told when it begins."""
    cluster = f"bench-{pods}"
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="podgate-bench-")))
        many = ManyPods(await stack.enter_async_context(fake_apiserver(folder)), pods)
        (folder / "policy.yaml").write_text(policy())
        log = stack.enter_context((folder / "log").open("wb"))
        told = ("--policy", folder / "policy.yaml", "--kubeconfig", folder / "kubeconfig", "--cluster", cluster)
        command = (sys.executable, "-m", "webhook", "controller", *told, "--store", redis.url)
        began = time.monotonic()
        process = await asyncio.create_subprocess_exec(
            *command, "--plain-listen", "127.0.0.1:0", stdout=log, stderr=log
        )
        try:
            async with asyncio.timeout(_START_SECONDS):
                while not has_told_all(redis, cluster):
                    if process.returncode is not None:
                        raise SystemExit(f"error: the controller ended\n{(folder / 'log').read_text()}")
                    await asyncio.sleep(0.1)
            seconds = time.monotonic() - began
            yield many, Started(process.pid, seconds, cpu_seconds(process.pid), *memory_bytes(process.pid))
        finally:
            process.terminate()
            await process.wait()


def has_told_all(redis: RedisServer, cluster: str) -> bool:
    """Return whether the live Pods of all services are known to be all there are."""
    with redis.client() as client:
        names = [f"s{number}" for number in range(SERVICES)]
        keys = [f"podgate:{{{name}}}:v1:{cluster}:live:{name}" for name in names]
        return all(client.hexists(key, f"c:{cluster}") for key in keys)


def memory_bytes(pid: int) -> tuple[int, int]:
    """Return the resident memory of a process, and the most that it ever had."""
    text = Path(f"/proc/{pid}/status").read_text()
    resident, peak = (re.findall(rf"^{name}:\s+(\d+) kB$", text, re.MULTILINE) for name in ("VmRSS", "VmHWM"))
    return int(resident[0]) * 1024, int(peak[0]) * 1024


async def measure_watch(redis: RedisServer, pods: int, rounds: int, quiet_seconds: float) -> list[str]:
    """Return what there is to print."""
    async with run_controller(redis, 0) as (_, empty):
        pass
    async with run_controller(redis, pods) as (many, full):
        idle, busy = await take_turns(many, full.pid, rounds, quiet_seconds)
        resident_bytes, _ = memory_bytes(full.pid)
    line = event(0, pods)
    typed_us, json_us = measure_decoding_us(line)
    start_us = (full.cpu_seconds - empty.cpu_seconds) / pods * 1e6
    changes_us = [(share - quiet) / CHANGES_PER_SECOND * 1e6 for share, quiet in zip(busy, idle, strict=True)]
    return [
        f"the controller among {pods} Pods of {many.bytes_of_one} bytes, of {SERVICES} services; {rounds} rounds",
        _line("seconds until all were told to the store", f"{full.seconds:.1f}", f"without Pods {empty.seconds:.1f}"),
        _line("  CPU for each Pod, us", f"{start_us:.0f}", f"in typed decodes of it {start_us / typed_us:.1f}"),
        _line(
            "bytes of memory for each Pod",
            f"{(resident_bytes - empty.resident_bytes) / pods:.0f}",
            f"at most {(full.peak_bytes - empty.peak_bytes) / pods:.0f} while it began;"
            f" {resident_bytes >> 20} MiB in all, without Pods {empty.resident_bytes >> 20}",
        ),
        _line("CPU ms a second, where nothing changes", *_spread([share * 1e3 for share in idle], ".1f")),
        _line(f"  where {CHANGES_PER_SECOND} Pods a second do", *_spread([share * 1e3 for share in busy], ".1f")),
        _line("CPU for one change, us", *_spread(changes_us, ".0f")),
        _line("  in typed decodes of its event", *_spread([change_us / typed_us for change_us in changes_us], ".2f")),
        _line("  in json.loads of its event", *_spread([change_us / json_us for change_us in changes_us], ".2f")),
    ]


async def take_turns(many: ManyPods, pid: int, rounds: int, seconds: float) -> tuple[list[float], list[float]]:
    """Return the CPU seconds of a second, without changes and with them, by round."""
    idle, busy = [], []
    for number in range(rounds):
        idle.append(await _cpu_share(pid, seconds))
        changing = asyncio.create_task(_change(many, number, int(CHANGES_PER_SECOND * seconds)))
        busy.append(await _cpu_share(pid, seconds))
        await changing
    return idle, busy


async def _cpu_share(pid: int, seconds: float) -> float:
    began, before = time.monotonic(), cpu_seconds(pid)
    await asyncio.sleep(seconds)
    return (cpu_seconds(pid) - before) / (time.monotonic() - began)


async def _change(many: ManyPods, turn: int, count: int) -> None:
    for number in range(count):
        many.change(turn * count + number)
        await asyncio.sleep(1 / CHANGES_PER_SECOND)


def measure_decoding_us(line: bytes) -> tuple[float, float]:
    """Return the times to decode an event and its Pod: only the fields that are read, and all fields."""
    outer, inner = msgspec.json.Decoder(WatchEvent), msgspec.json.Decoder(Pod)
    return _took_us(lambda: inner.decode(outer.decode(line).object)), _took_us(lambda: json.loads(line))


def _took_us(work: Callable[[], object]) -> float:
    began = time.process_time_ns()
    for _ in range(_REPEATS):
        work()
    return (time.process_time_ns() - began) / _REPEATS / 1e3


def _spread(values: Sequence[float], form: str) -> tuple[str, str]:
    low, high = format(min(values), form), format(max(values), form)
    return format(statistics.median(values), form), f"from {low} to {high}"


def _line(name: str, figure: str, beside: str) -> str:
    return f"{name:{_WIDTH}} {figure:>7}  ({beside})"
