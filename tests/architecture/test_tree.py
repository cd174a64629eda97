"""The tree: bounded folders, names from a glossary, unique class names, and charters that name the content."""

import ast
import re
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[2]
SOURCES = sorted([*ROOT.glob("webhook/**/*.py"), *ROOT.glob("certs/**/*.py")])
GLOSSARY = frozenset(Path(__file__).with_name("glossary.txt").read_text().split())

MOST_MODULES_IN_A_FOLDER = 15
MEDIAN_MODULE_LINES = 100
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


def test_a_folder_holds_at_most_fifteen_modules() -> None:
    modules = Counter(place(path.parent) for path in SOURCES if path.stem != "__init__")
    assert {folder: count for folder, count in modules.items() if count > MOST_MODULES_IN_A_FOLDER} == {}


def test_half_of_the_modules_are_short() -> None:
    assert median(len(path.read_text().splitlines()) for path in SOURCES) < MEDIAN_MODULE_LINES


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
    assert {name: charter for name, charter in charters.items() if QUESTION.match(charter)} == {}


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
