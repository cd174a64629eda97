"""The links between pages: each points to an existing file and heading."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("docs/design/*.md"), *ROOT.glob("manifests/**/*.md")],
    key=str,
)


def list_anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_has_a_target(page: Path) -> None:
    dead = []
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if ":" in link:
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in list_anchors(target)):
            dead.append(link)
    assert dead == []


def test_the_index_lists_every_page() -> None:
    index = ROOT / "docs" / "README.md"
    assert {page.name for page in ROOT.glob("docs/*.md")} - {index.name} <= set(
        re.findall(r"\]\(([^)#/\s]+)", index.read_text())
    )


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.parent != ROOT], ids=lambda page: str(page.relative_to(ROOT))
)
def test_every_page_links_to_the_index(page: Path) -> None:
    index = ROOT / ("README.md" if page == ROOT / "docs" / "README.md" else "docs/README.md")
    links = re.findall(r"\]\(([^)#\s:]+)\)", page.read_text())
    assert index in {(page.parent / link).resolve() for link in links}
