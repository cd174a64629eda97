"""Mutants of a module: each is its source with one small change, as cosmic-ray's operators make them.

Left out are changes of annotations and of text for people: no test can see the former, and none should see the latter.
"""

import ast
import difflib
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from cosmic_ray import plugins
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code

_LEFT_OUT = ("VariableReplacer", "VariableInserter", "ExceptionReplacer", "_Is_Eq", "_IsNot_NotEq")
"""These need names, or change what is never raised on purpose; of enums and None, `is` and `==` say the same."""

Span = tuple[tuple[int, int], tuple[int, int]]


class Mutant(NamedTuple):
    """One change; `begin`: its line and column."""

    module: str
    path: Path
    operator: str
    occurrence: int
    begin: tuple[int, int]

    def __str__(self) -> str:
        return f"{self.path}:{self.begin[0]} {self.operator.removeprefix('core/')} #{self.occurrence}"

    def build_source(self) -> str:
        """Return the changed source."""
        operator: Any = plugins.get_operator(self.operator)()
        source: str = mutate_code(self.path.read_text(), operator, self.occurrence)
        return source

    def list_changes(self) -> list[str]:
        """Return the lines that differ."""
        lines = difflib.unified_diff(
            self.path.read_text().splitlines(), self.build_source().splitlines(), lineterm="", n=0
        )
        return [line for line in lines if line[0] in "+-" and not line.startswith(("+++", "---"))]


def choose_one_of_each_place(path: Path, draw: Random) -> list[Mutant]:
    """Return one mutant of each kind and place: of the operators that `+` could be, one."""
    by_place: dict[tuple[str, tuple[int, int]], list[Mutant]] = {}
    for mutant in list_mutants(path):
        kind = mutant.operator.split("_")[0]
        by_place.setdefault((kind, mutant.begin), []).append(mutant)
    return [draw.choice(mutants) for mutants in by_place.values()]


def list_mutants(path: Path) -> Iterator[Mutant]:
    """Yield all mutants of a module."""
    source = path.read_text()
    module = ".".join(path.with_suffix("").parts)
    nodes, annotations = list(ast_nodes(get_ast(source))), list(_list_annotations(ast.parse(source)))
    for name in plugins.operator_names():
        if name.endswith(_LEFT_OUT):
            continue
        operator = plugins.get_operator(name)()
        places = (span for node in nodes for span in operator.mutation_positions(node))
        for occurrence, (begin, end) in enumerate(places):
            if not any(first <= begin and end <= last for first, last in annotations):
                yield Mutant(module, path, name, occurrence, begin)


def _list_annotations(tree: ast.Module) -> Iterator[Span]:
    """Yield where annotations are, and aliases of types in front of the code."""
    for node in ast.walk(tree):
        if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
            yield _find_span(node.annotation)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns is not None:
            yield _find_span(node.returns)


def _find_span(node: ast.expr) -> Span:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)
