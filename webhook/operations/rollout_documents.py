"""Documents of the rollout as its commands and the console show them: the history of policies, and the candidate."""

from collections.abc import Sequence

from msgspec.structs import replace

from webhook.core.policy_fields.rollout import Rollout
from webhook.core.reporting.candidate_document import RolloutDocument, StoredRollout
from webhook.core.reporting.rollout_reports import HistorySource, RevisionEntry, list_history
from webhook.core.rollout.state import Phase
from webhook.errors import UserError
from webhook.operations.rollout_facts import NoRolloutError, RolloutFacts
from webhook.operations.rollout_followers import read_shadow
from webhook.operations.stored_policies import StoredPolicies, open_policies
from webhook.support.kubeconfig import Kubeconfig


async def read_history(kubeconfig: Kubeconfig) -> tuple[RevisionEntry, ...]:
    """Return the policies that are kept, the newest first. UserError: no cluster, or no right."""
    async with open_policies(kubeconfig) as policies:
        return _list_entries(await policies.read_facts())


async def read_rollout(kubeconfig: Kubeconfig, servers: Sequence[str]) -> tuple[RolloutDocument, tuple[str, ...]]:
    """Return the rollout, and warnings. UserError: no cluster, no right, or no rollout.

    `servers`: plain ports of servers that are asked for their shadow; without any, those of the cluster.
    """
    async with open_policies(kubeconfig) as policies:
        found, warnings = await _build_rollout(policies, await policies.read_facts())
    return await _add_shadow(found, kubeconfig, servers), warnings


async def read_stored_rollout(kubeconfig: Kubeconfig) -> StoredRollout:
    """Return history and rollout. UserError: no cluster, or no right."""
    async with open_policies(kubeconfig) as policies:
        facts = await policies.read_facts()
        try:
            found, warnings = await _build_rollout(policies, facts)
        except NoRolloutError as error:
            return StoredRollout(_list_entries(facts), None, f"{error}: {error.remedy}")
    return StoredRollout(_list_entries(facts), await _add_shadow(found, kubeconfig, ()), "", warnings)


def _list_entries(facts: RolloutFacts) -> tuple[RevisionEntry, ...]:
    kept = tuple((found.number, found.hash, found.created_at, found.was_in_force) for found in facts.revisions)
    return list_history(HistorySource(kept, facts.wished.hash, facts.in_force, facts.state))


async def _build_rollout(policies: StoredPolicies, facts: RolloutFacts) -> tuple[RolloutDocument, tuple[str, ...]]:
    state, in_force = facts.require_state(), facts.in_force
    stanza: Rollout | None = None
    warnings: tuple[str, ...] = ()
    try:
        stanza = (await policies.load(in_force.stable, facts)).rollout
    except UserError as error:
        warnings = (f"the steps of the rollout are not known: {error}",)
    return RolloutDocument.build(facts.wished.hash, in_force, state, stanza), warnings


async def _add_shadow(found: RolloutDocument, kubeconfig: Kubeconfig, servers: Sequence[str]) -> RolloutDocument:
    is_shadow = found.state.phase is Phase.SHADOW
    return replace(found, shadow=await read_shadow(kubeconfig, servers)) if is_shadow else found
