"""Checks of the tree: layering, lint, types, size of modules, and forbidden content."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.cluster.binaries import cache

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
SOURCES = sorted([*ROOT.glob("webhook/**/*.py"), *ROOT.glob("certs/**/*.py")])
TESTS = sorted(ROOT.glob("tests/**/*.py"))

LONGEST_FUNCTION_LINES = 60
POSITIONAL_ARGUMENTS_MAX = 8
OF_WORDS = frozenset({"podgate", "run", "cli", "kubectl", "run_go", "reduced", "self", "one_of"})
"""Functions of tests that take any number of arguments of one kind, such as the words of a command line."""
LONGEST_MODULE_LINES = 300
USUAL_MODULE_LINES = 150
LITERALS = ast.Tuple | ast.List


def tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    return [ROOT / line for line in listed.stdout.splitlines() if (ROOT / line).is_file()]


@pytest.mark.parametrize(
    "command",
    [["lint-imports"], ["ruff", "check"], ["ruff", "format", "--check"], ["mypy"]],
    ids="-".join,
)
def test_tool_reports_no_error(command: list[str]) -> None:
    # mypy compares contents with those in its cache, so a new clone needs 1 s of CPU instead of 9.
    environment = {**os.environ, "MYPY_CACHE_DIR": str(cache() / "mypy")}
    tool, *arguments = command
    done = subprocess.run(
        [BIN / tool, *arguments], cwd=ROOT, env=environment, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_import_contracts_can_fail(tmp_path: Path) -> None:
    """Break two rules, and expect both violations in the output."""
    import shutil  # noqa: PLC0415  for this test alone

    for folder in ("webhook", "certs"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "webhook/core/patch.py").write_text("import time\nfrom webhook import settings\n")
    done = subprocess.run(
        [BIN / "lint-imports", "--no-cache"], cwd=tmp_path, check=False, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "webhook.core.patch -> time" in done.stdout
    assert "webhook.core.patch -> webhook.settings" in done.stdout


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_module_is_small_and_has_a_charter(path: Path) -> None:
    text = path.read_text()
    tree = ast.parse(text)
    assert ast.get_docstring(tree), "the first line of a module is its charter"
    assert len(text.splitlines()) <= LONGEST_MODULE_LINES
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
            assert node.end_lineno - node.lineno < LONGEST_FUNCTION_LINES, node.name


def positional(call: ast.Call) -> int:
    """Return how many positional arguments a call has; those of a tuple that is written out in it are counted, too."""
    unpacked = [one.value.elts for one in call.args if isinstance(one, ast.Starred) and isinstance(one.value, LITERALS)]
    return len(call.args) + sum(len(elements) - 1 for elements in unpacked)


def test_no_call_has_many_positional_arguments() -> None:
    """A reader cannot tell the ninth value by its place: name it, or make a record of what belongs together."""
    many = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in [*SOURCES, *TESTS]
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and positional(node) > POSITIONAL_ARGUMENTS_MAX
        if path in SOURCES or ast.unparse(node.func).rpartition(".")[2] not in OF_WORDS
    ]
    assert many == []


def test_most_modules_are_short() -> None:
    lengths = [len(path.read_text().splitlines()) for path in SOURCES]
    small = sum(length <= USUAL_MODULE_LINES for length in lengths)
    assert small > 0.75 * len(lengths), sorted(lengths)[-20:]


def test_no_file_names_a_registry_or_this_machine() -> None:
    """Lock files contain versions and hashes, but no addresses."""
    registry = re.compile(
        r"https?://[a-z0-9.-]*(index|registry|proxy|files|static|mirror)[a-z0-9-]*\.[a-z]|https?://(www\.)?pypi"
        r"|--(extra-)?index-url|\"resolved\"\s*:"
    )
    root = f"{ROOT}/"
    matches: list[str] = []
    for path in tracked():
        if path.name in {"LICENSE", Path(__file__).name}:
            continue
        lines = path.read_text(errors="replace").splitlines()
        matches += [f"{path.name}: {line[:120]}" for line in lines if registry.search(line) or root in line]
    assert matches == []


def test_every_dependency_has_a_minimum_version_and_a_reason() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    project = tomllib.loads(text)
    names = [*project["project"]["dependencies"], *project["dependency-groups"]["dev"]]
    for name in names:
        assert ">=" in name, f"{name} has no minimum version"
    for name in project["project"]["dependencies"]:
        line = next(line for line in text.splitlines() if f'"{name}"' in line)
        assert "#" in line, f"{name} has no reason"


def test_the_lock_holds_hashes_for_everything() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    packages = re.split(r"\n(?=[a-z0-9])", lock.strip())
    assert len(packages) > 30
    for package in packages:
        assert "--hash=sha256:" in package, package[:80]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_exception_from_a_rule_says_why(path: Path) -> None:
    unexplained = re.compile(r"#\s*(noqa(:\s*[A-Z]+\d+(,\s*[A-Z]+\d+)*)?|type:\s*ignore(\[[a-z-, ]+\])?)\s*$")
    assert [line.strip() for line in path.read_text().splitlines() if unexplained.search(line)] == []
