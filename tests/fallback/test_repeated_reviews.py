"""A Pod that is reviewed again while the store gives no answer: what this replica has admitted it admits again."""

from collections.abc import AsyncIterator, Callable

import pytest
from msgspec.structs import replace

from tests.core.plans import plan_of, window
from tests.fallback.simulation import ALLOW, DENY, LOCAL, NO_QUOTA, SECOND_US, Simulation
from webhook.core.breaker import BreakerPlan, ErrorRatePlan
from webhook.core.breaker.outcome_types import Outcomes
from webhook.core.quota import CounterPlan, DeniedBy
from webhook.errors import StoreUnavailableError
from webhook.fallback import recent_admissions

RULES = pytest.mark.parametrize("plan", [LOCAL, ALLOW, DENY, NO_QUOTA], ids=("Local", "Allow", "Deny", "failureMode"))
LARGER = {"pods": 1, "requests.cpu": 100}


@pytest.fixture
async def simulation() -> AsyncIterator[Simulation]:
    simulation = Simulation()
    yield simulation
    await simulation.guard.close()


@RULES
async def test_admitted_pod_is_admitted_again_by_each_rule(simulation: Simulation, plan: CounterPlan) -> None:
    await simulation.ask(plan, "a")
    simulation.store.failure = "unreachable: refused"
    receipt = await simulation.ask(plan, "a")
    assert (receipt.refused, receipt.repeated, receipt.charged) == (None, True, False)
    simulation.store.failure = ""
    await simulation.wait_until_settled()
    assert simulation.booked == []
    assert (await simulation.ask(plan, "a")).repeated


@RULES
async def test_pod_that_another_replica_has_charged_is_admitted_again(
    simulation: Simulation, plan: CounterPlan
) -> None:
    plan = replace(plan, windows=plan.windows and (window(64, pods=1),))
    await simulation.ask(plan, "a", guard=simulation.build_guard())
    assert (await simulation.ask(plan, "a")).repeated
    simulation.store.failure = "unreachable: refused"
    assert (await simulation.ask(plan, "a")).repeated


async def test_pod_that_the_store_has_confirmed_against_a_cached_denial_is_admitted_again(
    simulation: Simulation,
) -> None:
    for uid in "abcd":
        await simulation.ask(DENY, uid, guard=simulation.build_guard())
    assert (await simulation.ask(DENY)).refused is DeniedBy.QUOTA
    assert (await simulation.ask(DENY, "a")).repeated
    simulation.store.failure = "unreachable: refused"
    assert (await simulation.ask(DENY, "a")).repeated


async def test_late_answer_does_not_deny_an_admitted_pod(simulation: Simulation) -> None:
    await simulation.ask(DENY, "a")
    simulation.store.drops_answers = True
    assert (await simulation.ask(DENY, "a")).repeated
    simulation.store.drops_answers = False
    await simulation.wait_until_settled()
    assert simulation.store.withdrawn == []
    assert await simulation.read_usage(DENY) == [1]


@pytest.mark.parametrize(
    "change",
    [
        lambda request: replace(request, cost=LARGER),
        lambda request: replace(request, namespace="elsewhere"),
        lambda request: replace(request, plan=replace(DENY, service="other")),
        lambda request: replace(request, cost=LARGER, resize_from=request.cost),
        lambda request: replace(request, resize_from=request.cost),
    ],
    ids=("cost", "namespace", "service", "resize", "resize to the same"),
)
@pytest.mark.parametrize("is_confirmed", [False, True], ids=("charged", "confirmed"))
async def test_changed_pod_is_not_admitted_by_its_former_review(
    simulation: Simulation, change: Callable[[object], object], *, is_confirmed: bool
) -> None:
    if is_confirmed:
        await simulation.ask(DENY, "a", guard=simulation.build_guard())
    request = simulation.request(DENY, "a")
    await simulation.guard.acquire(request)
    simulation.store.failure = "unreachable: refused"
    with pytest.raises(StoreUnavailableError):
        await simulation.guard.acquire(change(request))  # type: ignore[arg-type]
    assert (await simulation.guard.acquire(request)).repeated


