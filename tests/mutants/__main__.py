"""Mutation score of a folder: `python -m tests.mutants webhook/core/quota --sample 200 --seed 1`.

Each mutant runs in a fork of a process that has imported whatever does not depend on the mutated module: nothing is
written into the tree, and a mutant costs the tests up to the first that fails. cosmic-ray makes the mutants; its own
runner starts a new interpreter for each of them.
"""

import argparse
import ast
import importlib
import importlib.abc
import importlib.machinery
import json
import os
import re
import resource
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from importlib.util import spec_from_loader
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import grimp
import pytest
from hypothesis import Phase, settings

TOOLS = Path(__file__).parents[2] / ".build/mutants"
"""Where `make mutants` installs cosmic-ray: behind the environment, whose packages stay what they are."""
sys.path.append(str(TOOLS))

from tests.mutants.mutations import Mutant, choose_one_of_each_place  # noqa: E402  needs cosmic-ray

_FROM_STORES = ["-k", "not redis- and not valkey-"]
_FIXED = "tests/simulation/test_simulation.py::test_what_must_hold_does_at_each_step_of_fixed_histories"
_OF_STORES = [
    f"tests/contract/test_{name}.py"
    for name in (
        *("withdrawals", "group_charges", "pool_live_pods", "pod_ledger", "live_guarantees", "guarantees"),
        *("counter_store", "exact_log", "breaker_machine", "quota_events_agree"),
    )
]
_TESTS = {
    "breaker": [
        "tests/core/breaker",
        "tests/core/ledger/test_operations.py",
        f"{_FIXED}[breakers]",
        "tests/contract/test_breaker_machine.py",
        "tests/contract/test_breaker_attacks.py",
    ],
    "ledger": ["tests/core/ledger", "tests/core/quota", f"{_FIXED}[charges]", f"{_FIXED}[releases]", *_OF_STORES],
    "quota": ["tests/core/quota", "tests/core/ledger", f"{_FIXED}[charges]", "tests/contract/test_exact_log.py"],
}
_IN_PROCESS = [
    "-x",
    "-q",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:xdist",
    "-W",
    "ignore::pytest.PytestAssertRewriteWarning",
]
_PLUGINS = ("tests", "__mp_main__", "__main__", "conftest", "xdist", "pytest_asyncio", "_hypothesis_pytestplugin")
"""pytest imports these itself."""
_CPU_SECONDS_MAX = 120
"""A mutant that runs longer does not end: it is killed."""
_FIRST = 3
_KILLED = {0: "survived", 1: "killed"}


