"""`python -m tests.chaos.virtual --stage NAME --seed N --out FOLDER`: one run, and its history."""

from pathlib import Path

import click

from tests.chaos.history import write_history
from tests.chaos.virtual.stages import STAGES, play


@click.command()
@click.option("--stage", type=click.Choice(tuple(STAGES)), required=True)
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder of the history.")
def run(stage: str, seed: int, out: Path) -> None:
    """Run a virtual stage once."""
    write_history(play(stage, seed), out)


if __name__ == "__main__":
    run()
