"""Runs of simulations: a history for each seed, and of one that fails the shortest that is found."""

import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tests.simulation.world import ALL_FAULTS, Fault, Simulation, World

STEPS = 600
"""Steps of one history: long enough for the rarest fault, short enough to read."""
_ATTEMPTS_MAX = 30
"""Other seeds that are tried for a shorter history that fails."""


@dataclass(frozen=True)
class History:
    """One seed of one simulation, and how it ended: `error` is empty if all has held."""

    simulation: type[Simulation]
    seed: str
    faults: frozenset[Fault] = ALL_FAULTS
    steps: int = 0
    error: str = ""
    trace: tuple[str, ...] = ()

    def __str__(self) -> str:
        without = "".join(f" --without {fault}" for fault in sorted(ALL_FAULTS - self.faults))
        lines = [
            f"{self.simulation.name}, seed {self.seed}, step {self.steps}: {self.error}",
            f"again: python -m tests.simulation {self.simulation.name} {self.seed}{without}",
            *self.trace,
        ]
        return "\n".join(lines)


def run_history(
    simulation: type[Simulation], seed: str, faults: frozenset[Fault] = ALL_FAULTS, steps: int = STEPS
) -> History:
    """Run one history up to its end, or to the first step after which something does not hold."""
    world = World(f"{simulation.name}:{seed}", faults, simulation.unit_us)
    history = History(simulation, seed, faults)
    try:
        found = simulation(world)
        for _ in range(steps):
            if not world.step():
                break
            found.check()
        found.settle()
    except Exception as error:  # noqa: BLE001  whatever a part does is a finding
        trace = tuple(f"  {at_us}: {name}{arguments!r:.200}" for at_us, name, arguments in world.trace)
        where = "".join(traceback.format_tb(error.__traceback__)[-2:])
        text = f"{type(error).__name__}: {error}\n{where}"
        return replace(history, steps=world.steps, error=text, trace=trace)
    return replace(history, steps=world.steps)


def shrink(failed: History) -> History:
    """Return a failing history with as few kinds of faults as suffice, and of those the shortest of some seeds."""
    best = failed
    for fault in sorted(failed.faults):
        fewer = best.faults - {fault}
        found = _find_shortest(best.simulation, fewer, [best.seed, *map(str, range(_ATTEMPTS_MAX // 3))])
        best = found or best
    seeds = [str(number) for number in range(_ATTEMPTS_MAX)]
    shortest = _find_shortest(best.simulation, best.faults, seeds)
    return shortest if shortest is not None and shortest.steps < best.steps else best


def _find_shortest(simulation: type[Simulation], faults: frozenset[Fault], seeds: Sequence[str]) -> History | None:
    histories = [run_history(simulation, seed, faults) for seed in seeds]
    return min((history for history in histories if history.error), key=lambda history: history.steps, default=None)


def explore(simulations: Sequence[type[Simulation]], seeds: Iterator[str], cpu_seconds: float) -> dict[str, float]:
    """Run histories of each simulation in turn for a time; return its steps a second of CPU, by name.

    AssertionError: something did not hold; the text says how to see it again.
    """
    spent = {simulation.name: [0, 0.0] for simulation in simulations}
    ends = time.process_time() + cpu_seconds
    while time.process_time() < ends:
        seed = next(seeds)
        for simulation in simulations:
            began = time.process_time()
            history = run_history(simulation, seed)
            assert not history.error, f"{history}\n\nshorter:\n{shrink(history)}"
            spent[simulation.name][0] += history.steps
            spent[simulation.name][1] += time.process_time() - began
    return {name: steps / max(seconds, 1e-9) for name, (steps, seconds) in spent.items()}
