"""Where policies, overrides and labels of Namespaces come from, and who checks them."""

from collections.abc import Mapping
from typing import Protocol

from webhook.core.document import LoadResult, Purpose
from webhook.core.overrides import LiveOverrides
from webhook.core.policy.model import LoadedPolicy
from webhook.core.policy_admission.policy_review import PolicyReview, Question


class PolicySource(Protocol):
    """Where policies come from. What it hands out has been checked."""

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
    """Checks documents where no review has to wait for it. CheckFailedError where nothing came of it."""

    async def load(self, raw: bytes, purpose: Purpose) -> LoadResult:
        """Return, or raise DocumentError, as `webhook.core.document.load`."""
        ...

    async def weigh(self, asked: Question) -> PolicyReview:
        """Return what `webhook.core.policy_admission.policy_review.weigh` does."""
        ...


class NamespaceLabels(Protocol):
    """Labels of a Namespace."""

    def labels(self, namespace: str) -> Mapping[str, str] | None:
        """Return its labels, None where it is not known here."""
        ...

    async def look(self, namespace: str) -> Mapping[str, str] | None:
        """Ask whoever keeps Namespaces, once; None where it is unknown there too, or there is no answer in time."""
        ...


class Overrides(Protocol):
    """Hands on services, beside the policy. Asked at each review: what has ended no longer acts, whoever notices."""

    def current(self) -> LiveOverrides:
        """Return the live entries."""
        ...


class OverridesBook(Protocol):
    """Where a command changes overrides. UserError where it cannot be read or written, with what is missing."""

    @property
    def place(self) -> str:
        """Where the document is, for people."""
        ...

    async def read(self) -> bytes:
        """Return the document as it is now, empty where there is none."""
        ...

    async def write(self, raw: bytes) -> bool:
        """Replace what was read last; False, and nothing is written, where somebody has changed it meanwhile."""
        ...

    async def author(self) -> str | None:
        """Return who is writing, as far as that is known."""
        ...

    async def policy(self) -> bytes | None:
        """Return the policy's document beside it; None where there is none."""
        ...
