"""Documents of policies by the names that people give: files, and policies of the cluster."""

from collections.abc import Sequence

from webhook.commands.policy_argument import load_document, read_document
from webhook.core.document import Purpose
from webhook.core.policy.model import LoadedPolicy
from webhook.errors import UserError
from webhook.operations.rollout_facts import LIVE, WISHED, is_stored
from webhook.operations.stored_policies import StoredPolicies, convert_rollout_errors, open_policies
from webhook.support.kubeconfig import Kubeconfig


async def read_policies(names: Sequence[str], kubeconfig: Kubeconfig) -> tuple[dict[str, bytes], tuple[str, ...]]:
    """Return documents by name, of files or of the cluster, and warnings; UserError: one cannot be read."""
    stored = [name for name in dict.fromkeys(names) if is_stored(name)]
    files = {name: read_document(name) for name in dict.fromkeys(names) if name not in stored}
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
