"""Contract of `ports.RolloutStateStore`."""

from tests.contract.revisions_contract import ONE, OTHER
from webhook.core.rollout.state import Phase, RolloutState
from webhook.ports import RolloutStateStore


async def check_states(first: RolloutStateStore, second: RolloutStateStore) -> None:
    """Two stores of one state: it is replaced only as it was read."""
    assert await first.read() is None
    assert await second.read() is None
    state = RolloutState(ONE, governed=True)
    assert await first.write(state)
    assert not await second.write(RolloutState(OTHER))
    assert await second.read() == state
    assert await second.write(RolloutState(ONE, phase=Phase.CANARY, candidate=OTHER))
    assert not await first.write(state)
