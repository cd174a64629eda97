"""Whether a text is the kind of document that it was given as: only then may an error show what stands in it.

A wrong file may be a key, a password or a kubeconfig, and errors travel far: to logs, Events, metrics' owners, tickets.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from webhook.core.document.yaml.problems import DOCUMENT, DocumentError, Problem

NOT_SHOWN = "(not shown)"
_SAYS_NOTHING = re.compile(r"\((absent|empty|text|end)\)|0x[0-9a-f]{2}|U\+[0-9A-F]{4,6}|null|ConfigMap")
"""Values of problems that hold nothing of the document, or one character of it."""
_BRACKETS = re.compile(r"\{(\.\.\.)?\}|\[(\.\.\.)?\]")
_NAMES_NOTHING = re.compile(r"\(document\)|(\[\d+\])+")
"""A whole mapping or list holds nothing of it either where no key of the document leads there."""


@dataclass(frozen=True, slots=True)
class DocumentKind:
    """What a document is known by: all of these marks stand in it, good or bad."""

    name: str
    marks: tuple[re.Pattern[str], ...]
    lacks: str
    """What a text that is none lacks, in words."""
    remedy: str

    @classmethod
    def of_keys(cls, name: str, *keys: str, remedy: str) -> "DocumentKind":
        """Return a kind that is known by these keys, in YAML or JSON."""
        return cls(name, tuple(map(mark_of, keys)), f"it lacks {' or '.join(keys)}", remedy)

    def is_met_by(self, content: bytes) -> bool:
        text = content.decode("utf-8", "replace")
        return all(mark.search(text) for mark in self.marks)

    @property
    def unlike(self) -> str:
        """Say of a text that it is none of these."""
        return f"does not look like {self.name}: {self.lacks}"


def mark_of(key: str, values: str = "") -> re.Pattern[str]:
    """Return what a key looks like, in YAML or JSON, wherever it stands; `values`: a pattern of what follows it."""
    return re.compile(rf"(?:^|[\s{{,\[\-])[\"']?{key}[\"']?\s*:{values}", re.MULTILINE)


POLICY = DocumentKind(
    "a policy",
    (re.compile(r"apiVersion[\"']?\s*:\s*[\"']?podgate\.io/"),),
    "it has no apiVersion: podgate.io/v1alpha1",
    "give a policy, which begins with apiVersion: podgate.io/v1alpha1, kind: Policy and services:",
)
OVERRIDES = DocumentKind.of_keys(
    "overrides", "service", "until", remedy="give a list of entries, each with `- service: ` and `until: `"
)


@contextmanager
def shown_only_as(kind: DocumentKind, raw: bytes) -> Iterator[None]:
    """Let problems of a document pass, but of a text of another kind only those that show nothing of it."""
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
