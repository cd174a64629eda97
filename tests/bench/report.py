"""Report of a comparison: as a table and as JSON."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.bench.comparison import Row
from tests.bench.scenario import BOTH, BREAKER_OPEN, MUTATE, OVER_QUOTA, VALIDATE, Case, Scenario
from tests.bench.servers import AIOHTTP, GO, GO_FULL, KOPF, REDIS, SERVER
from tests.bench.spread import Spread

GENERATOR = "generator"
OTHERS = (GO_FULL, AIOHTTP, KOPF)
"""Servers that are compared besides Go's webhook."""

_TITLE = """\
CPU: of the server, in microseconds for each Pod: median of the rounds, and extremes; and of Redis. Times: that CPU by
that of others in the same scenario (refusals: by an admitted validating call), with extremes for go. "both" is one
CREATE, by one mutating call of go; "go both" is by both calls of go, and "go mutate" by one mutating call with the same
Pod, or with the usual one if there is none.
Latency in microseconds; p50 also by that of go. Busy: share of its core that the server used, and of its own core the
generator."""
_COLUMNS = {
    "CPU": 20,
    "Redis": 8,
    "times go": 21,
    "go mutate": 11,
    "go both": 9,
    "go full": 9,
    "aiohttp": 9,
    "kopf": 8,
    "p50": 8,
    "p50 go": 8,
    "p90": 8,
    "p99": 8,
    "busy": 7,
    "generator": 11,
}
_NAME_WIDTH = 28


def compare(rows: Sequence[Row], row: Row, name: str, case: Case | None = None) -> Spread | None:
    """Return the ratio of CPU time to that of another server in the same scenario, or in another case of it."""
    other = counterpart(rows, row, name, case)
    return row.ratio(other) if other else None


def times_go(rows: Sequence[Row], row: Row) -> Spread | None:
    """Return the ratio to the same call of Go's webhook, and for both calls of a CREATE to one mutating call of it."""
    return compare(rows, row, GO, MUTATE if row.scenario.case is BOTH else None)


def times_unit(rows: Sequence[Row], row: Row) -> Spread | None:
    """Return the ratio to a mutating call of Go's webhook with a 6 KB Pod, the unit of all pictures."""
    unit = next((row for row in rows if row.target.name == GO and row.scenario == Scenario(MUTATE)), None)
    return row.ratio(unit) if unit else None


def times_both_of_go(rows: Sequence[Row], row: Row) -> Spread | None:
    """Return the ratio of both calls of one CREATE to both calls of Go's webhook."""
    return compare(rows, row, GO) if row.scenario.case is BOTH else None


def counterpart(rows: Sequence[Row], row: Row, name: str, case: Case | None = None) -> Row | None:
    """Return the row of another server for a comparison."""
    usual = VALIDATE if row.scenario.case in (OVER_QUOTA, BREAKER_OPEN) else row.scenario.case
    wanted = replace(row.scenario, case=case or usual)
    return next((row for row in rows if row.target.name == name and row.scenario == wanted), None)


def render_table(rows: Sequence[Row]) -> list[str]:
    """Return the lines of the table: one for each server in each scenario."""
    lines = [_TITLE, " " * _NAME_WIDTH + "".join(f"{name:>{width}}" for name, width in _COLUMNS.items())]
    last = None
    for row in rows:
        if row.scenario != last:
            lines.append(row.scenario.name)
            last = row.scenario
        cells = zip(_cells(rows, row), _COLUMNS.values(), strict=True)
        lines.append(f"  {row.target.name:{_NAME_WIDTH - 2}}" + "".join(f"{cell:>{width}}" for cell, width in cells))
    return lines


