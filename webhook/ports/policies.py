"""Policies, overrides and labels of Namespaces: their sources, the check of documents, and objects made from them."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.document import Purpose
from webhook.core.document.assembly import Assembly, AssemblyRequest
from webhook.core.overrides import LiveOverrides
from webhook.core.policy.model import LoadedPolicy
from webhook.core.policy_changes.policy_review import DocumentReview, PolicyReview
from webhook.core.webhook_configurations import ConfigurationName, OutdatedConfiguration


class StatusClient(Protocol):
    """Status objects of one kind. StatusNotInstalledError without the kind, StatusError on failure."""

    async def read(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the status of each object by its name."""
        ...

    async def write(self, name: str, status: Mapping[str, Any]) -> None:
        """Replace the status of an object, created if necessary."""
        ...

    async def delete(self, name: str) -> None:
        """Delete an object."""
        ...


class WebhookConfigurationClient(Protocol):
    """Reads and writes Podgate's webhook configurations. WebhookConfigurationError on failure."""

    async def read(self) -> Mapping[ConfigurationName, dict[str, Any]]:
        """Return the configurations that exist."""
        ...

    async def write(self, changed: OutdatedConfiguration) -> bool:
        """Replace the webhooks of one configuration; False if it has changed since it was read."""
        ...


class DocumentReceiver(Protocol):
    """Receiver of the documents that a source reads, such as a file or a ConfigMap."""

    async def on_document(self, raw: bytes, place: str) -> bool:
        """Check a document; return whether it is valid. `place` prefixes line and column of each problem."""
        ...

    async def on_unreadable(self, errors: Sequence[str]) -> None:
        """Record that the source has no readable document: the current one stays."""
        ...


class DocumentSignatures(Protocol):
    """Signatures of policy documents, which sources verify before anybody receives a document."""

    def verify(self, document: bytes, signature: str | None, place: str) -> None:
        """Accept a document by the signature at `place`, None if there is none there. SignatureError."""
        ...

    def find(self, document: bytes) -> str | None:
        """Return the signature by which a document was accepted, for a copy of it; None if it had none."""
        ...


class PolicySource(Protocol):
    """Checked policies, compiled in advance under the live overrides: no review compiles a policy."""

    def get_current(self) -> CompiledPolicy | None:
        """Return the policy in force, None before the first valid one."""
        ...

    def find_by_hash(self, policy_hash: str) -> CompiledPolicy | None:
        """Return a policy that was in force within the last 60 s, by its hash."""
        ...

    async def refresh(self) -> None:
        """Read the source once, now; concurrent callers share one read."""
        ...


class PolicyCheck(Protocol):
    """Check of documents that does not delay reviews. CheckFailedError if a check has no result."""

    async def load(self, raw: bytes, purpose: Purpose) -> LoadedPolicy:
        """Return the policy of `webhook.core.document.load`, without warnings. DocumentError: it is invalid."""
        ...

    async def assemble(self, asked: AssemblyRequest) -> Assembly:
        """Return the result of `webhook.core.document.assembly.assemble`."""
        ...

    async def review(self, asked: DocumentReview) -> PolicyReview:
        """Return the result of `webhook.core.policy_changes.policy_review.review_policy`."""
        ...


class NamespaceLabels(Protocol):
    """Labels of Namespaces."""

    def find_labels(self, namespace: str) -> Mapping[str, str] | None:
        """Return its labels as cached; None for an unknown Namespace."""
        ...

    async def look_up_labels(self, namespace: str) -> Mapping[str, str] | None:
        """Query the API server once; None if the Namespace does not exist or no response arrives in time."""
        ...


class Overrides(Protocol):
    """Live overrides. Read at each review: an entry has no effect after its end."""

    def get_current(self) -> LiveOverrides:
        """Return the live entries: one of the states of `list_prepared`."""
        ...

    def list_prepared(self) -> tuple[LiveOverrides, ...]:
        """Return the live entries, and those after the next end if policies are compiled for them already."""
        ...


class OverridesStore(Protocol):
    """The document of overrides, as commands change it. UserError if it cannot be read or written."""

    @property
    def place(self) -> str:
        """The place of the document, for messages."""
        ...

    async def read(self) -> bytes:
        """Return the current document, empty if there is none."""
        ...

    async def write(self, raw: bytes) -> bool:
        """Replace the document; if it has changed since the last read, write nothing and return False."""
        ...

    async def read_author(self) -> str | None:
        """Return the name of the user, None if unknown."""
        ...

    async def read_policy(self) -> bytes | None:
        """Return the document of the policy at the same place; None if there is none."""
        ...
