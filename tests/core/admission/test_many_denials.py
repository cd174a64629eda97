"""Many Pods denied by one open breaker: each message has its own time, though the text is cached for a second."""

import msgspec
import pytest

from tests.core.reviewing import NOW_US, Gate, policy_of
from webhook.core.admission.decision import Half
from webhook.core.breaker import State

LOADED = policy_of("""
- name: web
  match: {namespaces: [shop]}
  quota: {windows: [{window: 1m, hard: {pods: 1}}]}
  breaker: {quotaExceeded: {count: 1, within: 1m}, openFor: 60s, halfOpen: {probes: 1}}
""")


async def build_tripped_gate() -> Gate:
    gate = Gate(LOADED)
    for uid in ("u1", "u2"):
        await gate.validate(object=gate.build_owned_pod(uid))
    gate.store.requests.clear()
    return gate


async def read_denial_message(gate: Gate, uid: str) -> str:
    """Return the message of the response to the API server."""
    answer = await gate.ask(Half.VALIDATE, uid=f"review-{uid}", object=gate.build_owned_pod(uid))
    response = msgspec.json.decode(answer.body)["response"]
    assert (response["uid"], response["status"]["code"]) == (f"review-{uid}", 503)
    message: str = response["status"]["message"]
    return message


async def test_denial_message_is_constant_while_the_breaker_is_open() -> None:
    gate = await build_tripped_gate()
    messages = []
    for passed_us in (0, 0, 999_999, 1_000_000, 59_999_999):
        gate.clock.set(NOW_US + passed_us)
        messages.append(await read_denial_message(gate, f"v{len(messages)}"))
    assert len(set(messages)) == 1
    assert "is open until 2027-01-15T08:01:00.000Z (" in messages[0]
    assert gate.store.requests == []


async def test_second_trip_has_another_denial_message() -> None:
    gate = await build_tripped_gate()
    first = await read_denial_message(gate, "v1")
    plan = gate.compiled.plans["web"]
    gate.clock.set(NOW_US + 61_000_000)
    assert (await gate.validate(object=gate.build_owned_pod("u3"))).allowed, "a probe, which closes the breaker"
    assert not (await gate.validate(object=gate.build_owned_pod("u4"))).allowed
    view = gate.store.find_known_breaker(plan)
    assert (view and view.state) is State.OPEN
    assert (view and view.generation) == 4
    second = await read_denial_message(gate, "v2")
    assert "is open until 2027-01-15T08:02:01.000Z" in second
    assert second != first


@pytest.mark.parametrize("passed_us", [60_000_000, 90_000_000])
async def test_expired_breaker_view_denies_no_pod_without_the_store(passed_us: int) -> None:
    gate = await build_tripped_gate()
    assert "is open until 2027-01-15T08:01:00.000Z" in await read_denial_message(gate, "v1")
    gate.clock.set(NOW_US + passed_us)
    await gate.validate(object=gate.build_owned_pod("u3"))
    assert [request.uid for request in gate.store.requests] == ["u3"]