def _cells(rows: Sequence[Row], row: Row) -> list[str]:
    by_go = times_go(rows, row)
    medians = [compare(rows, row, GO, MUTATE) or times_unit(rows, row), times_both_of_go(rows, row)]
    medians += [compare(rows, row, name) for name in OTHERS]
    go = counterpart(rows, row, GO)
    return [
        f"{Spread.from_values(row.cpu_us):.0f}",
        f"{_median(row, REDIS):.0f}" if row.target.redis else "-",
        f"{by_go:.2f}" if by_go else "-",
        *(f"{ratio.median:.2f}" if ratio else "-" for ratio in medians),
        f"{Spread.from_values(row.p50_us).median:.0f}",
        f"{row.p50_ratio(go).median:.2f}" if go else "-",
        f"{Spread.from_values([measured.latency_us.p90 for measured in row.rounds]).median:.0f}",
        f"{Spread.from_values([measured.latency_us.p99 for measured in row.rounds]).median:.0f}",
        *(
            f"{Spread.from_values([measured.share(group) for measured in row.rounds]).median:.0%}"
            for group in (SERVER, GENERATOR)
        ),
    ]


def describe_ceiling(rows: Sequence[Row]) -> list[str]:
    """Return the limit of the generator, from the row with the highest throughput."""
    most = generator_figures(rows)
    sent = f"at most {most['pods_per_second']:.0f} Pods a second, to {most['server']}"
    cost = f"{most['cpu_us']:.0f} us of CPU for each, so that its core could do {1e6 / most['cpu_us']:.0f}"
    return [f"generator: {sent}; {cost}"]


def generator_figures(rows: Sequence[Row]) -> dict[str, Any]:
    """Return throughput and CPU time of the generator in the row with the highest throughput."""
    fastest = max(rows, key=_pods_per_second)
    own = Spread.from_values([measured.cpu_us(GENERATOR) for measured in fastest.rounds]).median
    return {"server": fastest.target.name, "pods_per_second": _pods_per_second(fastest), "cpu_us": own}


def list_objects(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return an object for each row."""
    return [
        {
            "server": row.target.name,
            "case": row.scenario.case.name,
            "pod_bytes": row.scenario.pod_bytes,
            "own_images": row.scenario.own_images,
            "new_connections": row.scenario.new_connections,
            "connections": row.scenario.connections,
            "containers": row.scenario.containers,
            "services": row.scenario.services,
            "windows": row.scenario.windows,
            "controllers": row.scenario.controllers,
            "rate": row.scenario.rate,
            "cpu_us": Spread.from_values(row.cpu_us),
            "redis_cpu_us": Spread.from_values([measured.cpu_us(REDIS) for measured in row.rounds]),
            "generator_cpu_us": Spread.from_values([measured.cpu_us(GENERATOR) for measured in row.rounds]),
            "generator_share": Spread.from_values([measured.share(GENERATOR) for measured in row.rounds]),
            "server_share": Spread.from_values([measured.share(SERVER) for measured in row.rounds]),
            "ratio": _ratios(rows, row),
            "times_unit": times_unit(rows, row),
            "ratio_to_one_go_mutate": compare(rows, row, GO, MUTATE),
            "ratio_to_both_of_go": times_both_of_go(rows, row),
            "p50_us": Spread.from_values(row.p50_us),
            "p90_us": Spread.from_values([measured.latency_us.p90 for measured in row.rounds]),
            "p50_ratio_to_go": row.p50_ratio(go) if (go := counterpart(rows, row, GO)) else None,
            "rounds": row.rounds,
        }
        for row in rows
    ]


def _ratios(rows: Sequence[Row], row: Row) -> dict[str, Spread]:
    ratios = {GO: times_go(rows, row)} | {name: compare(rows, row, name) for name in OTHERS}
    return {name: ratio for name, ratio in ratios.items() if ratio}


def _pods_per_second(row: Row) -> float:
    return Spread.from_values([measured.count / measured.seconds for measured in row.rounds]).median


def _median(row: Row, group: str) -> float:
    return Spread.from_values([measured.cpu_us(group) for measured in row.rounds]).median