async def test_changed_pod_must_fit_the_share_under_local(simulation: Simulation) -> None:
    plan = plan_of(window(64, pods=9, cpu=50))
    await simulation.ask(plan, "a")
    simulation.store.failure = "unreachable: refused"
    assert (await simulation.ask(plan, "a", cost=LARGER)).refused is DeniedBy.QUOTA
    assert (await simulation.ask(plan, "a")).repeated


@pytest.mark.parametrize("is_confirmed", [False, True], ids=("charged", "confirmed"))
async def test_admission_is_remembered_for_a_minute(simulation: Simulation, *, is_confirmed: bool) -> None:
    if is_confirmed:
        await simulation.ask(DENY, "a", guard=simulation.build_guard())
    await simulation.ask(DENY, "a")
    simulation.sleep(60)
    await simulation.guard.tick([DENY])
    simulation.store.failure = "unreachable: refused"
    assert (await simulation.ask(DENY, "a")).repeated
    simulation.store.failure = ""
    simulation.sleep(1)
    await simulation.guard.tick([DENY])
    simulation.store.failure = "unreachable: refused"
    await simulation.ask_unavailable(DENY, "a", admitted=False)


async def test_refunded_pod_is_not_admitted_again(simulation: Simulation) -> None:
    await simulation.ask(DENY, "a", guard=simulation.build_guard())
    await simulation.ask(DENY, "a")
    await simulation.guard.refund(DENY, "a")
    simulation.store.failure = "unreachable: refused"
    await simulation.ask_unavailable(DENY, "a", admitted=False)


@pytest.mark.parametrize("is_looked_up", [False, True], ids=("judged", "looked up"))
async def test_pod_that_another_replica_has_charged_is_booked_again_at_its_own_time_after_a_loss(
    simulation: Simulation, *, is_looked_up: bool
) -> None:
    """Its replica may have ended meanwhile."""
    charged = await simulation.ask(DENY, "a", guard=simulation.build_guard())
    if is_looked_up:
        for uid in "bcd":
            await simulation.ask(DENY, uid, guard=simulation.build_guard())
        assert (await simulation.ask(DENY)).refused is DeniedBy.QUOTA, "a cached denial"
    simulation.sleep(20)
    assert (await simulation.ask(DENY, "a")).charged_us == charged.at_us
    simulation.store.forget_all()
    simulation.guard.on_loss()
    await simulation.wait_until_settled()
    assert (await simulation.ask(DENY, "a", guard=simulation.build_guard())).charged_us == charged.at_us


async def test_pod_that_was_charged_more_than_a_minute_ago_is_not_booked_again(simulation: Simulation) -> None:
    await simulation.ask(DENY, "a", guard=simulation.build_guard())
    simulation.sleep(61)
    assert (await simulation.ask(DENY, "a")).repeated
    await simulation.guard.tick([DENY])
    simulation.store.forget_all()
    simulation.guard.on_loss()
    await simulation.wait_until_settled()
    assert await simulation.read_usage(DENY) == [0]


async def test_admitted_pod_is_admitted_again_while_the_breaker_is_open(simulation: Simulation) -> None:
    rate = ErrorRatePlan(percent=95, interval_us=SECOND_US, consecutive=1, minimum=1)
    breaker = BreakerPlan(True, rate, None, None, 60 * SECOND_US, 1, SECOND_US)  # noqa: FBT003
    plan = replace(DENY, breaker=breaker)
    await simulation.ask(plan, "a")
    simulation.store.failure = "unreachable: refused"
    await simulation.guard.record_outcomes(plan, [Outcomes(0, 1, 0)])
    simulation.sleep(3)
    assert (await simulation.ask(plan, "b")).refused is DeniedBy.BREAKER
    assert (await simulation.ask(plan, "a")).repeated


async def test_confirmed_pods_are_bounded(simulation: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_admissions, "CONFIRMED_MAX", 2)
    for uid in "abc":
        await simulation.ask(DENY, uid, guard=simulation.build_guard())
        await simulation.ask(DENY, uid)
    simulation.store.failure = "unreachable: refused"
    await simulation.ask_unavailable(DENY, "a", admitted=False)
    assert [(await simulation.ask(DENY, uid)).repeated for uid in "bc"] == [True, True]
