"""The rollout's state and the documents of policies, as a real API server keeps them."""

from tests.cluster.controlplane import ControlPlane
from tests.cluster.forwarded_pods import NAMESPACE
from tests.contract.revisions_contract import check_revisions
from tests.contract.rollout_states_contract import check_states
from webhook.adapters.kubernetes import ConfigMapRolloutStateStore, ControllerRevisions, connect


async def test_a_state_is_replaced_only_as_it_was_read(own_api_alone: ControlPlane) -> None:
    own_api_alone.create_namespace(NAMESPACE)
    client = await connect(own_api_alone.kubeconfig)
    try:
        await check_states(ConfigMapRolloutStateStore(client), ConfigMapRolloutStateStore(client))
    finally:
        await client.close()


async def test_documents_are_kept_by_hash_the_newest_first(own_api_alone: ControlPlane) -> None:
    own_api_alone.create_namespace(NAMESPACE)
    client = await connect(own_api_alone.kubeconfig)
    try:
        await check_revisions(ControllerRevisions(client))
    finally:
        await client.close()
