"""`make soak`: each line of its parts selects tests, which read the variables that the line sets."""

import re
import shlex
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()
PARTS = re.findall(r"^(soak-\w+): setup\n((?:\t.+\n)+)", MAKEFILE, re.MULTILINE)
LINES = [line.strip() for _, recipe in PARTS for line in recipe.splitlines()]
BY_HAND = {"PODGATE_TEST_SEED", "PODGATE_TEST_SHORT"}
"""Set by hand to repeat a failure, and by `make check`."""


def split(line: str) -> tuple[list[str], list[Path], list[str]]:
    """Return the variables of a line, the test modules of its paths, and the words of its -k."""
    parts = shlex.split(line)
    start = parts.index("$(BIN)/pytest")
    paths: list[Path] = []
    ignored: list[Path] = []
    words: list[str] = []
    rest = iter(parts[start + 1 :])
    for part in rest:
        if part == "-k":
            words += next(rest).split(" or ")
        elif part == "--ignore":
            ignored.append(ROOT / next(rest))
        elif part != "-s":
            paths.append(ROOT / part)
    assert [path for path in (*paths, *ignored) if not path.exists()] == []
    modules = [path for entry in paths for path in ([entry] if entry.is_file() else entry.rglob("test_*.py"))]
    return (
        [part.partition("=")[0] for part in parts[:start]],
        [entry for entry in modules if entry not in ignored],
        words,
    )


@cache
def read_text(path: Path) -> str:
    return path.read_text()


def list_cases(path: Path) -> list[str]:
    return re.findall(r"^ *(?:async )?def (test_\w+)", read_text(path), re.MULTILINE)


@cache
def list_imported(path: Path) -> list[Path]:
    """Return the modules of the tests that a module imports or names, and each conftest.py that applies to it."""
    folders = [folder for folder in path.parents if folder.is_relative_to(ROOT / "tests")]
    modules = [folder / "conftest" for folder in folders]
    imports = re.findall(r"^ *from (tests[\w.]*) import (\([^)]*\)|.*)", read_text(path), re.MULTILINE)
    names = {f"{package}.{name}" for package, text in imports for name in re.findall(r"\w+", text)}
    names |= {package for package, _ in imports} | {*re.findall(r'"(tests\.[\w.]+)"', read_text(path))}
    modules += [ROOT / name.replace(".", "/") for name in names]
    return [file for entry in modules for file in (entry.with_suffix(".py"), entry / "__init__.py") if file.is_file()]


def list_variables(modules: list[Path]) -> set[str]:
    """Return the variables of the environment that test modules, or what they import, read."""
    files, pending = set(modules), list(modules)
    while pending:
        new = set(list_imported(pending.pop())) - files
        files |= new
        pending += new
    return {name for path in files for name in re.findall(r'"(PODGATE_TEST_\w*[A-Z])"', read_text(path))}


@pytest.mark.parametrize("line", LINES)
def test_line_selects_tests_that_read_its_variables(line: str) -> None:
    variables, modules, words = split(line)
    cases = [name for module in modules for name in list_cases(module)]
    assert cases
    assert [word for word in words if not any(word in name for name in cases)] == []
    assert variables
    assert set(variables) - list_variables(modules) == set()


def test_every_variable_that_tests_read_is_set_by_a_line() -> None:
    everything = [path for path in ROOT.glob("tests/**/*.py") if path != Path(__file__)]
    assert list_variables(everything) - BY_HAND == {name for line in LINES for name in split(line)[0]}


def test_all_parts_are_run() -> None:
    assert f"\nsoak: {' '.join(name for name, _ in PARTS)}\n" in MAKEFILE
