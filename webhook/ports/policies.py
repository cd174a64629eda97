"""Policies, overrides and labels of Namespaces: their sources, and the check of documents."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from webhook.core.document import LoadResult, Purpose
from webhook.core.overrides import LiveOverrides
from webhook.core.policy.model import LoadedPolicy
from webhook.core.policy_admission.policy_review import DocumentReview, PolicyReview


class DocumentReceiver(Protocol):
    """Takes the documents that a source reads, such as a file or a ConfigMap."""

    async def on_document(self, raw: bytes, place: str) -> bool:
        """Check a document; return whether it is in force now. `place` precedes line and column of each problem."""
        ...

    def on_unreadable(self, errors: Sequence[str]) -> None:
        """Record that the source has no document that could be checked: what is in force stays."""
        ...


class PolicySource(Protocol):
    """Checked policies."""

    def current(self) -> LoadedPolicy | None:
        """Return the policy in force, None where there is no good one yet."""
        ...

    def by_hash(self, policy_hash: str) -> LoadedPolicy | None:
        """Return a policy that was in force within the last 60 s, by its hash."""
        ...

    async def refresh(self) -> None:
        """Read the source once, now; concurrent callers share one reading."""
        ...


class PolicyCheck(Protocol):
    """Checks documents without delaying reviews. CheckFailedError where a check has no result."""

    async def load(self, raw: bytes, purpose: Purpose) -> LoadResult:
        """Return, or raise DocumentError, as `webhook.core.document.load`."""
        ...

    async def review(self, asked: DocumentReview) -> PolicyReview:
        """Return what `webhook.core.policy_admission.policy_review.review_policy` does."""
        ...


class NamespaceLabels(Protocol):
    """Labels of Namespaces."""

    def labels(self, namespace: str) -> Mapping[str, str] | None:
        """Return its labels as cached; None for an unknown Namespace."""
        ...

    async def look(self, namespace: str) -> Mapping[str, str] | None:
        """Query the API server once; None if the Namespace does not exist or no response arrives in time."""
        ...


class Overrides(Protocol):
    """Live overrides. Read at each review: an entry has no effect after its end."""

    def current(self) -> LiveOverrides:
        """Return the live entries."""
        ...


class OverridesBook(Protocol):
    """The document of overrides, as commands change it. UserError where it cannot be read or written."""

    @property
    def place(self) -> str:
        """The place of the document, for messages."""
        ...

    async def read(self) -> bytes:
        """Return the document as it is now, empty where there is none."""
        ...

    async def write(self, raw: bytes) -> bool:
        """Replace what was read last; False, and nothing is written, if it has changed since."""
        ...

    async def author(self) -> str | None:
        """Return the name of the user, None if unknown."""
        ...

    async def policy(self) -> bytes | None:
        """Return the document of the policy at the same place; None if there is none."""
        ...
