"""Checks that each page of the console passes."""

from html.parser import HTMLParser

HOSTILE = ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "\x1b[2J", "\u202egnp", "{{7*7}}", "'>&lt;"]


class _Tags(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.inline: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.inline += [name for name, _ in attrs if name == "style" or name.startswith("on")]
        self.inline += [text for name, text in attrs if name == "href" and text and "script:" in text.lower()]


def check_text(page: str) -> None:
    """Check that a page has no markup but its own, and no character that hides or reorders text."""
    found = _Tags(page)
    assert found.inline == []
    assert found.tags.isdisjoint({"img", "style", "iframe", "object", "base"})
    assert page.count("<script") == 1
    assert not {"\x1b", "\u202e"} & set(page)
    assert ">49" not in page
