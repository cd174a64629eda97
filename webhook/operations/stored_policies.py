"""Policies of a cluster, read with the user's own rights: the wished one, those in force and tried, and those kept."""

from collections.abc import AsyncIterator, Awaitable, Callable, Container, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

import msgspec

from webhook.commands.policy_argument import build_mistakes_error, load_valid
from webhook.core.document import DocumentError, Purpose, load
from webhook.core.document.configmap import LAST_GOOD, NAME, NAMESPACE, ConfigMap, NoDocumentError, read_document
from webhook.core.document.loading import compute_hash
from webhook.core.installation.objects import Json, ObjectReference
from webhook.core.policy.model import Policy
from webhook.errors import RolloutError, UserError
from webhook.operations.rollout_facts import PLACE, RolloutFacts, WishedDocument
from webhook.policy_in_force.policy_signatures import PolicySignatures
from webhook.ports import PolicyRevisions, RolloutStateStore
from webhook.support.kubeconfig import Kubeconfig

_PARTS_SECONDS = 5.0


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

    async def _read_wished(self, valid: Container[str]) -> WishedDocument:
        """Return the document in the ConfigMap, or the last good one that servers use while that one is invalid.

        `valid`: policies that the leader has taken, so that checking them again would only take time.
        """
        raw, obstacle = await self._read_stored(NAME)
        good, _ = await self._read_stored(LAST_GOOD)
        is_valid = raw is not None and (raw == good or compute_hash(raw) in valid)
        if raw is None or (not is_valid and (obstacle := _find_mistakes(raw))):
            return WishedDocument("" if good is None else compute_hash(good), good or raw or b"", obstacle)
        return WishedDocument(compute_hash(raw), raw)

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
        return str(build_mistakes_error(PLACE, error))
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
        if name == NAME:
            try:
                config_map = await kubernetes.read_whole(client, config_map, _PARTS_SECONDS)
            except kubernetes.ApiError as error:
                right = f"list configmaps in {NAMESPACE}"
                raise UserError(f"cannot read the parts of the policy: {error.describe(right)}") from None
        with suppress(NoDocumentError):  # without keys: only so that a revision has the signature too
            signatures.verify(read_document(config_map), config_map.read_signature(), name)
        return config_map

    try:
        states = kubernetes.ConfigMapRolloutStateStore(client, dry_run=dry_run)
        revisions = kubernetes.ControllerRevisions(client, signatures=signatures)
        yield StoredPolicies(read_config_map, states, revisions, states.read_author, objects.items)
    finally:
        await client.close()
