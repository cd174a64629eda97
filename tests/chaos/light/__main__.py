"""`python -m tests.chaos.light --seed N --schedule NAME --out FOLDER`: one run, its history, and its judgement."""

import asyncio
import sys
import tempfile
from pathlib import Path

import click

from tests.chaos.checkers import judge
from tests.chaos.history import write_history
from tests.chaos.light.schedules import SCHEDULES
from tests.chaos.light.stage import LightStage
from tests.harness.fork_server import close_fork_server
from webhook.support.event_loop import EventLoop

_SHOWN_MAX = 20


@click.command()
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--schedule", type=click.Choice(tuple(SCHEDULES)), default="all", show_default=True)
@click.option("--out", type=click.Path(path_type=Path), help="Folder of the history.")
@click.option("--check/--no-check", default=True, help="Judge the history.")
def run(seed: int, schedule: str, out: Path | None, *, check: bool) -> None:
    """Run the light stage once."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            with asyncio.Runner(loop_factory=EventLoop) as runner:
                history = runner.run(LightStage(Path(folder), seed, SCHEDULES[schedule]).run())
        finally:
            close_fork_server()
    if out is not None:
        write_history(history, out)
    if not check:
        return
    judges = judge(history)
    for each in judges:
        click.echo(f"{each.checker:<10} {each.count:>6} facts {len(each.violations):>5} violations")
        for violation in each.violations[:_SHOWN_MAX]:
            click.echo(f"  {violation}")
    sys.exit(any(each.violations for each in judges))


if __name__ == "__main__":
    run()
