"""Errors in authentication files, as a UserError: one line per problem, with file, line and column."""

from collections.abc import Iterator
from contextlib import contextmanager

from webhook.core.document.yaml.document_kind import DocumentKind, redact_unless
from webhook.core.document.yaml.nodes import Node
from webhook.core.document.yaml.problems import DOCUMENT, DocumentError, Problem
from webhook.core.document.yaml.reader import read_yaml
from webhook.errors import UserError


@contextmanager
def convert_document_errors(name: str, content: bytes, kind: DocumentKind) -> Iterator[None]:
    """Convert a DocumentError into a UserError, which quotes nothing of a file that is not of this kind."""
    with convert_problems(name), redact_unless(kind, content):
        yield


@contextmanager
def convert_problems(name: str) -> Iterator[None]:
    """Convert a DocumentError into a UserError about the file `name`."""
    try:
        yield
    except DocumentError as error:
        raise UserError("\n".join(f"{name}:{problem}" for problem in error.problems)) from None


def read_list(content: bytes, remedy: str) -> tuple[Node, list[Problem]]:
    """Return the root, whose value is a list, and the reader's problems; DocumentError if it is not a list."""
    reading = read_yaml(content)
    if reading.is_empty:
        raise DocumentError([Problem(1, 1, DOCUMENT, "(empty)", "there is no document", remedy)])
    if not isinstance(reading.root.value, list):
        raise DocumentError([*reading.problems, reading.root.build_problem("not a list", remedy)])
    return reading.root, reading.problems
