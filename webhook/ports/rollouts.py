"""Rollout of the policy: its shared state, the documents of policies by hash, and counts of decisions by policy."""

from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct

from webhook.core.rollout.state import RolloutState


class StateReceiver(Protocol):
    """Receiver of the rollout's state whenever it changes."""

    async def on_state(self, state: RolloutState | None) -> None:
        """Follow a state; None: there is none."""
        ...

    async def on_unreadable_state(self, reason: str) -> None:
        """Record that the state cannot be decoded: what is in force stays."""
        ...


class RolloutStateStore(Protocol):
    """The one state object. RolloutError if it cannot be read or written."""

    async def read(self) -> RolloutState | None:
        """Return the state, None if there is none."""
        ...

    async def write(self, state: RolloutState) -> bool:
        """Replace the state; if it has changed since the last read, write nothing and return False."""
        ...


class PolicyRevision(Struct, frozen=True):
    """One policy that has been in force or a candidate. `created_at`: RFC 3339.

    `was_in_force`: it is or was in force everywhere, as far as that is recorded: earlier versions did not.
    """

    number: int
    hash: str
    created_at: str
    was_in_force: bool = False


class PolicyRevisions(Protocol):
    """Immutable documents of policies, by hash. RolloutError if they cannot be read or written."""

    async def read(self, policy_hash: str) -> bytes | None:
        """Return the document, None if it is not kept."""
        ...

    async def list_all(self) -> tuple[PolicyRevision, ...]:
        """Return what is kept, the newest first."""
        ...

    async def keep(self, policy_hash: str, document: bytes) -> None:
        """Keep a document as the newest revision, unless it already is."""
        ...

    async def mark_in_force(self, policy_hash: str) -> None:
        """Record that a policy is in force; no error if it is not kept."""
        ...

    async def delete(self, policy_hash: str) -> None:
        """Delete a document; no error if it is not kept."""
        ...


class RolloutCounts(Protocol):
    """Counts of decisions by policy hash, shared by all replicas, for an hour. StoreUnavailableError.

    `webhook.core.rollout.counting` has their names.
    """

    async def add(self, policy_hash: str, counts: Mapping[str, int]) -> None:
        """Add to the counts of the current ten seconds."""
        ...

    async def read(self, policy_hash: str, since_us: int) -> Mapping[str, int]:
        """Return the sums since a time of the store's clock, in steps of ten seconds."""
        ...
