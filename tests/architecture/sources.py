"""The modules of the tree, each read and parsed once for all checks of a process."""

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = sorted([*ROOT.glob("webhook/**/*.py"), *ROOT.glob("certs/**/*.py")])
TESTS = sorted(ROOT.glob("tests/**/*.py"))


@cache
def text_of(path: Path) -> str:
    return path.read_text()


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(text_of(path))


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(parsed(path)))


def place(path: Path) -> str:
    return str(path.relative_to(ROOT))
