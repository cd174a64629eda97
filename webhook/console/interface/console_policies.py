"""Policies of a console: what its pages read of a cluster and have judged, with the rights of the user."""

from typing import Protocol

from msgspec import Struct

from webhook.core.reporting.candidate_document import StoredRollout
from webhook.core.rollout.plan import PlannedStep
from webhook.replay.impact import Comparison


class PlannedRollout(Struct, frozen=True):
    """When each step of a candidate would come. `notes`: what was not read for it, or why it is not tried."""

    steps: tuple[PlannedStep, ...]
    notes: tuple[str, ...] = ()


class ConsolePolicies(Protocol):
    """Each call reads what it needs. UserError: it cannot be read, with the next step."""

    async def read_rollout(self) -> StoredRollout:
        """Return the history of policies, and the rollout."""
        ...

    async def read_document(self, name: str) -> bytes:
        """Return a policy of the cluster: a revision, a hash, `live`, `wished` or `candidate`."""
        ...

    async def judge(self, before: bytes, candidate: bytes) -> Comparison:
        """Judge the last recorded requests by two valid policies."""
        ...

    async def plan(self, candidate: bytes) -> PlannedRollout:
        """Return what a rollout of a valid policy would do now."""
        ...
