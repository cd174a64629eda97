"""Policies of decision records by hash, and the one in force, as far as they can be read."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from webhook.commands.clients.record_sources import RecordSource
from webhook.commands.policy_argument import load_policy
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.document import DocumentError, Purpose
from webhook.core.document.configmap import (
    LAST_GOOD,
    NAME,
    ROLLOUT_STATE,
    ROLLOUT_STATE_KEY,
    NoDocumentError,
    read_document,
)
from webhook.core.document.loading import load_again
from webhook.core.rollout.state import RolloutState, StateError, decide_in_force, decode_state
from webhook.errors import UserError

if TYPE_CHECKING:
    from webhook.adapters.kubernetes.cluster_facts import PodReader

_POLICIES_MAX = 10


class RecordPolicies:
    """Reads each policy once. Policies that cannot be read are added to `unread`, with the reason."""

    def __init__(self, given: CompiledPolicy | None, unread: dict[str, str]) -> None:
        """Create it. A `given` policy is used in place of the one in force."""
        self.given = given
        self.by_hash: dict[str, CompiledPolicy] = {}
        self._unread = unread
        self._in_force = given

    async def find_in_force(self, reader: "PodReader") -> CompiledPolicy | None:
        """Return the given policy, or the cluster's; None if it cannot be read.

        Servers use the last good policy while the one in the ConfigMap is not valid, or the rollout holds it back.
        """
        if self.given is None:
            wished = await self._read_stored(reader, NAME)
            state = await self._read_state(reader)
            wished_hash = "" if wished is None else wished.hash
            in_force = decide_in_force(wished_hash, state).stable
            is_wished = "policy" not in self._unread and wished_hash == in_force
            self._in_force = wished if is_wished else await self._read_stored(reader, LAST_GOOD)
            if state is not None and self._in_force is not None and self._in_force.hash != in_force:
                self._unread["policy"] = f"{in_force} is in force, and is not the last good one: it is not shown"
                self._in_force = None
        return self._in_force

    async def _read_state(self, reader: "PodReader") -> RolloutState | None:
        """Return the rollout's state; None without one."""
        found = await reader.policy(ROLLOUT_STATE)
        text = (found.data or {}).get(ROLLOUT_STATE_KEY) if found is not None else None
        try:
            return None if text is None else decode_state(text)
        except StateError as error:
            self._unread[f"configmap {ROLLOUT_STATE}"] = str(error)
            return None

    async def read(self, hashes: Iterable[str], source: RecordSource | None, reader: "PodReader | None") -> None:
        """Read the first few of these policies that are not known yet: of servers, else the last good one."""
        for policy_hash in list(dict.fromkeys(hashes))[:_POLICIES_MAX]:
            if not self._is_known(policy_hash):
                await self._read_one(policy_hash, source, reader)

    def _is_known(self, policy_hash: str) -> bool:
        return policy_hash in self.by_hash or (self._in_force is not None and self._in_force.hash == policy_hash)

    async def _read_one(self, policy_hash: str, source: RecordSource | None, reader: "PodReader | None") -> None:
        reason = "no server could be asked for it"
        try:
            raw = None if source is None else await source.read_policy(policy_hash)
            if raw is not None:
                self.by_hash[policy_hash] = _compile(raw)
                return
            if source is not None:
                reason = "the server that was asked does not keep it any more"
        except UserError as error:
            reason = f"{error}: {error.remedy}" if error.remedy else str(error)
        except DocumentError as error:
            reason = str(error)
        if reader is not None and (last_good := await self._read_stored(reader, LAST_GOOD)) is not None:
            self.by_hash[last_good.hash] = last_good
        if not self._is_known(policy_hash):
            self._unread[f"policy {policy_hash}"] = f"{reason}; what its rules wrote is not shown"

    async def _read_stored(self, reader: "PodReader", name: str) -> CompiledPolicy | None:
        """Return the policy in a ConfigMap, None if there is none that is valid."""
        config_map = await reader.policy(name)
        try:
            return None if config_map is None else _compile(read_document(config_map))
        except (DocumentError, NoDocumentError) as error:
            if name == NAME:
                self._unread["policy"] = str(error)
            return None


def read_policy_file(path: Path) -> CompiledPolicy:
    """Return the policy of a file; UserError if it is not valid."""
    return CompiledPolicy(load_policy(path, Purpose.REVIEW))


def _compile(raw: bytes) -> CompiledPolicy:
    """Return the policy of a document. DocumentError: it is not valid."""
    return CompiledPolicy(load_again(raw))
