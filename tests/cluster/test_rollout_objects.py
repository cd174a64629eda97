"""The rollout's state and the documents of policies, as a real API server keeps them."""

from tests.cluster.controlplane import ControlPlane
from tests.cluster.forwarded_pods import NAMESPACE
from tests.contract.revisions_contract import ONE, OTHER, check_revisions
from webhook.adapters.kubernetes import ConfigMapRolloutStateStore, ControllerRevisions, connect
from webhook.core.rollout.state import Phase, RolloutState


async def test_a_state_is_replaced_only_as_it_was_read(own_api_alone: ControlPlane) -> None:
    own_api_alone.create_namespace(NAMESPACE)
    client = await connect(own_api_alone.kubeconfig)
    try:
        first, second = ConfigMapRolloutStateStore(client), ConfigMapRolloutStateStore(client)
        assert await first.read() is None
        assert await second.read() is None
        state = RolloutState(ONE, governed=True)
        assert await first.write(state)
        assert not await second.write(RolloutState(OTHER))
        assert await second.read() == state
        assert await second.write(RolloutState(ONE, phase=Phase.CANARY, candidate=OTHER))
        assert not await first.write(state)
    finally:
        await client.close()


async def test_documents_are_kept_by_hash_the_newest_first(own_api_alone: ControlPlane) -> None:
    own_api_alone.create_namespace(NAMESPACE)
    client = await connect(own_api_alone.kubeconfig)
    try:
        await check_revisions(ControllerRevisions(client))
    finally:
        await client.close()
