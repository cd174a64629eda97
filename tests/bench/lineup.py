"""Lineups: the servers of each comparison, and their scenarios."""

import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.bench import servers
from tests.bench.comparison import Row
from tests.bench.cpu import OTHER_SERVER_CORE
from tests.bench.interpreters import describe_interpreter
from tests.bench.policies import SHARES, make_refusal_policy, services_of, windows_of
from tests.bench.programs import go_programs, kopf_python
from tests.bench.real_redis import real_redis
from tests.bench.scenario import BOTH, CASES, DIVIDE, MUTATE, OVER_QUOTA, UNMATCHED_POD, VALIDATE, Case, Scenario
from tests.bench.servers import OWN, OWN_MEMORY, OWN_TWO, Target, Variant
from tests.bench.telemetry import TraceReceiver
from tests.harness.server_process import Files

OTHER_SIZES = (2_000, 65_000)
RATES = (20, 100, 500)
CONNECTIONS = (1, 128)
SERVICES = (1, 10, 100, 1_000)
WINDOWS = (1, 4, 16)
CONTAINERS = (1, 10, 50, 200)
SHARES_CONNECTIONS = (16, 64)
REFUSALS = (10, 100, 1_000)
"""Counts of `quotaExceeded`. The refusals are of one controller fewer, so that the breaker stays closed."""


@dataclass
class Stage:
    """Starts the servers of a comparison, which end with `stack`. `own` are those of Podgate."""

    stack: AsyncExitStack
    files: Files
    traces: TraceReceiver
    before: Path | None = None
    with_kopf: bool = True
    interpreters: Sequence[str] = ()
    own: list[Target] = field(default_factory=list)

    async def podgate(
        self, *, redis: bool = True, policy: str = "", tree: Path | None = None, python: str = sys.executable
    ) -> Target:
        """Start Podgate on a Redis of its own or on memory; `tree` is the checkout of another commit."""
        other = "" if python == sys.executable else f", {describe_interpreter(python)}"
        name = f"{OWN if redis else OWN_MEMORY}{', before' if tree else other}"
        variant = Variant(name, self.stack.enter_context(real_redis()) if redis else None, policy, tree, python)
        endpoint = self.traces.endpoint(str(len(self.own)))
        self.own.append(await self.stack.enter_async_context(servers.podgate(variant, self.files, endpoint)))
        return self.own[-1]

    async def both_stores(self) -> list[Target]:
        """Start Podgate on Redis and on memory, under each interpreter, and that of another commit if there is one."""
        pythons = (sys.executable, *self.interpreters)
        today = [await self.podgate(redis=redis, python=python) for python in pythons for redis in (True, False)]
        return [*today, await self.podgate(tree=self.before)] if self.before else today

    async def go(self) -> Target:
        """Start the plain Go webhook."""
        [go] = await self.stack.enter_async_context(servers.go_webhooks(go_programs(), self.files, None))
        return go

    async def aiohttp(self, *, low_level: bool = False) -> Target:
        return await self.stack.enter_async_context(servers.aiohttp_server(self.files, low_level=low_level))

    async def kopf(self) -> list[Target]:
        """Start kopf, unless it is left out."""
        if not self.with_kopf:
            return []
        return [await self.stack.enter_async_context(servers.kopf(kopf_python(), self.files))]


async def quick(stage: Stage) -> list[Row]:
    """Return the rows of `make bench-quick`."""
    with_go = [await stage.podgate(), await stage.go()]
    others = [await stage.aiohttp(), *await stage.kopf()]
    rows = [Row(target, Scenario(MUTATE)) for target in (*with_go, *others)]
    return rows + list(_rows(with_go, map(Scenario, (VALIDATE, BOTH, UNMATCHED_POD))))


async def every_server(stage: Stage) -> list[Row]:
    """Return all cases with 6 KB Pods, and the two calls with other Pods."""
    own = await stage.both_stores()
    redis = stage.stack.enter_context(real_redis())
    programs = go_programs()
    go, go_full = await stage.stack.enter_async_context(servers.go_webhooks(programs, stage.files, redis))
    runtime = await stage.stack.enter_async_context(servers.controller_runtime(programs, stage.files))
    peers = [go_full, runtime, *await stage.kopf()]
    empty = await stage.stack.enter_async_context(servers.empty_go(programs, stage.files))
    constant = [await stage.aiohttp(), await stage.aiohttp(low_level=True), empty]

    def list_targets(case: Case) -> Iterator[Target]:
        yield from own
        yield from [go] if not case.refusal else []
        yield from peers if case in (MUTATE, VALIDATE, BOTH) else []
        yield from constant if case is MUTATE else []

    rows = [Row(target, Scenario(case)) for case in CASES for target in list_targets(case)]
    more = [Scenario(case, pod_bytes=size) for case in (MUTATE, VALIDATE) for size in OTHER_SIZES]
    more += [Scenario(case, own_images=True) for case in (MUTATE, VALIDATE)]
    return rows + list(_rows([*own, go], more))


