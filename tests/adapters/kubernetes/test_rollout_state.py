"""The rollout's state as it is watched: changes arrive in order, and what was read holds while nothing can be read."""

from typing import Any

import pytest

from tests.adapters.kubernetes.watching import Loops, Reported
from tests.harness.fake_apiserver import CONFIGMAPS, FakeApiServer, hang, refuse, wait_until
from webhook.adapters.kubernetes import ApiTiming, ConfigMapRolloutState
from webhook.core.document.configmap import ROLLOUT_STATE, ROLLOUT_STATE_KEY
from webhook.core.rollout.state import RolloutState, encode_state

QUICK = ApiTiming(first_pause_seconds=0.001, pause_seconds_max=0.01, cool_down_seconds=0, refresh_seconds=0.2)
FIRST, SECOND, THIRD = (RolloutState(digit * 16, governed=True) for digit in "abc")


class Followed(Reported):
    """The state behind a fake API server, and what its receiver was told."""

    def __init__(self, fake: FakeApiServer, client: Any, loops: Loops) -> None:
        super().__init__()
        self.fake = fake
        self.states: list[RolloutState | None] = []
        self.unreadable: list[str] = []
        self.source = ConfigMapRolloutState(client, self, reports=self.reports, timing=QUICK)
        self._loops = loops

    async def on_state(self, state: RolloutState | None) -> None:
        self.states.append(state)

    async def on_unreadable_state(self, reason: str) -> None:
        self.unreadable.append(reason)

    def write(self, text: str) -> None:
        self.fake.put(CONFIGMAPS, ROLLOUT_STATE, data={ROLLOUT_STATE_KEY: text})

    async def start_watching(self) -> None:
        self._loops.start(self.source.run())
        await wait_until(lambda: len(self.fake.watching) == 1)


@pytest.fixture
def followed(fake: FakeApiServer, client: Any, loops: Loops) -> Followed:
    return Followed(fake, client, loops)


async def test_each_change_arrives_and_so_does_the_end(followed: Followed) -> None:
    await followed.start_watching()
    followed.write(encode_state(FIRST))
    followed.write(encode_state(SECOND))
    followed.fake.remove(CONFIGMAPS, ROLLOUT_STATE)
    await wait_until(lambda: len(followed.states) == 4)
    assert followed.states == [None, FIRST, SECOND, None]


async def test_a_late_event_does_not_undo_a_refresh(followed: Followed) -> None:
    followed.write(encode_state(FIRST))
    await followed.start_watching()
    late = dict(followed.fake.find_stored(CONFIGMAPS, ROLLOUT_STATE) or {})
    [watch] = followed.fake.watching
    followed.fake.watching.clear()  # the watch lags behind
    followed.write(encode_state(SECOND))
    followed.write(encode_state(THIRD))
    await followed.source.refresh()
    contacts = followed.contacts
    late["metadata"] = {**late["metadata"], "resourceVersion": str(followed.fake.revision - 1)}
    watch.offer(followed.fake.revision - 1, "MODIFIED", CONFIGMAPS, late)
    await wait_until(lambda: followed.contacts > contacts)
    assert followed.states == [FIRST, THIRD]


async def test_a_state_that_was_never_read_is_unreadable_and_the_right_is_named(followed: Followed) -> None:
    followed.fake.fail_next("list", refuse(403, "no"))
    await followed.source.refresh()
    [reason] = followed.unreadable
    assert "grant the right to list and watch configmaps named podgate-policy-state in podgate-system" in reason
    assert followed.troubles == [reason]
    await followed.source.refresh()
    assert (followed.states, followed.overs) == ([None], [reason])


async def test_what_was_read_holds_while_the_api_server_is_away(followed: Followed) -> None:
    followed.write(encode_state(FIRST))
    await followed.source.refresh()
    followed.fake.fail_next("list", refuse(500), hang)
    for _ in range(2):
        await followed.source.refresh()
    assert (followed.states, followed.unreadable) == ([FIRST], [])
    assert len(followed.troubles) == 2


async def test_a_state_that_cannot_be_decoded_names_field_and_remedy(followed: Followed) -> None:
    await followed.start_watching()
    followed.write('{"stable": 7}')
    await wait_until(lambda: bool(followed.unreadable))
    [reason] = followed.unreadable
    assert reason.startswith("configmap podgate-system/podgate-policy-state: data['state.json']: ")
    assert "$.stable" in reason
    assert reason.endswith("the leader begins a new one")
