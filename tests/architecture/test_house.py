"""Checks of the tree: layering, lint, types, size of modules, and forbidden content."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT, SOURCES, TESTS, nodes_of, parsed, place, text_of
from tests.cluster.binaries import cache

BIN = Path(sys.executable).parent

FUNCTION_LINES_MAX = 60
POSITIONAL_ARGUMENTS_MAX = 8
OF_WORDS = frozenset({"podgate", "run", "cli", "kubectl", "run_go", "run_reduced_server", "self", "one_of"})
"""Functions of tests that take any number of arguments of one kind, such as the words of a command line."""
MODULE_LINES_MAX = 300
USUAL_MODULE_LINES = 150
LITERALS = ast.Tuple | ast.List


def list_tracked() -> list[Path]:
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
    # mypy compares contents with those in its cache, so a new clone does not check every module again.
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


def test_every_module_has_a_charter() -> None:
    """The first line of a module is its charter."""
    assert [place(path) for path in SOURCES if not ast.get_docstring(parsed(path))] == []


def test_modules_and_functions_are_small() -> None:
    assert [place(path) for path in SOURCES if len(text_of(path).splitlines()) > MODULE_LINES_MAX] == []
    functions = [
        (f"{place(path)}: {node.name}", node.end_lineno - node.lineno)
        for path in SOURCES
        for node in nodes_of(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None
    ]
    assert [name for name, lines in functions if lines >= FUNCTION_LINES_MAX] == []


def positional(call: ast.Call) -> int:
    """Return how many positional arguments a call has; those of a tuple that is written out in it are counted, too."""
    unpacked = [
        argument.value.elts
        for argument in call.args
        if isinstance(argument, ast.Starred) and isinstance(argument.value, LITERALS)
    ]
    return len(call.args) + sum(len(elements) - 1 for elements in unpacked)


def test_no_call_has_many_positional_arguments() -> None:
    """A reader cannot tell the ninth value by its place: name it, or make a record of what belongs together."""
    many = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in [*SOURCES, *TESTS]
        for node in nodes_of(path)
        if isinstance(node, ast.Call) and positional(node) > POSITIONAL_ARGUMENTS_MAX
        if path in SOURCES or ast.unparse(node.func).rpartition(".")[2] not in OF_WORDS
    ]
    assert many == []


def test_most_modules_are_short() -> None:
    lengths = [len(text_of(path).splitlines()) for path in SOURCES]
    small = sum(length <= USUAL_MODULE_LINES for length in lengths)
    assert small > 0.73 * len(lengths), sorted(lengths)[-20:]


def test_no_file_names_a_registry_or_this_machine() -> None:
    """Lock files contain versions and hashes, but no addresses."""
    registry = re.compile(
        r"https?://[a-z0-9.-]*(index|registry|proxy|files|static|mirror)[a-z0-9-]*\.[a-z]|https?://(www\.)?pypi"
        r"|--(extra-)?index-url|\"resolved\"\s*:"
    )
    root = f"{ROOT}/"
    matches: list[str] = []
    for path in list_tracked():
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


def test_every_exception_from_a_rule_says_why() -> None:
    unexplained = re.compile(r"#\s*(noqa(:\s*[A-Z]+\d+(,\s*[A-Z]+\d+)*)?|type:\s*ignore(\[[a-z-, ]+\])?)\s*$")
    lines = [(path, line) for path in SOURCES for line in text_of(path).splitlines()]
    assert [f"{place(path)}: {line.strip()}" for path, line in lines if unexplained.search(line)] == []


def test_a_handler_of_unreadable_text_handles_what_is_nested_too_deeply() -> None:
    """RecursionError is no ValueError, and each release of CPython raises it at another depth."""
    decoding = re.compile(r"json\.loads\(|safe_load\(|jwt\.decode\(")
    missing, written_out = [], []
    for path in SOURCES:
        for node in nodes_of(path):
            if not isinstance(node, ast.Try):
                continue
            handled = [set(re.findall(r"\w+", ast.unparse(found.type))) for found in node.handlers if found.type]
            caught = set[str]().union(*handled)
            is_of_text = caught & {"ValueError", "YAMLError"} and decoding.search(
                "\n".join(map(ast.unparse, node.body))
            )
            reads = is_of_text or caught & {"MsgspecError", "DecodeError"}
            if reads and not caught & {"RecursionError", "UNREADABLE_JSON"}:
                missing.append(f"{place(path)}:{node.lineno}")
            if any("RecursionError" in types and types & {"MsgspecError", "DecodeError"} for types in handled):
                written_out.append(f"{place(path)}:{node.lineno}")
    assert missing == []
    assert written_out == [], "UNREADABLE_JSON of webhook.core.json_depth names them"