async def low_rates(stage: Stage) -> list[Row]:
    """Return the two calls at low rates."""
    with_go = [*await stage.both_stores(), await stage.go()]
    usual = Scenario(MUTATE)
    return list(_rows(with_go, [usual, *(replace(call, rate=rate) for call in _calls() for rate in RATES)]))


async def connections(stage: Stage) -> list[Row]:
    """Return the two calls on few and many kept connections, and on a new one for each Pod."""
    with_go = [await stage.podgate(), await stage.go()]
    kept = [
        call if count == 0 else replace(call, connections=count) for call in _calls() for count in (0, *CONNECTIONS)
    ]
    rows = list(_rows(with_go, kept))
    return rows + list(_rows([*with_go, await stage.aiohttp()], [Scenario(MUTATE, new_connections=True)]))


async def two_processes(stage: Stage) -> list[Row]:
    """Return the two calls to one process, and to two that share a Redis."""
    one, go = await stage.podgate(), await stage.go()
    assert one.redis is not None
    variant = Variant(OWN_TWO, one.redis, core=OTHER_SERVER_CORE)
    started = servers.podgate(variant, stage.files, stage.traces.endpoint(str(len(stage.own))))
    other = await stage.stack.enter_async_context(started)
    stage.own.append(other)
    return list(_rows([one, replace(one, name=OWN_TWO, others=(other,)), go], _calls()))


async def services(stage: Stage) -> list[Row]:
    """Return the two calls by the number of services."""
    grown = [(count, await stage.podgate(policy=services_of(count))) for count in SERVICES]
    rows = [Row(target, replace(call, services=count)) for call in _calls() for count, target in grown]
    return [*rows, Row(await stage.go(), Scenario(MUTATE))]


async def windows(stage: Stage) -> list[Row]:
    """Return the two calls by the number of windows of the quota."""
    grown = [(count, await stage.podgate(policy=windows_of(count))) for count in WINDOWS]
    rows = [Row(target, replace(call, windows=count)) for call in _calls() for count, target in grown]
    return [*rows, Row(await stage.go(), Scenario(MUTATE))]


async def containers(stage: Stage) -> list[Row]:
    """Return the two calls by the number of containers."""
    with_go = [await stage.podgate(), await stage.go()]
    usual = Scenario(MUTATE)
    return list(
        _rows(with_go, [usual, *(replace(call, containers=count) for call in _calls() for count in CONTAINERS)])
    )


async def parents(stage: Stage) -> list[Row]:
    """Return the two calls without a traceparent, and with a sampled and an unsampled one in all of them."""
    own = [await stage.podgate(), await stage.podgate(redis=False)]
    return [
        *_rows(own, (replace(call, parent_flags=flags) for call in _calls() for flags in ("", "00", "01"))),
        Row(await stage.go(), Scenario(MUTATE)),
    ]


async def refusals(stage: Stage) -> list[Row]:
    """Return validating calls that a quota refuses, by the number of refusals that the breaker remembers."""
    rows = [
        Row(
            await stage.podgate(redis=redis, policy=make_refusal_policy(count)),
            Scenario(OVER_QUOTA, controllers=count - 1),
        )
        for count in REFUSALS
        for redis in (True, False)
    ]
    return [*rows, Row(await stage.go(), Scenario(MUTATE))]


async def with_shares(stage: Stage) -> list[Row]:
    """Return the mutating call of a service with shares beside that of the same service without, in one server."""
    own = [await stage.podgate(policy=SHARES), await stage.podgate(redis=False, policy=SHARES)]
    if stage.before:
        own.append(await stage.podgate(policy=SHARES, tree=stage.before))
        own.append(await stage.podgate(redis=False, policy=SHARES, tree=stage.before))
    calls = [Scenario(case, connections=count) for count in SHARES_CONNECTIONS for case in (DIVIDE, MUTATE)]
    return list(_rows(own, calls))


COMPARISONS: dict[str, Callable[[Stage], Awaitable[list[Row]]]] = {
    "servers": every_server,
    "rates": low_rates,
    "services": services,
    "windows": windows,
    "containers": containers,
    "connections": connections,
    "processes": two_processes,
    "parents": parents,
    "refusals": refusals,
}


def _calls() -> tuple[Scenario, Scenario]:
    return Scenario(MUTATE), Scenario(VALIDATE)


def _rows(targets: list[Target], scenarios: Iterable[Scenario]) -> Iterator[Row]:
    for scenario in scenarios:
        yield from (Row(target, scenario) for target in targets)
