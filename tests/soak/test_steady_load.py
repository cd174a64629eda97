"""Two servers on one Redis under a steady load: what they hold does not grow with the Pods that they have judged."""

import json
import os
from pathlib import Path

import pytest

from tests.harness.server_process import TREE, Files, run_server
from tests.redis_servers import RedisServer, usual_names
from tests.soak.slope import fit_slope
from tests.soak.steady_load import IN_FLIGHT_MAX, Sample, SteadyLoad

pytest_plugins = ("tests.redis_servers.fixtures",)

SECONDS = float(os.environ.get("PODGATE_TEST_SOAK", "0"))
"""`make soak` runs for this time, and measures."""
_PARTS = 200 if SECONDS else 4
_PER_SECOND = 50.0 if SECONDS else 30.0
_SHORT_SECONDS = 12.0
_WARM = 0.2
"""The part of a run in which connections open and caches fill."""
_DESCRIPTORS_MAX = 12 + IN_FLIGHT_MAX
"""By which they may differ: calls in flight, and connections that are opened anew."""
_THREADS_MAX = min(32, (os.cpu_count() or 1) + 4)
"""Those of asyncio's pool, which begin when they are needed."""
NAMES = tuple(f"soak-{number}" for number in range(5))
POLICY = "apiVersion: podgate.io/v1alpha1\nkind: Policy\nservices:\n" + "".join(
    f"- name: {name}\n"
    f"  failureMode: Closed\n"
    f"  match: {{namespaces: [{name}]}}\n"
    f"  placement: {{nodeSelector: {{disk: ssd}}}}\n"
    f"  quota: {{windows: [{{window: 1m, hard: {{pods: 100000}}}}, {{window: 24h, hard: {{pods: 100000000}}}}]}}\n"
    f"  breaker: {{quotaExceeded: {{count: 9, within: 1m}}}}\n"
    for name in NAMES
)


@pytest.mark.parametrize("redis_program", usual_names(), indirect=True)
async def test_servers_hold_no_more_after_many_pods(tmp_path: Path, own_redis_server: RedisServer) -> None:
    shared = ("--store", own_redis_server.url, "--store-deadline", "30s", "--max-connection-age", "1h")
    files = Files.create(tmp_path, POLICY)
    async with run_server(files, *shared) as first, run_server(files, *shared) as second:
        load = SteadyLoad((first, second), own_redis_server, NAMES)
        samples = []
        for _ in range(_PARTS):
            await load.send((SECONDS or _SHORT_SECONDS) / _PARTS, _PER_SECOND)
            samples.append(load.sample())
        judge(load, samples)
        if SECONDS:
            report(load, samples)


def judge(load: SteadyLoad, samples: list[Sample]) -> None:
    """Compare counts, which a busy machine does not change."""
    first, last = samples[int(len(samples) * _WARM)], samples[-1]
    assert load.refused == {}
    assert load.admitted > (SECONDS or 100)
    for before, after in zip(first.descriptors, last.descriptors, strict=True):
        assert after - before <= _DESCRIPTORS_MAX, (first, last)
    for before, after in zip(first.threads, last.threads, strict=True):
        assert after - before <= _THREADS_MAX, (first, last)
    pods = last.keys["pod"]
    assert pods <= load.admitted, "one for each Pod of the last hour"
    others = {kind: found for kind, found in last.keys.items() if kind != "pod"}
    assert others == {kind: found for kind, found in first.keys.items() if kind != "pod"}
    assert sum(others.values()) <= 10 * len(NAMES), others
    assert last.lasting == first.lasting, "whatever is of a Pod expires"


def report(load: SteadyLoad, samples: list[Sample]) -> None:
    """Print slopes and latencies, write all of it, and judge the slopes of memory."""
    warm = samples[int(len(samples) * _WARM) :]
    hours = [sample.seconds / 3600 for sample in warm]
    slopes = [
        fit_slope(hours, [sample.resident_bytes[number] / 2**20 for sample in warm])
        for number in range(len(load.servers))
    ]
    lines = [f"{load.admitted} Pods in {samples[-1].seconds:.0f} s"]
    lines += [f"RSS of server {number}, MiB an hour: {slope:.2f}" for number, slope in enumerate(slopes)]
    lines += [f"descriptors {samples[0].descriptors} -> {samples[-1].descriptors}; keys {dict(samples[-1].keys)}"]
    for number, decile in enumerate(load.list_deciles()):
        cut = ", ".join(f"p{part} {decile[len(decile) * part // 100] * 1e3:.1f}" for part in (50, 90, 99))
        lines.append(f"  latency of both calls in tenth {number + 1}, ms: {cut}")
    print("\n".join(lines))  # noqa: T201  what a person has asked for
    rows = [(sample.seconds, sample.resident_bytes, sample.descriptors, sample.redis_bytes) for sample in samples]
    path = TREE / ".test-results" / "soak.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"samples": rows, "lines": lines}, indent=1) + "\n")
    grown = max(slope.per_unit - 3 * slope.error for slope in slopes)
    assert grown * SECONDS / 3600 < 5, f"more than 5 MiB in this run: {lines}"
