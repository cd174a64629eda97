"""Comparison of servers in `make bench`: all cases, sizes and rates, as a table and as a JSON file."""

import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
import uvloop

from tests.bench.comparison import Bench
from tests.bench.cpu import GENERATOR_CORE, running_on
from tests.bench.lineup import full_lineup, full_rows
from tests.bench.policies import POLICY
from tests.bench.programs import go_programs
from tests.bench.real_redis import real_redis
from tests.bench.report import as_json, ceiling, table
from tests.bench.servers import Variant
from tests.bench.telemetry import rates, trace_receiver, unlike
from tests.harness.server_process import TREE, Files
from tests.redis_servers import RedisServer

RESULT = TREE / ".test-results" / "bench.json"
SECONDS, WARM_UP_SECONDS, SECONDS_AT_A_RATE = 1.0, 0.4, 4.0


@contextmanager
def checked_out(revision: str | None) -> Iterator[Path | None]:
    """Return a folder with the server of another commit."""
    if revision is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="podgate-bench-") as folder:
        archive = subprocess.run(["git", "archive", revision, "webhook", "certs"], check=True, stdout=subprocess.PIPE)
        subprocess.run(["tar", "-x", "-C", folder], check=True, input=archive.stdout)
        yield Path(folder)


def variants(redis: RedisServer, before: Path | None, redis_before: RedisServer) -> list[Variant]:
    """Return the configurations of Podgate; each with a Redis has a separate one."""
    today = [Variant("podgate, redis", redis), Variant("podgate, memory")]
    return today + ([Variant("podgate before, redis", redis_before, before)] if before else [])


async def comparison(
    chosen: Sequence[Variant], redis: RedisServer, bench: Bench, *, with_kopf: bool = True
) -> tuple[list[str], dict[str, object]]:
    """Return the lines of the output, and all measurements."""
    async with trace_receiver() as traces:
        lineup = full_lineup(bench.files, traces, list(chosen), redis, with_kopf=with_kopf)
        async with lineup as running:
            rows = full_rows(running)
            await bench.measure(rows)
            telemetry = [await rates(traces, number, target) for number, target in enumerate(running.own)]
    lines = [
        *table(rows),
        *ceiling(rows),
        "traces and log lines (the other servers write none)",
        *map(str, telemetry),
        *unlike(telemetry),
    ]
    return lines, {"rows": as_json(rows), "telemetry": telemetry}


def measured(rounds: int, revision: str | None) -> list[str]:
    """Return the lines of the output; RESULT gets all measurements."""
    with (
        real_redis() as redis,
        real_redis() as redis_before,
        checked_out(revision) as before,
        tempfile.TemporaryDirectory(prefix="podgate-bench-") as folder,
        running_on(GENERATOR_CORE),
    ):
        files = Files.create(Path(folder), POLICY)
        bench = Bench(go_programs().loadgen, files, rounds, SECONDS, WARM_UP_SECONDS, SECONDS_AT_A_RATE)
        lines, figures = uvloop.run(comparison(variants(redis, before, redis_before), redis, bench))
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_bytes(msgspec.json.format(msgspec.json.encode(figures)))
    return [
        f"comparison of servers, {rounds} interleaved rounds of {SECONDS} s",
        *lines,
        f"all measurements: {RESULT.relative_to(TREE)}",
    ]
