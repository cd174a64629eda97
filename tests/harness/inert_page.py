"""Check of a page of the console: nothing from outside has become markup, and no character hides or reorders text."""

from html.parser import HTMLParser

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'><style>*{}</style>{{7*7}}"
"""Printable markup that a reason, a label or a message may have."""
UNSEEN = "\x1b[2J\u202egnp.exe\u2066\u200b"
"""Escape sequences, characters that reorder text, and one that has no width."""
_OWN_SCRIPTS = ("/static/console.js", "/static/pipeline.js")
_FORBIDDEN = frozenset({"img", "style", "iframe", "object", "embed", "base", "applet", "frame"})


class _Markup(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.found += [tag] if tag in _FORBIDDEN or (tag == "script" and given.get("src") not in _OWN_SCRIPTS) else []
        self.found += [name for name in given if name in {"style", "srcdoc"} or name.startswith("on")]
        address = (given.get("href") or given.get("src") or given.get("action") or "").strip().lower()
        self.found += [address] if address and not address.startswith(("/", "?", "#")) else []
        self.found += [address] if address.startswith("//") else []


def find_alive(text: str) -> list[str]:
    """Return what of a page would run, load something or lead elsewhere, and each character that cannot be seen."""
    return [*_Markup(text).found, *(repr(c) for c in set(text) if not c.isprintable() and c != "\n")]
