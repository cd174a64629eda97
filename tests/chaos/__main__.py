"""`python -m tests.chaos`: a run of a seed, for a person; the schedule of a seed; the summary of a history."""

import secrets
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import click

from tests.chaos import clocks
from tests.chaos.forms import FORMS, choose_form
from tests.chaos.history import read_history
from tests.chaos.judging import judge
from tests.chaos.report import explain_kinds, format_schedule, summarize
from tests.chaos.run import Drawn, Run
from tests.chaos.trace import trace
from tests.cluster.toolchain import BuildError

ROOT = Path(__file__).parents[2]
_SEED_MAX = 1_000_000
_seed = click.option("--seed", type=int, help="of faults and acts; by default a new one")
_seconds = click.option("--seconds", type=float, default=120.0, show_default=True, help="for how long faults begin")

_form = click.option(
    "--form", type=click.Choice([*FORMS]), help="of programs and faults; by default of seed and seconds"
)


@click.group()
def main() -> None:
    """Disturb Podgate on a real control plane, and judge what happened."""


@main.command()
def programs() -> None:
    """Get the programs that are not there yet, beside those of tests/cluster."""
    try:
        click.echo(f"{clocks.library()}", err=True)
    except BuildError as error:
        raise click.ClickException(str(error)) from None


@main.command()
@_seed
@_seconds
@_form
def plan(seed: int | None, seconds: float, form: str | None) -> None:
    """Print the schedule of a seed without doing it."""
    drawn = _draw(seed, seconds, form).build_plan()
    click.echo(f"seed {drawn.seed}\n{format_schedule(drawn.schedule)}\n{explain_kinds(drawn.schedule)}")


@main.command()
@_seed
@_seconds
@_form
@click.option(
    "--out", type=click.Path(path_type=Path), help="where the history goes; default: .test-results/chaos/SEED"
)
def run(seed: int | None, seconds: float, form: str | None, out: Path | None) -> None:
    """Do the schedule of a seed, and judge the history. Exit code 1: something is wrong."""
    drawn = _draw(seed, seconds, form)
    folder = out or ROOT / ".test-results" / "chaos" / str(drawn.seed)
    schedule = drawn.build_plan().schedule
    click.echo(f"seed {drawn.seed}: again by make chaos SEED={drawn.seed} SECONDS={seconds:g} FORM={drawn.form.name}")
    click.echo(f"{format_schedule(schedule)}\n{explain_kinds(schedule)}\n")
    with tempfile.TemporaryDirectory(prefix="podgate-chaos-") as scratch:
        running = Run(drawn, Path(scratch) / "lab", folder, lambda text: click.echo(f"{datetime.now(UTC):%T} {text}"))
        history = running.do()
    click.echo(f"\n{summarize(history)}\n")
    flaws = [*running.errors, *judge(history)]
    for flaw in flaws:
        click.echo(f"WRONG: {flaw}")
    click.echo(f"{len(flaws) or 'nothing'} wrong; the history is in {folder}")
    raise SystemExit(bool(flaws))


@main.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True))
def read(folder: Path) -> None:
    """Summarize and judge a history again."""
    history = read_history(folder)
    click.echo(summarize(history))
    for flaw in judge(history):
        click.echo(f"WRONG: {flaw}")


@main.command("trace")
@click.argument("folder", type=click.Path(path_type=Path, exists=True))
@click.argument("words")
def trace_object(folder: Path, words: str) -> None:
    """Print all that a history has of an object, by the beginning of its name or uid, between the faults."""
    for line in trace(read_history(folder), words):
        click.echo(line)


def _draw(seed: int | None, seconds: float, form: str | None) -> Drawn:
    chosen = secrets.randbelow(_SEED_MAX) if seed is None else seed
    return Drawn(chosen, seconds, choose_form(chosen, seconds, form))


if __name__ == "__main__":
    main()
