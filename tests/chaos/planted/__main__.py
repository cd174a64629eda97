"""`python -m tests.chaos.planted [WORD]...`: run the planted defects whose names have a word: who caught each."""

import sys

import click

from tests.chaos.planted.defects import DEFECTS
from tests.chaos.planted.running import RunFailedError, catch, list_catching


@click.command()
@click.argument("words", nargs=-1)
@click.option("--tries", type=int, help="Seeds for each; by default as in the tests.")
def run(words: tuple[str, ...], tries: int | None) -> None:
    """Print a line for each defect; exit code 1: one was not caught."""
    missed = 0
    for defect in DEFECTS:
        if words and not any(word in defect.name or word == defect.stage for word in words):
            continue
        try:
            seed, judges = catch(defect, tries)
        except RunFailedError as error:
            missed += 1
            click.echo(f"FAILED | {defect.name} | {defect.stage} | {error}")
            continue
        caught = list_catching(defect, judges)
        missed += not caught
        told = ", ".join(f"{each.checker} {len(each.violations)}" for each in judges if each.violations) or "nobody"
        click.echo(f"{'caught' if caught else 'MISSED'} | {defect.name} | {defect.stage} {seed} | {told}")
        for each in (caught or judges)[:2]:
            for violation in each.violations[:1]:
                click.echo(f"    {violation}"[:400])
        sys.stdout.flush()
    sys.exit(bool(missed))


if __name__ == "__main__":
    run()
