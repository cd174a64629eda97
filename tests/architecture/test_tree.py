"""The tree: few rooms that import one way, names from a glossary, unique class names, and charters."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = sorted([*ROOT.glob("webhook/**/*.py"), *ROOT.glob("certs/**/*.py")])
GLOSSARY = frozenset(Path(__file__).with_name("glossary.txt").read_text().split())

MODULES_MAX = 670
FOLDERS_MAX = 85
TINY_MODULES_MAX = 70
TINY_LINES = 40
CONTAINERS = ("webhook", "webhook.core", "certs")
"""Their modules are layers of their own; the import contracts order them."""
QUESTION = re.compile(r"(What|Who|Whom|Whose|How|Where|Whether|Why|When|Whatever|Whoever)\b")


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def place(path: Path) -> str:
    return str(path.relative_to(ROOT))


def words() -> set[str]:
    """Return the words that modules and folders are named with."""
    names = {name for path in SOURCES for name in path.relative_to(ROOT).with_suffix("").parts}
    return {word for name in names for word in name.split("_") if word}


def dotted(path: Path) -> str:
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    return name.removesuffix(".__init__")


MODULES = {dotted(path): path for path in SOURCES}


def folder_of(module: str) -> str:
    return module if MODULES[module].stem == "__init__" else module.rpartition(".")[0]


def imports(path: Path) -> Iterator[str]:
    """Yield the modules of the tree that a module imports, also within functions."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            named = [f"{node.module}.{alias.name}" for alias in node.names]
            found = {name if name in MODULES else node.module for name in named}
            yield from (name for name in found if name in MODULES)


def test_the_tree_has_few_rooms_and_few_tiny_modules() -> None:
    modules = [path for path in SOURCES if path.stem != "__init__"]
    tiny = [path for path in modules if len(path.read_text().splitlines()) < TINY_LINES]
    assert len(modules) <= MODULES_MAX
    assert len({path.parent for path in SOURCES}) <= FOLDERS_MAX
    assert len(tiny) <= TINY_MODULES_MAX


def test_no_two_folders_import_each_other() -> None:
    edges = {(folder_of(name), folder_of(found)) for name, path in MODULES.items() for found in imports(path)}
    pairs = {(one, other) for one, other in edges if one < other and (other, one) in edges}
    assert {pair for pair in pairs if not set(pair) & set(CONTAINERS)} == set()


def test_a_package_defines_nothing_by_itself() -> None:
    """A reader looks for a class in a module of its name."""
    allowed = (ast.Import, ast.ImportFrom)
    found = {}
    for path in SOURCES:
        if path.stem == "__init__":
            body = parsed(path).body[1:]  # without the charter
            others = [node for node in body if not isinstance(node, allowed)]
            found[place(path)] = [node for node in others if "__all__" not in ast.unparse(node)]
    assert {name: nodes for name, nodes in found.items() if nodes} == {}


def test_names_of_modules_and_folders_are_words_of_the_glossary() -> None:
    """Add only words of the documentation of Kubernetes, Redis, TLS, HTTP or Python."""
    assert sorted(words() - GLOSSARY) == []


def test_the_glossary_has_no_word_that_is_not_used() -> None:
    assert sorted(GLOSSARY - words()) == []


def test_a_public_class_name_has_one_meaning() -> None:
    places = defaultdict(list)
    for path in SOURCES:
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(place(path))
    assert {name: modules for name, modules in places.items() if len(modules) > 1} == {}


def test_charter_names_the_content_of_its_module() -> None:
    charters = {place(path): (ast.get_docstring(parsed(path)) or "").splitlines()[0] for path in SOURCES}
    placeholder = re.compile(r"(TODO|FIXME|XXX)\b|\W*$")
    found = {name for name, charter in charters.items() if QUESTION.match(charter) or placeholder.match(charter)}
    assert found == set()


def test_no_code_parses_a_reason() -> None:
    """A reason is for people; code uses the value beside it."""
    methods = {"startswith", "endswith", "split", "rsplit", "partition", "rpartition", "find", "index"}
    violations = []
    for path in SOURCES:
        for node in ast.walk(parsed(path)):
            match node:
                case ast.Call(func=ast.Attribute(attr=method, value=ast.Attribute(attr="reason"))) if method in methods:
                    violations.append(f"{place(path)}:{node.lineno}")
                case ast.Compare(ops=[ast.In() | ast.NotIn()], comparators=[ast.Attribute(attr="reason")]):
                    violations.append(f"{place(path)}:{node.lineno}")
    assert violations == []


def test_no_test_module_is_imported_by_another() -> None:
    """What tests share stands in a module of its own beside them, or in `tests/harness`."""
    found = {
        f"{place(path)}: {node.module}"
        for path in sorted(ROOT.glob("tests/**/*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and re.match(r"tests\..*\btest_\w+$", node.module or "")
    }
    assert found == set()
