"""Fragments of a page, each between its two markers."""

import re
from collections.abc import Mapping
from pathlib import Path


def insert_fragments(page: Path, fragments: Mapping[str, str]) -> None:
    """Write the fragments in place of the former ones. SystemExit if the page has no markers for one."""
    text = page.read_text()
    for name, fragment in fragments.items():
        marked = re.compile(f"(<!-- begin {name} -->\n).*?(<!-- end {name} -->)", re.DOTALL)
        if not marked.search(text):
            raise SystemExit(f"error: {page}: no markers <!-- begin {name} --> and <!-- end {name} -->: add them")
        text = marked.sub(lambda found, new=fragment: f"{found[1]}{new}\n{found[2]}", text)
    page.write_text(text)
