"""`make bench-quick`: the most important ratios within a minute; the last line is JSON."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec
import uvloop

from tests.bench import lineup
from tests.bench.comparison import Bench, Row
from tests.bench.cpu import GENERATOR_CORE, pin_to
from tests.bench.full import comparison
from tests.bench.policies import POLICY
from tests.bench.programs import go_programs
from tests.bench.report import compare, times_go
from tests.bench.scenario import BOTH, MUTATE, UNMATCHED_POD, VALIDATE
from tests.bench.servers import AIOHTTP, KOPF, OWN
from tests.bench.spread import Spread
from tests.harness.server_process import Files


async def quick(rounds: int, seconds: float, *, with_kopf: bool = True) -> list[str]:
    """Return the lines of the output."""
    with tempfile.TemporaryDirectory(prefix="podgate-bench-") as folder:
        files = Files.create(Path(folder), POLICY)
        bench = Bench(go_programs().loadgen, files, rounds, seconds, seconds / 4, seconds)
        lines, _, rows = await comparison(lineup.quick, bench, with_kopf=with_kopf)
    return [*lines, summary(rows)]


def summary(rows: Sequence[Row]) -> str:
    """Return ratios of Podgate's CPU time to that of others, as JSON; `reviews_per_cpu_second` is of `mutate`.

    `both`, one CREATE, is compared with one mutating call of Go's webhook.
    """
    own = {row.scenario.case: row for row in rows if row.target.name == OWN}

    def median(spread: Spread | None) -> float | None:
        return round(spread.median, 3) if spread else None

    cases = (MUTATE, VALIDATE, BOTH, UNMATCHED_POD)
    document = {
        "reviews_per_cpu_second": round(1e6 / Spread.from_values(own[MUTATE].cpu_us).median),
        "ratio": {
            "go": {case.name: median(times_go(rows, own[case])) for case in cases},
            "aiohttp": median(compare(rows, own[MUTATE], AIOHTTP)),
            "kopf": median(compare(rows, own[MUTATE], KOPF)),
        },
    }
    return msgspec.json.encode(document).decode()


def measure(rounds: int, seconds: float) -> list[str]:
    """Return the lines of the output."""
    with pin_to(GENERATOR_CORE):
        return uvloop.run(quick(rounds, seconds))
