"""Revisions of policies in memory: as the real ones, which the same contract tests."""

from hashlib import sha256

from webhook.errors import RolloutError
from webhook.ports import PolicyRevision


def hash_of(raw: bytes) -> str:
    """Return the hash of a policy's document."""
    return sha256(raw).hexdigest()[:16]


class MemoryRevisions:
    """A `ports.PolicyRevisions`. `error`: why none can be read; "" while they can."""

    def __init__(self) -> None:
        self.error = ""
        self.reads: list[str] = []
        self._kept: dict[str, bytes] = {}
        self._numbers: dict[str, int] = {}
        self._were_in_force: set[str] = set()

    async def read(self, policy_hash: str) -> bytes | None:
        self.reads.append(policy_hash)
        self._fail()
        return self._kept.get(policy_hash)

    async def list_all(self) -> tuple[PolicyRevision, ...]:
        self._fail()
        kept = [
            PolicyRevision(self._numbers[name], name, "2026-01-01T00:00:00Z", name in self._were_in_force)
            for name in self._kept
        ]
        return tuple(sorted(kept, key=lambda revision: -revision.number))

    async def keep(self, policy_hash: str, document: bytes) -> None:
        kept = await self.list_all()
        if kept and kept[0].hash == policy_hash:
            return
        self._numbers[policy_hash] = kept[0].number + 1 if kept else 1
        self._kept.setdefault(policy_hash, document)

    async def mark_in_force(self, policy_hash: str) -> None:
        self._fail()
        if policy_hash in self._kept:
            self._were_in_force.add(policy_hash)

    async def delete(self, policy_hash: str) -> None:
        self._fail()
        self._kept.pop(policy_hash, None)
        self._were_in_force.discard(policy_hash)

    def _fail(self) -> None:
        if self.error:
            raise RolloutError(self.error)
