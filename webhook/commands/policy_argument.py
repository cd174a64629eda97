"""`--policy` argument: a valid document, or every mistake in it."""

from pathlib import Path

from webhook.core.document import DocumentError, Purpose, load
from webhook.core.document.defaults import ATOMIC
from webhook.core.document.loading import load_unproved
from webhook.core.policy.model import LoadedPolicy, Policy
from webhook.errors import UserError
from webhook.support.input_files import read_content


def load_policy(path: Path, purpose: Purpose) -> LoadedPolicy:
    """Return the policy in a file; UserError lists every mistake in it."""
    return load_document(str(path), read_content(path, "give the path of a policy document"), purpose)


def load_document(name: str, raw: bytes, purpose: Purpose) -> LoadedPolicy:
    """Return the policy in a document that `name` names in errors; UserError lists every mistake in it."""
    try:
        return load(raw, purpose).policy
    except DocumentError as error:
        raise build_mistakes_error(name, error) from None


def load_valid(name: str, raw: bytes, atomic: frozenset[str] = ATOMIC) -> Policy:
    """Return the policy in a document without the proof, which servers have made; UserError as `load_document`."""
    try:
        return load_unproved(raw, None, atomic).policy
    except DocumentError as error:
        raise build_mistakes_error(name, error) from None


def build_mistakes_error(name: str, error: DocumentError) -> UserError:
    """Return the error that lists every mistake in the document that `name` names."""
    problems = "\n".join(f"  {name}:{problem}" for problem in error.problems)
    count = f"{len(error.problems)} mistake{'s' if len(error.problems) > 1 else ''}"
    return UserError(f"{name}: {count} in the policy: fix what is listed here\n{problems}")


def read_document(path: str) -> bytes:
    """Return a policy document, `-` being standard input; UserError if it cannot be read."""
    return read_content(Path(path), "give the path of a policy document, or - for standard input")
