"""CPU time of a policy that is put into force: a new one, and one that differs in a single service from the one before.

The services share their placement by `defaults`, as those of the largest policies have to. The check runs in a process
of its own; all else in the server's, where the longest turn of its event loop matters.
"""

import resource
import time
from dataclasses import dataclass, field
from typing import Any

import uvloop

from tests.bench.loop_stalls import Server, watch_turns
from tests.bench.policies import share_defaults
from tests.bench.spread import Spread

SIZES = (1_000, 5_000)
ROUNDS = 5


@dataclass
class Change:
    """The measured checks and swaps of one kind of change."""

    name: str
    check_ms: list[float] = field(default_factory=list)
    server_ms: list[float] = field(default_factory=list)
    longest_turn_ms: list[float] = field(default_factory=list)

    def figures(self) -> dict[str, Any]:
        measured = {name: Spread.from_values(values) for name, values in vars(self).items() if isinstance(values, list)}
        return {"name": self.name, **measured}

    def __str__(self) -> str:
        check, server, turn = list(self.figures().values())[1:]
        return f"  {self.name:36} check {check:.0f}, server {server:.0f}, longest turn {turn:.1f}"

    async def measure_cpu(self, server: Server, raw: bytes) -> None:
        children, own = _read_children_seconds(), time.process_time()
        await _offer(server, raw)
        self.check_ms.append((_read_children_seconds() - children) * 1e3)
        self.server_ms.append((time.process_time() - own) * 1e3)

    async def measure_turns(self, server: Server, raw: bytes) -> None:
        """Measure the longest turn, in another run: the watch takes all of the time that is left."""
        async with watch_turns() as turns:
            await _offer(server, raw)
        self.longest_turn_ms.append(turns.cpu_ms)


async def _offer(server: Server, raw: bytes) -> None:
    if not await server.keeper.on_document(raw, "policy.yaml"):
        raise SystemExit(f"error: {server.keeper.list_errors()}")


def _read_children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


async def _measure_size(size: int, rounds: int) -> list[Change]:
    whole, one = Change(f"{size:,} services"), Change(f"a change of one of {size:,}")
    server = Server()
    for number in range(rounds):
        for tolerated, measuring in ((f"a{number}", Change.measure_cpu), (f"b{number}", Change.measure_turns)):
            await measuring(whole, server, share_defaults(size, tolerated))
            await measuring(one, server, share_defaults(size, tolerated, changed=size // 2))
    return [whole, one]


def measure(rounds: int = ROUNDS) -> tuple[list[str], list[dict[str, Any]]]:
    """Return the lines of the output, and the figures."""
    found = [change for size in SIZES for change in uvloop.run(_measure_size(size, rounds))]
    title = f"a policy checked and put into force, ms of CPU, {rounds} rounds"
    return [title, *map(str, found)], [change.figures() for change in found]
