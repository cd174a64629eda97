"""Policies of decision records by hash, and the one in force, as far as they can be read."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.document import DocumentError, Purpose
from webhook.core.document.configmap import NoDocumentError, document_of
from webhook.core.document.loading import load_again
from webhook.offline.policy_argument import load_policy
from webhook.offline.record_sources import RecordSource

if TYPE_CHECKING:
    from webhook.adapters.kubernetes.cluster_facts import PodReader

_MOST = 10


class RecordPolicies:
    """Reads each policy once. What cannot be read is added to `unread`, with the reason."""

    def __init__(self, given: CompiledPolicy | None, unread: dict[str, str]) -> None:
        """Create it. A `given` policy is used in place of the one in force."""
        self.given = given
        self.by_hash: dict[str, CompiledPolicy] = {}
        self._unread = unread
        self._in_force = given

    async def in_force(self, reader: "PodReader") -> CompiledPolicy | None:
        """Return the given policy, or the cluster's; None if it cannot be read."""
        if self.given is None:
            config_map = await reader.policy()
            try:
                self._in_force = None if config_map is None else _compiled(document_of(config_map))
            except (DocumentError, NoDocumentError) as error:
                self._unread["policy"] = str(error)
                self._in_force = None
        return self._in_force

    async def read(self, hashes: Iterable[str], source: RecordSource | None) -> None:
        """Read the first few of these policies that are not known yet."""
        for policy_hash in list(dict.fromkeys(hashes))[:_MOST]:
            is_in_force = self._in_force is not None and self._in_force.hash == policy_hash
            if policy_hash not in self.by_hash and not is_in_force:
                await self._read(policy_hash, source)

    async def _read(self, policy_hash: str, source: RecordSource | None) -> None:
        raw = None if source is None else await source.policy(policy_hash)
        try:
            if raw is not None:
                self.by_hash[policy_hash] = _compiled(raw)
                return
        except DocumentError as error:
            self._unread[f"policy {policy_hash}"] = str(error)
            return
        self._unread[f"policy {policy_hash}"] = "no server keeps it any more; what its rules wrote is not shown"


def policy_file(path: Path) -> CompiledPolicy:
    """Return the policy of a file; UserError if it is not valid."""
    return CompiledPolicy(load_policy(path, Purpose.REVIEW))


def _compiled(raw: bytes) -> CompiledPolicy:
    """Return the policy of a document. DocumentError: it is not valid."""
    return CompiledPolicy(load_again(raw))
