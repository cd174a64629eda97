"""Document kinds, and redaction of errors about files of another kind.

A wrong file may be a key, a password or a kubeconfig, and errors appear in logs, Events and tickets. So they quote
values only if the text looks like the expected kind of document.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from webhook.core.document.yaml.problems import DOCUMENT, DocumentError, Problem

NOT_SHOWN = "(not shown)"
_SAYS_NOTHING = re.compile(r"\((absent|empty|text|end)\)|0x[0-9a-f]{2}|U\+[0-9A-F]{4,6}|null|ConfigMap")
"""Values of problems that quote at most one character of the document."""
_BRACKETS = re.compile(r"\{(\.\.\.)?\}|\[(\.\.\.)?\]")
_NAMES_NOTHING = re.compile(r"\(document\)|(\[\d+\])+")
"""Paths without a key of the document: the placeholder for a mapping or list there quotes nothing either."""


@dataclass(frozen=True, slots=True)
class DocumentKind:
    """Kind of document, recognized by `marks`: all of them occur in it, whether it is valid or not."""

    name: str
    marks: tuple[re.Pattern[str], ...]
    lacks: str
    """What is missing in other texts, as a phrase."""
    remedy: str

    @classmethod
    def from_keys(cls, name: str, *keys: str, remedy: str) -> "DocumentKind":
        """Return a kind that is recognized by these keys, in YAML or JSON."""
        return cls(name, tuple(map(build_mark, keys)), f"it lacks {' or '.join(keys)}", remedy)

    def is_met_by(self, content: bytes) -> bool:
        text = content.decode("utf-8", "replace")
        return all(mark.search(text) for mark in self.marks)

    @property
    def unlike(self) -> str:
        """The reason of a problem about a text of another kind."""
        return f"does not look like {self.name}: {self.lacks}"


def build_mark(key: str, values: str = "") -> re.Pattern[str]:
    """Return a pattern for a key anywhere in YAML or JSON; `values`: a pattern for the text after it."""
    return re.compile(rf"(?:^|[\s{{,\[\-])[\"']?{key}[\"']?\s*:{values}", re.MULTILINE)


POLICY = DocumentKind(
    "a policy",
    (re.compile(r"apiVersion[\"']?\s*:\s*[\"']?podgate\.io/"),),
    "it has no apiVersion: podgate.io/v1alpha1",
    "give a policy, which begins with apiVersion: podgate.io/v1alpha1, kind: Policy and services:",
)
OVERRIDES = DocumentKind.from_keys(
    "overrides", "service", "until", remedy="give a list of entries, each with `- service: ` and `until: `"
)


@contextmanager
def redact_unless(kind: DocumentKind, raw: bytes) -> Iterator[None]:
    """Replace problems that quote a text of another kind by one that quotes nothing."""
    try:
        yield
    except DocumentError as error:
        if kind.is_met_by(raw) or all(map(_is_silent, error.problems)):
            raise
        line, column = error.problems[0].line, error.problems[0].column
        raise DocumentError([Problem(line, column, DOCUMENT, NOT_SHOWN, kind.unlike, kind.remedy)]) from None


def _is_silent(problem: Problem) -> bool:
    is_brief = _NAMES_NOTHING.fullmatch(problem.path) and _BRACKETS.fullmatch(problem.value)
    return bool(is_brief or _SAYS_NOTHING.fullmatch(problem.value))