class _MutatedModule(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module from another source."""

    def __init__(self, mutant: Mutant, source: str) -> None:
        self._mutant, self._source = mutant, source

    def find_spec(self, name: str, path: object, target: object = None) -> importlib.machinery.ModuleSpec | None:  # noqa: ARG002  as in the base
        return spec_from_loader(name, self, origin=str(self._mutant.path)) if name == self._mutant.module else None

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self._source, str(self._mutant.path), "exec"), module.__dict__)  # noqa: S102  the mutant


class _WithoutShrinking:
    """A plugin: the first failure is enough."""

    def pytest_configure(self) -> None:
        settings.register_profile("mutants", parent=settings(), phases=(Phase.explicit, Phase.generate), database=None)
        settings.load_profile("mutants")


def run_tests(groups: Sequence[Sequence[str]]) -> int:
    """Run groups of tests up to the first that fails."""
    for tests in groups:
        code = pytest.main([*_IN_PROCESS, *tests, *_FROM_STORES], plugins=[_WithoutShrinking()])
        if code not in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}:
            return int(code)
    return 0


def order_tests(tests: Sequence[str], path: Path) -> list[list[str]]:
    """Return the tests in two groups: those that name most of what a module defines, and the others."""
    tree = ast.parse(path.read_text())
    names = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    files = [file for test in tests for file in (sorted(map(str, Path(test).glob("test_*.py"))) or [test])]

    def count_names(test: str) -> int:
        file = Path(test.partition("::")[0])
        return len(names & set(re.findall(r"\w+", file.read_text()))) if file.suffix == ".py" else 0

    first = [file for file in sorted(files, key=count_names, reverse=True)[:_FIRST] if count_names(file)]
    return [group for group in (first, [file for file in files if file not in first]) if group]


def run_in_fork(act: Any, log: Path) -> tuple[int, float]:
    """Run a function in a fork; return its result, or a negative signal, and its seconds of CPU."""
    child = os.fork()
    if not child:
        with log.open("wb") as written:
            os.dup2(written.fileno(), 1)
            os.dup2(written.fileno(), 2)
        resource.setrlimit(resource.RLIMIT_CPU, (_CPU_SECONDS_MAX, _CPU_SECONDS_MAX + 5))
        code = 99
        try:
            code = act()
        finally:
            sys.stdout.flush()
            os._exit(code)
    _, status, usage = os.wait4(child, 0)
    return os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime


def list_imported(tests: Sequence[str], folder: Path) -> list[str]:
    """Return what the tests import."""
    names = folder / "imported.json"

    def collect() -> int:
        code = pytest.main([*_IN_PROCESS, "--collect-only", *tests, *_FROM_STORES])
        names.write_text(json.dumps(sorted(sys.modules)))
        return int(code)

    code, _ = run_in_fork(collect, folder / "collected.txt")
    assert code == 0, f"the tests cannot be collected: {folder / 'collected.txt'}"
    found: list[str] = json.loads(names.read_text())
    return found


def import_independent(names: Sequence[str], module: str, graph: grimp.ImportGraph) -> None:
    """Import what does not depend on a module. Whoever imports a module of a package imports the package, too."""
    dependent, found = set[str](), {module}
    while found:
        dependent |= found
        found = {below for name in found for below in graph.find_downstream_modules(name)}
        found |= {below for name in found | dependent for below in graph.find_descendants(name)}
        found -= dependent
    for name in names:
        if name not in sys.modules and name not in dependent and not name.startswith(_PLUGINS):
            with suppress(ImportError):
                importlib.import_module(name)
    loaded = dependent.intersection(sys.modules)
    assert not loaded, f"depends on {module}, and is imported: {sorted(loaded)[:3]}"


def judge_module(mutants: Sequence[Mutant], tests: Sequence[str], folder: Path) -> None:
    """Run the mutants of one module, and print how each ends."""
    groups = order_tests(tests, mutants[0].path)

    def run(mutant: Mutant, source: str) -> int:
        sys.meta_path.insert(0, _MutatedModule(mutant, source))
        return run_tests(groups)

    if not (folder / "outcomes.jsonl").exists():
        log = folder / "unchanged.txt"
        code, _ = run_in_fork(lambda: run(mutants[0], mutants[0].path.read_text()), log)
        assert code == 0, f"the tests fail without a change: {log}"
    for mutant in mutants:
        log = folder / f"{mutant.module}-{mutant.operator.replace('/', '_')}-{mutant.occurrence}.txt"
        code, cpu_seconds = run_in_fork(partial(run, mutant, mutant.build_source()), log)
        outcome = _KILLED.get(code, "did not end" if code < 0 else "broke")
        if outcome != "survived":
            log.unlink()
        with (folder / "outcomes.jsonl").open("a") as written:
            written.write(json.dumps({"outcome": outcome, "mutant": str(mutant), "cpu_seconds": cpu_seconds}) + "\n")
        if outcome == "survived":
            shown = "\n".join(mutant.list_changes())
            sys.stdout.write(f"survived: {mutant}\n{shown}\n")
            sys.stdout.flush()


def main() -> int:
    """Judge a sample of the mutants of a folder."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sample", type=int, default=0, help="how many, drawn at random; 0 for all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="only mutants whose names contain this")
    parser.add_argument("--results", type=Path, default=Path(".test-results/mutants"))
    asked = parser.parse_args()
    os.environ["CI"] = "yes"  # the same examples each time
    paths = [path for path in sorted(asked.folder.rglob("*.py")) if path.name != "__init__.py"]
    draw = Random(asked.seed)  # noqa: S311  a sample
    every = [mutant for path in paths for mutant in choose_one_of_each_place(path, draw) if asked.only in str(mutant)]
    chosen = draw.sample(every, min(asked.sample or len(every), len(every)))
    asked.results.mkdir(parents=True, exist_ok=True)
    tests, began = _TESTS[asked.folder.name], time.monotonic()
    sys.stdout.write(f"{len(chosen)} of {len(every)} mutants\n")
    sys.stdout.flush()
    names, graph = list_imported(tests, asked.results), grimp.build_graph("webhook", cache_dir=None)
    (asked.results / "outcomes.jsonl").unlink(missing_ok=True)
    for module in dict.fromkeys(mutant.module for mutant in sorted(chosen)):
        of_module = [mutant for mutant in sorted(chosen) if mutant.module == module]
        if child := os.fork():
            os.waitpid(child, 0)
        else:
            import_independent(names, module, graph)
            judge_module(of_module, tests, asked.results)
            os._exit(0)
    lines = (asked.results / "outcomes.jsonl").read_text().splitlines()
    outcomes = Counter(json.loads(line)["outcome"] for line in lines)
    killed = sum(outcomes.values()) - outcomes["survived"]
    sys.stdout.write(f"{killed} of {len(lines)} killed, {dict(outcomes)}, {time.monotonic() - began:.0f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
