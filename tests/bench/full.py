"""Comparisons of servers in `make bench`: each as a table and as JSON."""

import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import uvloop

from tests.bench.comparison import Bench, Row
from tests.bench.cpu import GENERATOR_CORE, pin_to
from tests.bench.lineup import COMPARISONS, Stage
from tests.bench.policies import POLICY
from tests.bench.programs import go_programs
from tests.bench.report import describe_ceiling, generator_figures, list_objects, render_table
from tests.bench.results import record
from tests.bench.telemetry import rates, trace_receiver, unlike
from tests.harness.revisions import check_out
from tests.harness.server_process import Files

SECONDS, WARM_UP_SECONDS, SECONDS_AT_A_RATE = 1.0, 0.4, 4.0


async def comparison(
    start: Callable[[Stage], Awaitable[list[Row]]],
    bench: Bench,
    before: Path | None = None,
    interpreters: Sequence[str] = (),
    *,
    with_kopf: bool = True,
) -> tuple[list[str], dict[str, object], list[Row]]:
    """Return the lines of the output, the figures, and the rows."""
    async with trace_receiver() as traces, AsyncExitStack() as stack:
        stage = Stage(stack, bench.files, traces, before, with_kopf, interpreters)
        rows = await start(stage)
        await bench.measure(rows)
        telemetry = [await rates(traces, number, target) for number, target in enumerate(stage.own)]
    lines = [
        *render_table(rows),
        *describe_ceiling(rows),
        "traces and log lines (the other servers write none)",
        *map(str, telemetry),
        *unlike(telemetry),
    ]
    return lines, {"rows": list_objects(rows), "generator": generator_figures(rows), "telemetry": telemetry}, rows


def measure(name: str, rounds: int, revision: str | None, interpreters: Sequence[str] = ()) -> list[str]:
    """Return the lines of the output of a comparison; its figures are recorded."""
    before = check_out(revision) if revision else None
    with (
        tempfile.TemporaryDirectory(prefix="podgate-bench-") as folder,
        pin_to(GENERATOR_CORE),
    ):
        files = Files.create(Path(folder), POLICY)
        bench = Bench(go_programs().loadgen, files, rounds, SECONDS, WARM_UP_SECONDS, SECONDS_AT_A_RATE)
        lines, figures, _ = uvloop.run(comparison(COMPARISONS[name], bench, before, interpreters))
    record(name, figures)
    return [f"comparison of servers: {name}, {rounds} interleaved rounds of {SECONDS} s", *lines]
