"""Whole reviews at an open breaker: denials without the store, and decisions of the store."""

import pytest
from msgspec.structs import replace

from tests.core.reviewing import ALICE, NOW_US, REPLICA_SETS, Gate, policy_of
from tests.core.strategies import Json
from webhook.adapters.clocks import VirtualClock
from webhook.core.admission.decision import Decision
from webhook.core.breaker import Forcing, State
from webhook.core.findings import Code
from webhook.core.policy.model import LoadedPolicy
from webhook.core.policy_spec import Mode, WhenOpen

LOADED = policy_of("""
- name: web
  match: {namespaces: [shop]}
  quota: {windows: [{window: 1m, hard: {cpu: "4"}}]}
  breaker: {quotaExceeded: {count: 2, within: 1m}, openFor: 60s, halfOpen: {probes: 2}}
""")


def asking(gate: Gate, uid: str, controller: str, cpu: str = "1") -> Json:
    sent = gate.owned(uid, containers=[{"name": "c", "resources": {"requests": {"cpu": cpu}}}])
    sent["metadata"]["ownerReferences"] = [{"kind": "ReplicaSet", "name": "r", "uid": controller, "controller": True}]
    return sent


async def asked(gate: Gate, uid: str, controller: str, user: str = REPLICA_SETS, **more: str) -> Decision:
    return await gate.validate(object=asking(gate, uid, controller, **more), userInfo={"username": user})


async def tripped(loaded: LoadedPolicy = LOADED) -> Gate:
    """Return a gate whose breaker was tripped by the controllers r1 and r2, which ask for more than there ever is."""
    gate = Gate(loaded)
    for controller in ("r1", "r2"):
        refused = await asked(gate, f"big-{controller}", controller, cpu="5")
        assert not refused.allowed
    gate.store.asked.clear()
    return gate


def changed(
    mode: Mode = Mode.ENFORCE, when_open: WhenOpen = WhenOpen.DENY, forcing: Forcing | None = None
) -> LoadedPolicy:
    [web] = LOADED.policy.services
    assert web.breaker is not None
    modes, breaker = replace(web.modes, breaker=mode), replace(web.breaker, when_open=when_open)
    services = (replace(web, modes=modes, breaker=breaker),)
    return LoadedPolicy(replace(LOADED.policy, services=services), LOADED.hash, {"web": forcing} if forcing else {})


@pytest.mark.parametrize(("controller", "user"), [("r1", REPLICA_SETS), ("r3", ALICE)])
async def test_who_failed_or_is_no_controller_is_refused_at_once(controller: str, user: str) -> None:
    gate = await tripped()
    decision = await asked(gate, "u", controller, user)
    assert (decision.status.code, gate.store.asked) == (503, [])
    assert [finding.code for finding in decision.findings] == [Code.BREAKER_OPEN]


async def test_its_end_is_by_the_time_of_the_store() -> None:
    gate = Gate(LOADED)
    gate.store._clock = VirtualClock(NOW_US + 3_600_000_000)  # type: ignore[assignment]  # an hour before this replica's
    for controller in ("r1", "r2"):
        await asked(gate, f"big-{controller}", controller, cpu="5")
    decision = await asked(gate, "u", "r1")
    assert "is open until 2027-01-15T09:01:00.000Z" in decision.status.message


async def test_a_controller_without_a_part_in_the_failures_probes_early_and_closes_the_breaker() -> None:
    gate = await tripped()
    first = await asked(gate, "u1", "r3")
    assert first.allowed
    second = await asked(gate, "u2", "r3")
    assert second.receipt is not None
    assert [(str(move.old), str(move.new)) for move in second.receipt.transitions] == [("OPEN", "CLOSED")]
    assert (await asked(gate, "u3", "r1")).allowed


async def test_where_no_early_probe_is_left_all_are_refused_at_once() -> None:
    gate = await tripped()
    plan = gate.compiled.plans["web"]
    view = gate.store.known_breaker(plan)
    assert view is not None
    gate.store.known_breaker = lambda _: replace(view, early=0, failed=())  # type: ignore[method-assign]  # all are out
    decision = await asked(gate, "u", "r3")
    assert (decision.allowed, gate.store.asked) == (False, [])


async def test_one_opened_manually_refuses_everybody_also_a_controller_without_a_part() -> None:
    gate = Gate(changed(forcing=Forcing(State.FORCED_OPEN, NOW_US + 60_000_000, "INC-1")))
    assert not (await asked(gate, "s", "r3")).allowed, "the store says so, too, before anybody knows"
    gate.store.asked.clear()
    decision = await asked(gate, "u", "r3")
    assert (decision.status.code, gate.store.asked) == (503, [])
    assert "was forced open until 2027-01-15T08:01:00.000Z" in decision.status.message
    gate.clock.set(NOW_US + 60_000_000)
    assert (await asked(gate, "v", "r3")).allowed, "its time has passed, whoever notices"


async def test_one_closed_manually_admits_whom_it_would_refuse() -> None:
    gate = Gate(changed(forcing=Forcing(State.FORCED_CLOSED, NOW_US + 60_000_000, "INC-1")))
    for number in range(4):
        assert (await asked(gate, f"big-{number}", f"r{number}", cpu="5")).status.code == 429
    assert (await asked(gate, "u", "r1")).allowed


@pytest.mark.parametrize("mode", [Mode.WARN, Mode.AUDIT])
async def test_one_that_is_not_enforced_refuses_nobody_and_says_what_it_would_do(mode: Mode) -> None:
    gate = await tripped(changed(mode))
    decision = await asked(gate, "u", "r1")
    assert decision.allowed
    assert [(finding.code, finding.mode) for finding in decision.findings] == [(Code.BREAKER_OPEN, mode)]


async def test_one_that_degrades_refuses_nobody() -> None:
    gate = await tripped(changed(when_open=WhenOpen.DEGRADE))
    decision = await asked(gate, "u", "r1")
    assert (decision.allowed, decision.findings) == (True, ())
