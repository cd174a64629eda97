"""Cost of one Pod's acquire in microseconds, compared with alternatives on the same Redis, in turns.

Three figures of each: the client's CPU (user and system time of this process, the callers' own included), the script's
(the time that Redis reports for EVALSHA, EVAL and FCALL) and all of Redis' (its process, network included).
"""

import asyncio
import math
import statistics
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import redis

from tests.bench.alternatives import CALLERS, CASES, FULL, Rival, rivals
from tests.bench.cpu import cpu_seconds
from tests.bench.spread import Spread
from tests.redis_servers import RedisServer

COLUMNS = ("client", "script", "redis")
AIM = "limits of podgate with 9 limits: client 10, script 20, of one caller 40"

PROMISES = (
    "never past a limit in any trailing window: podgate, and limits' moving window for single units; twice it: gcra; "
    "sometimes past it: two counters. limits is not all or nothing. podgate alone charges a uid once"
)

Figures = tuple[float, ...]
"""In the order of COLUMNS."""


@dataclass
class Turns:
    """One rival and what its rounds have cost, each in microseconds a Pod."""

    rival: Rival
    rounds: list[Figures] = field(default_factory=list)


async def acquires(server: RedisServer, rounds: int, pods: int) -> tuple[list[str], list[dict[str, Any]]]:
    """Return the lines of the output and the figures: `rounds` of `pods` each, for every case and rival."""
    figures: list[dict[str, Any]] = []
    lines = [
        f"acquires, us a Pod on {server.program.name}, {rounds} rounds of {pods}, {CALLERS} callers at once; {AIM}",
        PROMISES,
        f"{'(times podgate)':32}" + "".join(f"{column:>18}" for column in COLUMNS),
    ]
    for case in CASES:
        async with AsyncExitStack() as stack:
            measured = [Turns(rival) for rival in await stack.enter_async_context(rivals(server.url, case))]
            with server.client() as watcher:
                await _take_turns(measured, server, watcher, rounds, pods)
        lines += [case.name, *(_line(turns, measured[0]) for turns in measured)]
        figures += [_figures(server.program.name, case.name, turns) for turns in measured]
    return lines, figures


def _figures(redis_name: str, case: str, turns: Turns) -> dict[str, Any]:
    spreads = (
        Spread.from_values([round_costs[column] for round_costs in turns.rounds]) for column in range(len(COLUMNS))
    )
    return {
        "redis": redis_name,
        "case": case,
        "name": turns.rival.name,
        **{f"{column}_us": spread for column, spread in zip(COLUMNS, spreads, strict=True)},
    }


async def _take_turns(
    measured: Sequence[Turns], server: RedisServer, watcher: redis.Redis, rounds: int, pods: int
) -> None:
    """Measure; who goes first changes from round to round. Before it, limits that are to be full are filled."""
    for turns in measured:
        await _ask(turns.rival, FULL)
        await _ask(turns.rival, pods)
    for number in range(rounds):
        for turns in measured if number % 2 else reversed(measured):
            turns.rounds.append(await _round(turns.rival, server, watcher, pods))


async def _round(rival: Rival, server: RedisServer, watcher: redis.Redis, pods: int) -> Figures:
    script, server_cpu, own = _script_us(watcher), cpu_seconds(server.pid), time.process_time()
    admitted = await _ask(rival, pods)
    own = time.process_time() - own
    server_cpu = cpu_seconds(server.pid) - server_cpu
    script = _script_us(watcher) - script
    if admitted != (0 if rival.case.refused else pods):
        raise SystemExit(f"error: {rival.name}, {rival.case.name}: admitted {admitted} of {pods}")
    return (own * 1e6 / pods, script / pods, server_cpu * 1e6 / pods)


async def _ask(rival: Rival, pods: int) -> int:
    """Ask for this many Pods, all callers at once, one after another each; return how many were admitted."""
    admitted = 0
    asked = 0

    async def call() -> None:
        nonlocal admitted, asked
        while asked < pods:
            asked += rival.pods_a_call
            answers = await rival.ask()
            admitted += sum(answers)

    await asyncio.gather(*(call() for _ in range(rival.callers)))
    return admitted


def _script_us(watcher: redis.Redis) -> int:
    said = watcher.info("commandstats")
    return sum(said[name]["usec"] for name in ("cmdstat_evalsha", "cmdstat_eval", "cmdstat_fcall") if name in said)


def _line(turns: Turns, own: Turns) -> str:
    cells = []
    for column in range(len(COLUMNS)):
        median = statistics.median(figures[column] for figures in turns.rounds)
        # A clock may not have moved in a short round: the next round has it all.
        pairs = [(other[column], base[column]) for other, base in zip(turns.rounds, own.rounds, strict=True)]
        ratio = statistics.median([other / base for other, base in pairs if base > 0] or [math.nan])
        cells.append(f"{median:.1f} ({ratio:.2f})")
    return f"  {turns.rival.name:30}" + "".join(f"{cell:>18}" for cell in cells)
