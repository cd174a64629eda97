"""Lineups: the servers of a comparison and the scenarios of each."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from tests.bench import servers
from tests.bench.comparison import Row
from tests.bench.programs import go_programs, kopf_python
from tests.bench.scenario import BOTH, CASES, MUTATE, UNMATCHED_POD, VALIDATE, Case, Scenario
from tests.bench.servers import Target, Variant
from tests.bench.telemetry import TraceReceiver
from tests.harness.server_process import Files
from tests.redis_servers import RedisServer

OTHER_SIZES = (2_000, 65_000)
RATES = (20, 100, 500)


@dataclass(frozen=True)
class Lineup:
    """The running servers; `own` are those of Podgate."""

    own: list[Target]
    go: Target
    aiohttp: Target
    go_full: Target | None = None
    go_empty: Target | None = None
    aiohttp_server: Target | None = None
    controller_runtime: Target | None = None
    kopf: Target | None = None


@asynccontextmanager
async def quick_lineup(
    files: Files, traces: TraceReceiver, variant: Variant, *, with_kopf: bool = True
) -> AsyncIterator[Lineup]:
    """Run Podgate, the plain Go webhook, aiohttp and kopf."""
    programs = go_programs()
    kopf = kopf_python() if with_kopf else None
    async with AsyncExitStack() as stack:
        own = await stack.enter_async_context(servers.podgate(variant, files, traces.endpoint("0")))
        [go] = await stack.enter_async_context(servers.go_webhooks(programs, files, None))
        aiohttp = await stack.enter_async_context(servers.aiohttp_server(files, low_level=False))
        kopf_target = await stack.enter_async_context(servers.kopf(kopf, files)) if kopf else None
        yield Lineup([own], go, aiohttp, kopf=kopf_target)


@asynccontextmanager
async def full_lineup(
    files: Files, traces: TraceReceiver, variants: list[Variant], redis: RedisServer, *, with_kopf: bool = True
) -> AsyncIterator[Lineup]:
    """Run all servers; the Go webhook with a quota uses `redis`."""
    programs = go_programs()
    kopf = kopf_python() if with_kopf else None
    async with AsyncExitStack() as stack:
        own = [
            await stack.enter_async_context(servers.podgate(variant, files, traces.endpoint(str(number))))
            for number, variant in enumerate(variants)
        ]
        go, go_full = await stack.enter_async_context(servers.go_webhooks(programs, files, redis))
        yield Lineup(
            own,
            go,
            await stack.enter_async_context(servers.aiohttp_server(files, low_level=False)),
            go_full,
            await stack.enter_async_context(servers.empty_go(programs, files)),
            await stack.enter_async_context(servers.aiohttp_server(files, low_level=True)),
            await stack.enter_async_context(servers.controller_runtime(programs, files)),
            await stack.enter_async_context(servers.kopf(kopf, files)) if kopf else None,
        )


def quick_rows(lineup: Lineup) -> list[Row]:
    """Return the rows of `make bench-quick`."""
    with_go = [*lineup.own, lineup.go]
    rows = [Row(target, Scenario(MUTATE)) for target in (*with_go, lineup.aiohttp, lineup.kopf) if target]
    return rows + [Row(target, Scenario(case)) for case in (VALIDATE, BOTH, UNMATCHED_POD) for target in with_go]


def full_rows(lineup: Lineup) -> list[Row]:
    """Return the rows of `make bench`: all cases with 6 KB Pods, and the two calls in all other scenarios."""
    rows = [Row(target, Scenario(case)) for case in CASES for target in _in_case(lineup, case)]
    with_go = [*lineup.own, lineup.go]
    for case in (MUTATE, VALIDATE):
        more = [Scenario(case, pod_bytes=size) for size in OTHER_SIZES]
        more += [Scenario(case, own_images=True)]
        more += [Scenario(case, rate=rate) for rate in RATES]
        rows += [Row(target, scenario) for scenario in more for target in with_go]
    opened = Scenario(MUTATE, new_connections=True)
    return rows + [Row(target, opened) for target in (*with_go, lineup.aiohttp)]


def _in_case(lineup: Lineup, case: Case) -> Iterator[Target]:
    yield from lineup.own
    if case in (MUTATE, VALIDATE, BOTH, UNMATCHED_POD):
        yield lineup.go
    if case in (MUTATE, VALIDATE, BOTH):
        yield from (one for one in (lineup.go_full, lineup.controller_runtime, lineup.kopf) if one)
    if case is MUTATE:
        yield from (one for one in (lineup.aiohttp, lineup.aiohttp_server, lineup.go_empty) if one)
