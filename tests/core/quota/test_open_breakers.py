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
from webhook.core.policy_fields import Mode, WhenOpen

LOADED = policy_of("""
- name: web
  match: {namespaces: [shop]}
  quota: {windows: [{window: 1m, hard: {cpu: "4"}}]}
  breaker: {quotaExceeded: {count: 2, within: 1m}, openFor: 60s, halfOpen: {probes: 2}}
""")


def build_pod(gate: Gate, uid: str, controller: str, cpu: str = "1") -> Json:
    pod = gate.build_owned_pod(uid, containers=[{"name": "c", "resources": {"requests": {"cpu": cpu}}}])
    pod["metadata"]["ownerReferences"] = [{"kind": "ReplicaSet", "name": "r", "uid": controller, "controller": True}]
    return pod


async def validate_pod(gate: Gate, uid: str, controller: str, user: str = REPLICA_SETS, **more: str) -> Decision:
    return await gate.validate(object=build_pod(gate, uid, controller, **more), userInfo={"username": user})


async def build_tripped_gate(loaded: LoadedPolicy = LOADED) -> Gate:
    """Return a gate whose breaker was tripped by the controllers r1 and r2, whose Pods exceed the limit."""
    gate = Gate(loaded)
    for controller in ("r1", "r2"):
        denied = await validate_pod(gate, f"big-{controller}", controller, cpu="5")
        assert not denied.allowed
    gate.store.requests.clear()
    return gate


def change_policy(
    mode: Mode = Mode.ENFORCE, when_open: WhenOpen = WhenOpen.DENY, forcing: Forcing | None = None
) -> LoadedPolicy:
    [web] = LOADED.policy.services
    assert web.breaker is not None
    modes, breaker = replace(web.modes, breaker=mode), replace(web.breaker, when_open=when_open)
    services = (replace(web, modes=modes, breaker=breaker),)
    return LoadedPolicy(replace(LOADED.policy, services=services), LOADED.hash, {"web": forcing} if forcing else {})


@pytest.mark.parametrize(("controller", "user"), [("r1", REPLICA_SETS), ("r3", ALICE)])
async def test_open_breaker_denies_failed_controllers_and_users_without_the_store(controller: str, user: str) -> None:
    gate = await build_tripped_gate()
    decision = await validate_pod(gate, "u", controller, user)
    assert (decision.status.code, gate.store.requests) == (503, [])
    assert [finding.code for finding in decision.findings] == [Code.BREAKER_OPEN]


async def test_end_of_an_open_breaker_is_in_the_time_of_the_store() -> None:
    gate = Gate(LOADED)
    gate.store._clock = VirtualClock(NOW_US + 3_600_000_000)  # type: ignore[assignment]  # an hour ahead of this replica
    for controller in ("r1", "r2"):
        await validate_pod(gate, f"big-{controller}", controller, cpu="5")
    decision = await validate_pod(gate, "u", "r1")
    assert "is open until 2027-01-15T09:01:00.000Z" in decision.status.message


async def test_controller_that_has_not_failed_probes_early_and_closes_the_breaker() -> None:
    gate = await build_tripped_gate()
    first = await validate_pod(gate, "u1", "r3")
    assert first.allowed
    second = await validate_pod(gate, "u2", "r3")
    assert second.charge.receipt is not None
    assert [(str(move.old), str(move.new)) for move in second.charge.receipt.transitions] == [("OPEN", "CLOSED")]
    assert (await validate_pod(gate, "u3", "r1")).allowed


async def test_without_early_probes_every_controller_is_denied_without_the_store() -> None:
    gate = await build_tripped_gate()
    plan = gate.compiled.plans["web"]
    view = gate.store.find_known_breaker(plan)
    assert view is not None
    gate.store.find_known_breaker = lambda _: replace(view, early=0, failed=())  # type: ignore[method-assign]  # all probes are leased
    decision = await validate_pod(gate, "u", "r3")
    assert (decision.allowed, gate.store.requests) == (False, [])


async def test_forced_open_breaker_denies_every_controller_until_its_end() -> None:
    gate = Gate(change_policy(forcing=Forcing(State.FORCED_OPEN, NOW_US + 60_000_000, "INC-1")))
    assert not (await validate_pod(gate, "s", "r3")).allowed, "the store denies it before the state is cached"
    gate.store.requests.clear()
    decision = await validate_pod(gate, "u", "r3")
    assert (decision.status.code, gate.store.requests) == (503, [])
    assert "was forced open until 2027-01-15T08:01:00.000Z" in decision.status.message
    gate.clock.set(NOW_US + 60_000_000)
    assert (await validate_pod(gate, "v", "r3")).allowed, "the forcing has expired"


async def test_forced_closed_breaker_admits_failed_controllers() -> None:
    gate = Gate(change_policy(forcing=Forcing(State.FORCED_CLOSED, NOW_US + 60_000_000, "INC-1")))
    for number in range(4):
        assert (await validate_pod(gate, f"big-{number}", f"r{number}", cpu="5")).status.code == 429
    assert (await validate_pod(gate, "u", "r1")).allowed


@pytest.mark.parametrize("mode", [Mode.WARN, Mode.AUDIT])
async def test_unenforced_breaker_denies_no_pod_and_reports_a_finding(mode: Mode) -> None:
    gate = await build_tripped_gate(change_policy(mode))
    decision = await validate_pod(gate, "u", "r1")
    assert decision.allowed
    assert [(finding.code, finding.mode) for finding in decision.findings] == [(Code.BREAKER_OPEN, mode)]


async def test_degrading_breaker_denies_no_pod() -> None:
    gate = await build_tripped_gate(change_policy(when_open=WhenOpen.DEGRADE))
    decision = await validate_pod(gate, "u", "r1")
    assert (decision.allowed, decision.findings) == (True, ())
