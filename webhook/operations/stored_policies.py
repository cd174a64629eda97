"""Policies of a cluster, read with the user's own rights: the wished one, those in force and tried, and those kept."""

from collections.abc import AsyncIterator, Awaitable, Callable, Container, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from webhook.commands.policy_argument import build_mistakes_error, load_document, load_valid
from webhook.commands.policy_argument import read_document as read_file
from webhook.core.document import DocumentError, Purpose, load
from webhook.core.document.configmap import LAST_GOOD, NAME, NAMESPACE, ConfigMap, NoDocumentError, read_document
from webhook.core.document.loading import compute_hash
from webhook.core.installation.objects import Json, ObjectReference
from webhook.core.policy.model import LoadedPolicy, Policy
from webhook.core.rollout.state import InForce, RolloutState, decide_in_force
from webhook.errors import RolloutError, UserError
from webhook.policy_in_force.policy_signatures import PolicySignatures
from webhook.ports import PolicyRevision, PolicyRevisions, RolloutStateStore
from webhook.support.kubeconfig import Kubeconfig

LIVE, WISHED, CANDIDATE = "live", "wished", "candidate"
ROLES = (LIVE, WISHED, CANDIDATE)
_NUMBER_DIGITS_MAX, _PREFIX_DIGITS_MIN, _HASH_DIGITS = 6, 4, 16
_HEX_DIGITS = frozenset("0123456789abcdef")
_PLACE = f"configmap {NAMESPACE}/{NAME}"


def is_stored(name: str) -> bool:
    """Return whether a name means a policy in the cluster, since it can and there is no file of this name.

    A role, a revision, or the beginning of a hash can.
    """
    return (name in ROLES or _is_number(name) or _is_prefix(name)) and not Path(name).is_file()


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdigit() and len(name) <= _NUMBER_DIGITS_MAX


def _is_prefix(name: str) -> bool:
    return _PREFIX_DIGITS_MIN <= len(name) <= _HASH_DIGITS and not set(name) - _HEX_DIGITS


class NoRolloutError(UserError):
    """The cluster has no state of a rollout."""


class WishedPolicy(Struct, frozen=True):
    """The wished policy as servers see it: "" for `hash` if there is no valid document. `obstacle`: why."""

    hash: str
    raw: bytes = b""
    obstacle: str = ""


class RolloutFacts(Struct, frozen=True):
    """The rollout at one moment. The newest revision is the first."""

    state: RolloutState | None
    wished: WishedPolicy
    revisions: tuple[PolicyRevision, ...]

    @property
    def in_force(self) -> InForce:
        return decide_in_force(self.wished.hash, self.state)

    def require_state(self) -> RolloutState:
        if self.state is not None:
            return self.state
        raise NoRolloutError(
            f"configmap {NAMESPACE}/podgate-policy-state: there is none: no leader has kept a history of policies here",
            "start a controller of this version, or a server with --store=memory, that reads the policy from the"
            f" cluster (without --policy FILE); until then change {_PLACE} itself",
        )

    def find_number(self, policy_hash: str) -> int:
        """Return the number of a policy's revision, 0 if it is not kept."""
        return next((kept.number for kept in self.revisions if kept.hash == policy_hash), 0)

    def describe(self, policy_hash: str) -> str:
        """Return a policy for people: its hash, and its revision."""
        number = self.find_number(policy_hash)
        return f"{policy_hash} (revision {number})" if number else policy_hash

    def find_hash(self, name: str) -> str | None:
        """Return the hash that a revision, a hash or its beginning names; None if it is none of them. UserError."""
        if _is_number(name):
            for kept in self.revisions:
                if kept.number == int(name):
                    return kept.hash
        if not _is_prefix(name):
            return None
        known = dict.fromkeys(kept.hash for kept in self.revisions)
        known |= dict.fromkeys(filter(None, (self.wished.hash, self.in_force.stable, self.in_force.candidate)))
        found = [policy_hash for policy_hash in known if policy_hash.startswith(name)]
        if len(found) > 1:
            raise UserError(f"{name}: begins the hashes {', '.join(found)}", "write more digits")
        return found[0] if found else None

    def require_hash(self, name: str) -> str:
        """Return the hash that `name` names: a role, or as `find_hash`; UserError if there is none."""
        if name in ROLES:
            return self._find_role(name)
        found = self.find_hash(name)
        if found is None:
            listed = ", ".join(f"{kept.number} ({kept.hash})" for kept in self.revisions) or "none"
            raise UserError(f"{name}: no such revision: there are {listed}", "see podgate policy history")
        return found

    def _find_role(self, name: str) -> str:
        if name == CANDIDATE and not self.in_force.candidate:
            raise UserError("candidate: there is none now", "podgate policy candidate shows the rollout")
        found = {LIVE: self.in_force.stable, WISHED: self.wished.hash, CANDIDATE: self.in_force.candidate}[name]
        if not found or (name == WISHED and self.wished.obstacle):
            raise UserError(self.wished.obstacle, "" if self.wished.raw else "give the file of a policy")
        return found


