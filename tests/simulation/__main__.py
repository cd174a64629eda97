"""Run one history again: `python -m tests.simulation NAME SEED [--without FAULT]... [--shrink]`."""

import argparse
import sys

from tests.simulation.catalog import BY_NAME
from tests.simulation.run import STEPS, run_history, shrink
from tests.simulation.world import ALL_FAULTS, Fault


def main() -> int:
    """Print how the history ends; 1 if something does not hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("name", choices=sorted(BY_NAME))
    parser.add_argument("seed")
    parser.add_argument("--without", action="append", default=[], type=Fault, choices=sorted(Fault))
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--shrink", action="store_true", help="look for a shorter history that fails")
    asked = parser.parse_args()
    history = run_history(BY_NAME[asked.name], asked.seed, ALL_FAULTS - set(asked.without), asked.steps)
    if history.error and asked.shrink:
        history = shrink(history)
    sys.stdout.write(f"{history if history.error else f'{history.steps} steps, all has held'}\n")
    return int(bool(history.error))


if __name__ == "__main__":
    sys.exit(main())
