"""Charges for Pods that this replica has denied because the store's answer was late, or never came."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
from msgspec.structs import replace

from tests.core.plans import plan_of, window
from tests.fallback.simulation import ALLOW, DENY, LOCAL, SECOND_US, Simulation
from webhook.core.policy_fields import Mode
from webhook.core.quota import Acquire, Booking, CounterPlan, DeniedBy, Receipt
from webhook.errors import StoreUnavailableError


@pytest.fixture
async def simulation() -> AsyncIterator[Simulation]:
    """No charge without a known time is withdrawn: an hour would have to pass first."""
    simulation = Simulation()
    simulation.guard = simulation.build_guard(paces={"withdraw_after_seconds": 3600})
    yield simulation
    await simulation.guard.close()


async def deny_late(simulation: Simulation, plan: CounterPlan = DENY, uid: str = "a") -> None:
    """Deny a Pod without an answer of the store, which has charged it."""
    simulation.store.late = asyncio.get_running_loop().create_future()
    await simulation.ask_unavailable(plan, uid, admitted=False)


async def wait_turns(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_charge_is_withdrawn_when_the_late_answer_comes(simulation: Simulation) -> None:
    await deny_late(simulation)
    await wait_turns()
    assert await simulation.read_usage(DENY) == [1], "nobody knows yet whether it was charged"
    simulation.store.answer_late()
    await wait_turns()
    assert await simulation.read_usage(DENY) == [0]
    await simulation.wait_until_settled()
    assert simulation.store.withdrawn == ["a"]


async def test_late_answer_without_a_charge_withdraws_nothing(simulation: Simulation) -> None:
    for _ in range(4):
        await simulation.ask(DENY)
    await deny_late(simulation)
    simulation.store.answer_late()
    await simulation.wait_until_settled()
    assert simulation.store.withdrawn == []
    assert await simulation.read_usage(DENY) == [4]


async def test_charge_whose_answer_never_comes_is_withdrawn_after_a_delay(simulation: Simulation) -> None:
    simulation.guard = simulation.build_guard(paces={"withdraw_after_seconds": 0})
    await deny_late(simulation)
    late, simulation.store.late = simulation.store.late, None
    assert late is not None
    late.set_result(None)
    await simulation.wait_until_settled()
    assert simulation.store.withdrawn == ["a"]
    assert await simulation.read_usage(DENY) == [0]


@pytest.mark.parametrize("plan", [LOCAL, ALLOW, replace(DENY, quota_mode=Mode.WARN)], ids=("Local", "Allow", "Warn"))
async def test_charge_of_a_pod_that_the_rule_admits_is_kept(simulation: Simulation, plan: CounterPlan) -> None:
    simulation.store.late = asyncio.get_running_loop().create_future()
    request = simulation.request(plan, "a")
    try:
        assert (await simulation.guard.acquire(request)).charged
    except StoreUnavailableError:
        simulation.guard.book_later(request)
    simulation.store.answer_late()
    await simulation.wait_until_settled()
    assert simulation.store.withdrawn == []
    assert await simulation.read_usage(plan) == [1], "it is charged once"


async def test_charge_is_withdrawn_after_a_denial_by_the_share(simulation: Simulation) -> None:
    for _ in range(4):
        await simulation.ask()
    simulation.store._clock.us += 70 * SECOND_US  # type: ignore[attr-defined]
    simulation.store.late = asyncio.get_running_loop().create_future()
    assert (await simulation.ask(uid="a")).local
    simulation.store.answer_late()
    await simulation.wait_until_settled()
    assert simulation.store.withdrawn == ["a"]
    assert await simulation.read_usage() == [0]


async def test_pod_that_is_admitted_when_it_is_asked_again_stays_charged(simulation: Simulation) -> None:
    await deny_late(simulation)
    late, simulation.store.late = simulation.store.late, None
    assert late is not None
    assert (await simulation.ask(DENY, "a")).repeated
    if not late.done():
        late.set_result(simulation.store.charged_us)
    await simulation.wait_until_settled()
    assert await simulation.read_usage(DENY) == [1]


async def test_pod_that_another_replica_admits_meanwhile_stays_charged(simulation: Simulation) -> None:
    await deny_late(simulation)
    late, simulation.store.late = simulation.store.late, None
    assert late is not None
    assert (await simulation.ask(DENY, "a", guard=simulation.build_guard())).repeated
    late.set_result(simulation.store.charged_us)
    await simulation.wait_until_settled()
    assert simulation.store.withdrawn == ["a"]
    assert await simulation.read_usage(DENY) == [1]


async def test_pod_that_is_admitted_by_the_share_after_its_charge_was_withdrawn_is_booked(
    simulation: Simulation,
) -> None:
    await deny_late(simulation, DENY)
    simulation.store.answer_late()
    await wait_turns()
    simulation.store.failure = "unreachable: refused"
    assert (await simulation.ask(LOCAL, "a")).charged
    simulation.store.failure = ""
    await simulation.wait_until_settled()
    assert await simulation.read_usage() == [1]


async def test_withdrawal_without_an_answer_is_repeated(simulation: Simulation) -> None:
    simulation.guard = simulation.build_guard(paces={"withdraw_after_seconds": 0})
    await deny_late(simulation)
    simulation.store.failure = "unreachable: refused"
    simulation.store.answer_late()
    await wait_turns()
    assert await simulation.read_usage(DENY) == [1]
    simulation.store.failure = ""
    await simulation.wait_until_settled()
    assert await simulation.read_usage(DENY) == [0]


async def test_withdrawn_charge_ends_the_denials_that_it_caused(simulation: Simulation) -> None:
    for _ in range(3):
        await simulation.ask(DENY)
    await deny_late(simulation)
    late, simulation.store.late = simulation.store.late, None
    assert late is not None
    assert (await simulation.ask(DENY)).refused is DeniedBy.QUOTA
    late.set_result(simulation.store.charged_us)
    await wait_turns()
    assert (await simulation.ask(DENY)).charged
    assert simulation.cached == 0


async def test_charge_for_a_caller_that_has_left_is_the_controllers(simulation: Simulation) -> None:
    """Whether the Pod exists only the watch knows: the API server may have ignored the missing answer."""
    holding = asyncio.Event()
    acquire = simulation.store.acquire

    async def hold(request: Acquire) -> Receipt:
        receipt = await acquire(request)
        await holding.wait()
        return receipt

    simulation.store.acquire = hold  # type: ignore[method-assign]
    task = asyncio.create_task(simulation.ask(DENY, "a"))
    await wait_turns()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert (simulation.store.withdrawn, await simulation.read_usage(DENY)) == ([], [1])
    assert [pod.uid for pod in await simulation.store.list_overdue(DENY, 0, 9)] == ["a"]


async def test_closing_replica_withdraws_what_it_knows(simulation: Simulation) -> None:
    await deny_late(simulation)
    simulation.store.answer_late()
    await simulation.guard.close()
    assert await simulation.read_usage(DENY) == [0]


async def test_refund_of_a_pod_that_waits_to_be_booked_withdraws_its_charge(simulation: Simulation) -> None:
    simulation.guard = simulation.build_guard(paces={"withdraw_after_seconds": 0})
    simulation.store.failure = "unreachable: refused"
    receipt = await simulation.ask(uid="a")
    simulation.store.failure = ""
    await simulation.store.book(LOCAL, [Booking("shop", "a", {"pods": 1}, receipt.at_us)])
    assert await simulation.guard.refund(LOCAL, "a")
    await simulation.wait_until_settled()
    assert await simulation.read_usage() == [0]


async def test_services_without_a_quota_give_the_probe_back(simulation: Simulation) -> None:
    plan = plan_of()
    await deny_late(simulation, plan)
    simulation.store.answer_late()
    await simulation.wait_until_settled()
    assert simulation.store.withdrawn == ["a"]
    assert await simulation.store.find_charged_us(simulation.request(plan, "a")) is None


async def test_limits_of_a_window_are_free_again_in_the_next_acquire(simulation: Simulation) -> None:
    plan = replace(DENY, windows=(window(64, pods=1),))
    await deny_late(simulation, plan)
    simulation.store.answer_late()
    await wait_turns()
    assert (await simulation.ask(plan, "b")).charged


async def test_pod_that_another_replica_admits_against_its_cached_denials_stays_charged(simulation: Simulation) -> None:
    for _ in range(3):
        await simulation.ask(DENY)
    await deny_late(simulation)
    late, simulation.store.late = simulation.store.late, None
    assert late is not None
    other = simulation.build_guard()
    assert (await simulation.ask(DENY, guard=other)).refused is DeniedBy.QUOTA
    assert (await simulation.ask(DENY, "a", guard=other)).repeated
    late.set_result(simulation.store.charged_us)
    await simulation.wait_until_settled()
    assert await simulation.read_usage(DENY) == [4]