class StoredPolicies:
    """Reads the rollout and the documents of policies. UserError names what cannot be read, and the right to it."""

    def __init__(
        self,
        read_config_map: Callable[[str], Awaitable[ConfigMap | None]],
        states: RolloutStateStore,
        revisions: PolicyRevisions,
        read_user: Callable[[], Awaitable[str]],
        list_objects: Callable[[ObjectReference], Awaitable[list[Json]]],
    ) -> None:
        self._read_config_map = read_config_map
        self.list_objects = list_objects
        """Returns the objects of a kind; none if the cluster does not have it."""
        self.states = states
        self.revisions = revisions
        self.read_user = read_user
        """Returns the name of the user, "" if it is unknown."""

    async def read_facts(self) -> RolloutFacts:
        with convert_rollout_errors():
            state = await self.states.read()
            revisions = await self.revisions.list_all()
        valid = {kept.hash for kept in revisions}
        if state is not None:
            valid |= {state.stable, state.candidate, *(rejection.hash for rejection in state.rejected)}
        return RolloutFacts(state, await self._read_wished(valid), revisions)

    async def _read_wished(self, valid: Container[str]) -> WishedPolicy:
        """Return the document in the ConfigMap, or the last good one that servers use while that one is invalid.

        `valid`: policies that the leader has taken, so that checking them again would only take time.
        """
        raw, obstacle = await self._read_stored(NAME)
        good, _ = await self._read_stored(LAST_GOOD)
        is_valid = raw is not None and (raw == good or compute_hash(raw) in valid)
        if raw is None or (not is_valid and (obstacle := _find_mistakes(raw))):
            return WishedPolicy("" if good is None else compute_hash(good), good or raw or b"", obstacle)
        return WishedPolicy(compute_hash(raw), raw)

    async def read_config_map_document(self) -> bytes:
        """Return the document in the ConfigMap, valid or not; UserError if there is none."""
        raw, obstacle = await self._read_stored(NAME)
        if raw is None:
            raise UserError(obstacle, "give the file of a policy")
        return raw

    async def read_document(self, policy_hash: str, facts: RolloutFacts) -> bytes:
        """Return the document of a policy; UserError if it is not kept."""
        if policy_hash == facts.wished.hash:
            return facts.wished.raw
        with convert_rollout_errors():
            raw = await self.revisions.read(policy_hash)
        if raw is None:
            raise UserError(
                f"controllerrevision podgate-policy-{policy_hash} in {NAMESPACE}: not kept any more",
                "podgate policy history lists what is",
            )
        return raw

    async def load(self, policy_hash: str, facts: RolloutFacts) -> Policy:
        return load_valid(facts.describe(policy_hash), await self.read_document(policy_hash, facts))

    async def _read_stored(self, name: str) -> tuple[bytes | None, str]:
        """Return the document in a ConfigMap, or None and the reason."""
        found = await self._read_config_map(name)
        try:
            return (
                (None, f"configmap {NAMESPACE}/{name}: there is none") if found is None else (read_document(found), "")
            )
        except NoDocumentError as error:
            return None, str(error)


def _find_mistakes(raw: bytes) -> str:
    try:
        load(raw, Purpose.SERVE)
    except DocumentError as error:
        return str(build_mistakes_error(_PLACE, error))
    return ""


@contextmanager
def convert_rollout_errors() -> Iterator[None]:
    try:
        yield
    except RolloutError as error:
        raise UserError(str(error)) from None


@asynccontextmanager
async def open_policies(kubeconfig: Kubeconfig, *, dry_run: bool = False) -> AsyncIterator[StoredPolicies]:
    """Yield the policies of a kubeconfig's cluster; UserError: no usable kubeconfig.

    With `dry_run` the API server checks a write, and keeps nothing of it.
    """
    from webhook.adapters import kubernetes  # noqa: PLC0415  its library takes long to load

    client = await kubernetes.connect(kubeconfig)
    objects, signatures = kubernetes.ClusterObjects(client), PolicySignatures()

    async def read_config_map(name: str) -> ConfigMap | None:
        found = await objects.get(ObjectReference("v1", "ConfigMap", name, NAMESPACE))
        if found is None:
            return None
        config_map = msgspec.convert(found, ConfigMap)
        with suppress(NoDocumentError):  # without keys: only so that a revision has the signature too
            signatures.verify(read_document(config_map), config_map.read_signature(), name)
        return config_map

    try:
        states = kubernetes.ConfigMapRolloutStateStore(client, dry_run=dry_run)
        revisions = kubernetes.ControllerRevisions(client, signatures=signatures)
        yield StoredPolicies(read_config_map, states, revisions, states.read_author, objects.items)
    finally:
        await client.close()


async def read_policies(names: Sequence[str], kubeconfig: Kubeconfig) -> tuple[dict[str, bytes], tuple[str, ...]]:
    """Return documents by name, of files or of the cluster, and warnings; UserError: one cannot be read."""
    stored = [name for name in dict.fromkeys(names) if is_stored(name)]
    files = {name: read_file(name) for name in dict.fromkeys(names) if name not in stored}
    if not stored:
        return files, ()
    async with open_policies(kubeconfig) as policies:
        documents, warnings = await _read_stored_policies(policies, stored)
    return {**files, **documents}, warnings


async def load_named_policy(name: str, kubeconfig: Kubeconfig) -> tuple[LoadedPolicy, tuple[str, ...]]:
    """Return a policy of a file or of the cluster, for a replay, and warnings; UserError: unreadable or mistakes."""
    documents, warnings = await read_policies([name], kubeconfig)
    return load_document(name, documents[name], Purpose.REPLAY), warnings


async def _read_stored_policies(
    policies: StoredPolicies, names: Sequence[str]
) -> tuple[dict[str, bytes], tuple[str, ...]]:
    """Without a state of the rollout, or the right to read it, `live` is what the ConfigMap has."""
    warnings: tuple[str, ...] = ()
    if set(names) <= {LIVE, WISHED}:
        try:
            with convert_rollout_errors():
                state = await policies.states.read()
        except UserError as error:
            state, warnings = None, (f"{LIVE} is what the ConfigMap has: it is not known what is in force: {error}",)
        if state is None:
            return dict.fromkeys(names, await policies.read_config_map_document()), warnings
    facts = await policies.read_facts()
    return {name: await policies.read_document(facts.require_hash(name), facts) for name in names}, ()
