"""`python -m tests.chaos.reliability HISTORY...`: writes into docs/reliability.md what checkers judged in histories.

Without a history it makes some: the long form of the light stage, and the virtual stages.
"""

import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import click

from tests.chaos.checkers import CHECKERS, Judge, judge
from tests.chaos.checkers.faults import NO_FAULT, Faults
from tests.chaos.history import History, read_history, write_history
from tests.chaos.virtual.stages import STAGES, play

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/reliability.md"
_MARKS = "<!-- begin runs -->\n{}<!-- end runs -->"
_VIRTUAL_SEEDS = 20


@click.command()
@click.argument("histories", nargs=-1, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--write/--print", "is_written", default=True, help="Write the page, or only print the table.")
def run(histories: tuple[Path, ...], seed: int, *, is_written: bool) -> None:
    """Judge histories, and tell how many facts were judged under which fault."""
    with tempfile.TemporaryDirectory() as folder:
        found = [*histories] or list(make_histories(Path(folder), seed))
        table = format_table(read_history(path) for path in found)
    click.echo(table)
    if is_written:
        text = PAGE.read_text()
        pattern = re.escape(_MARKS).replace(r"\{\}", ".*")
        PAGE.write_text(re.sub(pattern, lambda _: _MARKS.format(f"{table}\n"), text, flags=re.DOTALL))


def make_histories(folder: Path, seed: int) -> Iterator[Path]:
    """Run the stages that need no control plane."""
    out = folder / "light"
    arguments = ("--schedule", "long", "--seed", str(seed), "--no-check", "--out", str(out))
    subprocess.run([sys.executable, "-m", "tests.chaos.light", *arguments], check=True, cwd=ROOT)
    yield out
    for stage in STAGES:
        for number in range(seed, seed + _VIRTUAL_SEEDS):
            out = folder / f"{stage}-{number}"
            write_history(play(stage, number), out)
            yield out


def format_table(histories: Iterable[History]) -> str:
    """Return a row for each kind of fault: how often and how long, facts by checker, and violations."""
    times: Counter[str] = Counter()
    seconds: dict[str, float] = defaultdict(float)
    facts: dict[str, Counter[str]] = {name: Counter() for name in CHECKERS}
    violations: Counter[str] = Counter()
    for history in histories:
        for span in Faults(history).spans:
            times[span.kind] += 1
            seconds[span.kind] += round(max(0.0, min(span.ended, span.began + 3600) - span.began), 1)
        for each in judge(history):
            facts[each.checker] += each.facts
            violations.update(_list_kinds(each, history))
    rows = [("fault", "times", "seconds", *CHECKERS, "violations"), ("---",) * (4 + len(CHECKERS))]
    for kind in (NO_FAULT, *sorted(times)):
        counts = [str(facts[name][kind] or "-") for name in CHECKERS]
        often = ("-", "-") if kind == NO_FAULT else (str(times[kind]), f"{seconds[kind]:.0f}")
        rows.append((kind, *often, *counts, str(violations[kind])))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _list_kinds(each: Judge, history: History) -> Sequence[str]:
    """Return the kinds of faults that were active at each violation."""
    faults = Faults(history)
    kinds: list[str] = []
    for violation in each.violations:
        kinds += {span.kind for span in faults.list_active(violation.at, violation.at)} or {NO_FAULT}
    return kinds


if __name__ == "__main__":
    run()
