"""Runs of planted defects: each in a copy of the tree, and its history judged by the checkers of this one."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.chaos.checkers import Judge, judge
from tests.chaos.history import History, read_history
from tests.chaos.planted.defect import Defect
from tests.chaos.planted.defects import is_light

TREE = Path(__file__).parents[3]
_COPIED = ("webhook", "certs", "tests")
_READ_ONLY = ("docs", "manifests")
_LEFT_OUT = shutil.ignore_patterns("node_modules", "corpora", "*.png")
_RUN_SECONDS = 300
SEED = 1
TRIES, VIRTUAL_TRIES = 3, 12
"""A defect that needs luck to show may take another seed; in virtual time one costs little."""


class RunFailedError(Exception):
    """A stage did not end by itself."""


@contextmanager
def plant(defect: Defect | None) -> Iterator[Path]:
    """Copy the tree, and plant a defect in the copy."""
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        tree = Path(folder) / "tree"
        for name in _COPIED:
            shutil.copytree(TREE / name, tree / name, ignore=_LEFT_OUT)
        shutil.copy(TREE / "pyproject.toml", tree)
        for name in _READ_ONLY:
            (tree / name).symlink_to(TREE / name)
        if defect is not None:
            defect.apply(tree)
        yield tree


def run_stage(tree: Path, stage: str, seed: int, *, light: bool) -> History:
    """Run a stage in a tree; RunFailedError: it crashed."""
    out = tree / f"history-{stage}-{seed}"
    of_light = ["-m", "tests.chaos.light", "--schedule", stage, "--no-check"]
    arguments = of_light if light else ["-m", "tests.chaos.virtual", "--stage", stage]
    done = subprocess.run(
        [sys.executable, *arguments, "--seed", str(seed), "--out", str(out)],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)},
        check=False,
        capture_output=True,
        text=True,
        timeout=_RUN_SECONDS,
    )
    if done.returncode:
        raise RunFailedError(f"{stage}, seed {seed}: exit code {done.returncode}: {done.stderr[-500:]}")
    return read_history(out)


def catch(defect: Defect, tries: int | None = None) -> tuple[int, Sequence[Judge]]:
    """Run a defect until one of its checkers catches it; return the last seed, and what all checkers say."""
    judges: Sequence[Judge] = ()
    seed, tries = SEED, tries or (TRIES if is_light(defect) else VIRTUAL_TRIES)
    with plant(defect) as tree:
        for seed in range(SEED, SEED + tries):
            judges = judge(run_stage(tree, defect.stage, seed, light=is_light(defect)))
            if list_catching(defect, judges):
                break
    return seed, judges


def list_catching(defect: Defect, judges: Sequence[Judge]) -> list[Judge]:
    """Return the checkers that were expected to catch a defect, and did."""
    return [each for each in judges if each.violations and each.checker in defect.checkers]
