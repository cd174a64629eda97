"""The rollout's state and the documents of policies, as a real API server keeps them."""

from collections.abc import Iterator

import pytest

from tests.cluster.admission_configuration import NAMESPACE
from tests.cluster.controlplane import ControlPlane
from tests.cluster.rollout_history import delete_history
from tests.contract.revisions_contract import check_revisions
from tests.contract.rollout_states_contract import check_states
from webhook.adapters.kubernetes import ConfigMapRolloutStateStore, ControllerRevisions, connect


@pytest.fixture
def plane(api_alone: ControlPlane) -> Iterator[ControlPlane]:
    """Yield an API server on which nothing of a rollout is kept, neither before nor after the test."""
    api_alone.create_namespace(NAMESPACE)
    delete_history(api_alone)
    yield api_alone
    delete_history(api_alone)


async def test_a_state_is_replaced_only_as_it_was_read(plane: ControlPlane) -> None:
    client = await connect(plane.kubeconfig)
    try:
        await check_states(ConfigMapRolloutStateStore(client), ConfigMapRolloutStateStore(client))
    finally:
        await client.close()


async def test_documents_are_kept_by_hash_the_newest_first(plane: ControlPlane) -> None:
    client = await connect(plane.kubeconfig)
    try:
        await check_revisions(ControllerRevisions(client))
    finally:
        await client.close()
