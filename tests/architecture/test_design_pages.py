"""The pages of docs/design: their form, their index, and the modules that cite them instead of stating figures."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT, place, text_of

FOLDER = ROOT / "docs/design"
INDEX = FOLDER / "README.md"
PAGES = sorted(set(FOLDER.glob("*.md")) - {INDEX})
DECISIONS = [page for page in PAGES if not page.stem.endswith("-operation")]
HEADINGS = ["Question", "Decision", "Measured", "Rejected", "What would change it"]
LINES_MAX = 75
SOURCES = [
    path for folder in ("webhook", "certs") for suffix in ("py", "lua") for path in ROOT.glob(f"{folder}/**/*.{suffix}")
]

MEASUREMENT = re.compile(
    r"\bopcodes\b|\d instructions\b|\b(has|have) (taken|cost|saved) (\d|most|a third|half)"
    r"|\b(takes?|took|costs?|saves?|saved) (about |some |up to |another )?\d[\d.,]*( to \d[\d.,]*)?"
    r" ?((us|ms|s|seconds|minutes)\b|%)"
)


def list_cited(path: Path) -> set[str]:
    return set(re.findall(r"docs/design/([\w-]+\.md)", text_of(path)))


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.stem)
def test_page_of_a_decision_has_its_five_headings(page: Path) -> None:
    assert re.findall(r"^## (.*)$", page.read_text(), flags=re.MULTILINE) == HEADINGS


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_is_short(page: Path) -> None:
    assert len(page.read_text().splitlines()) <= LINES_MAX


@pytest.mark.parametrize("page", [*PAGES, INDEX], ids=lambda page: page.stem)
def test_every_path_on_the_page_exists(page: Path) -> None:
    paths = re.findall(r"`((?:webhook|certs|tests)/[\w/.-]+)`", page.read_text())
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_index_lists_every_page() -> None:
    linked = set(re.findall(r"\]\(([\w-]+\.md)\)", INDEX.read_text()))
    assert linked == {page.name for page in PAGES}


def test_modules_cite_every_page_and_no_other() -> None:
    assert set().union(*map(list_cited, SOURCES)) == {page.name for page in PAGES}


def list_prose(path: Path) -> Iterator[str]:
    """Yield the comments and docstrings of a module, each as one line."""
    text = text_of(path)
    if path.suffix == ".lua":
        yield " ".join(line.partition("--")[2].strip() for line in text.splitlines() if "--" in line)
        return
    comments = [
        token.string for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type == tokenize.COMMENT
    ]
    yield " ".join(comments)
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Expr(value=ast.Constant(value=str() as docstring)):
                yield " ".join(docstring.split())


@pytest.mark.parametrize("text", ["it has taken 100 of each", "a call takes 19 us here", "it saved 3 % of a call"])
def test_a_measurement_is_recognized(text: str) -> None:
    assert MEASUREMENT.search(text)


def test_comments_say_why_and_leave_figures_to_the_pages() -> None:
    candidates = [path for path in SOURCES if MEASUREMENT.search(" ".join(re.sub("--", " ", text_of(path)).split()))]
    found = [(place(path), text) for path in candidates for text in list_prose(path) if MEASUREMENT.search(text)]
    assert found == []
