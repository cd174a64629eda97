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


async def tripped() -> Gate:
    gate = Gate(LOADED)
    for uid in ("u1", "u2"):
        await gate.validate(object=gate.owned(uid))
    gate.store.asked.clear()
    return gate


async def told(gate: Gate, uid: str) -> str:
    """Return what the API server is told in its answer."""
    answer = await gate.ask(Half.VALIDATE, uid=f"review-{uid}", object=gate.owned(uid))
    response = msgspec.json.decode(answer.body)["response"]
    assert (response["uid"], response["status"]["code"]) == (f"review-{uid}", 503)
    said: str = response["status"]["message"]
    return said


async def test_the_text_is_the_same_all_through_the_countdown_so_that_events_are_counted() -> None:
    gate = await tripped()
    found = []
    for passed_us in (0, 0, 999_999, 1_000_000, 59_999_999):
        gate.clock.set(NOW_US + passed_us)
        found.append(await told(gate, f"v{len(found)}"))
    assert len(set(found)) == 1
    assert "is open until 2027-01-15T08:01:00.000Z (" in found[0]
    assert gate.store.asked == []


async def test_a_second_trip_is_reported_in_its_own_words() -> None:
    gate = await tripped()
    first = await told(gate, "v1")
    plan = gate.compiled.plans["web"]
    gate.clock.set(NOW_US + 61_000_000)
    assert (await gate.validate(object=gate.owned("u3"))).allowed, "a probe, which closes it"
    assert not (await gate.validate(object=gate.owned("u4"))).allowed
    view = gate.store.known_breaker(plan)
    assert (view and view.state) is State.OPEN
    assert (view and view.generation) == 4
    second = await told(gate, "v2")
    assert "is open until 2027-01-15T08:02:01.000Z" in second
    assert second != first


@pytest.mark.parametrize("passed_us", [60_000_000, 90_000_000])
async def test_nobody_is_refused_by_what_was_known_when_its_time_has_passed(passed_us: int) -> None:
    gate = await tripped()
    assert "is open until 2027-01-15T08:01:00.000Z" in await told(gate, "v1")
    gate.clock.set(NOW_US + passed_us)
    await gate.validate(object=gate.owned("u3"))
    assert [request.uid for request in gate.store.asked] == ["u3"]
