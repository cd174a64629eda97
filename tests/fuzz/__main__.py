"""`make fuzz`: targets under coverage guidance, each for its part of the time; `--keep` chooses new corpora."""

import shutil

import click

from tests.fuzz.catalogue import NAMES, load_target
from tests.fuzz.corpus import BYTES_MAX, FOLDER, choose_entries, list_files, read_entries, write_entry
from tests.fuzz.guided import FAILURES, WORK, run_guided

KEPT = "found-"
"""Begin of the names of inputs that a defect was found with: they stay."""


@click.command()
@click.option("--seconds", type=float, default=600.0, show_default=True, help="Time of all targets together.")
@click.option("--keep", is_flag=True, help="Choose the corpora in the repository anew from all inputs found.")
@click.argument("names", nargs=-1, type=click.Choice(NAMES))
def main(names: tuple[str, ...], seconds: float, *, keep: bool) -> None:
    """Run targets, by default all of them."""
    chosen = names or NAMES
    failed = []
    for name in chosen if seconds else ():
        run = run_guided(name, seconds / len(chosen))
        click.echo(run)
        if run.failure:
            failed.append(name)
            click.echo(run.failure, err=True)
    for name in chosen if keep else ():
        keep_entries(name)
    if failed:
        raise click.ClickException(f"{', '.join(failed)}: the inputs are in {FAILURES}")


def keep_entries(name: str) -> None:
    """Replace the corpus of a target by few of the inputs that are known."""
    target = load_target(name)
    found = [path for path in list_files(name) if path.name.startswith(KEPT)]
    kept = [path.read_bytes() for path in found]
    inputs = [*read_entries(name), *(path.read_bytes() for path in (WORK / name).glob("*")), *target.list_seeds()]
    chosen = choose_entries(target, inputs, BYTES_MAX // len(NAMES), kept)
    draft = WORK / f"{name}.corpus"
    shutil.rmtree(draft, ignore_errors=True)
    for data in chosen:
        write_entry(draft, data)
    for path in found:
        shutil.copy(path, draft)
    shutil.rmtree(FOLDER / name, ignore_errors=True)
    shutil.copytree(draft, FOLDER / name)
    click.echo(f"{name}: {len(chosen)} of {len(inputs)} inputs, and {len(found)} of defects")


if __name__ == "__main__":
    main()
