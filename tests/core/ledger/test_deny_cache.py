from typing import Any

import pytest
from msgspec.structs import replace

from tests.core.plans import plan_of, window
from webhook.core.breaker import BreakerPlan, BreakerView, QuotaEventPlan, State
from webhook.core.ledger import deny_cache
from webhook.core.ledger.deny_cache import DenyCache
from webhook.core.quota import Acquire, CounterPlan, DeniedBy, Receipt

SECOND_US = 1_000_000
NOW_US = 1_000 * SECOND_US
STORE_US = 7_000 * SECOND_US
"""The store's time: another clock."""

PLAN = plan_of(window(60, pods=5))
DENIED = Receipt(STORE_US, refused=DeniedBy.QUOTA, free_at_us=STORE_US + 10 * SECOND_US)


def acquire_request(
    plan: CounterPlan = PLAN, namespace: str = "shop", source: str = "controller:a", **more: Any
) -> Acquire:
    return Acquire(plan, namespace, more.pop("uid", "u"), more.pop("cost", {"pods": 1}), source, **more)


@pytest.fixture
def cache() -> DenyCache:
    return DenyCache()


def test_denial_is_cached_for_one_second_for_the_same_cost(cache: DenyCache) -> None:
    cache.keep(acquire_request(), DENIED, NOW_US)
    assert cache.find(acquire_request(uid="other"), NOW_US + SECOND_US - 1) == DENIED
    assert cache.find(acquire_request(), NOW_US + SECOND_US) is None
    for cost in ({"pods": 2}, {"pods": 1, "requests.cpu": 1}, {}):
        assert cache.find(acquire_request(cost=cost), NOW_US) is None


def test_denial_is_cached_no_longer_than_its_free_at(cache: DenyCache) -> None:
    cache.keep(acquire_request(), replace(DENIED, free_at_us=STORE_US + 1000), NOW_US)
    assert cache.find(acquire_request(), NOW_US + 999) is not None
    assert cache.find(acquire_request(), NOW_US + 1000) is None


def test_a_late_answer_is_cached_no_longer_than_its_free_at(cache: DenyCache) -> None:
    cache.keep(acquire_request(), replace(DENIED, free_at_us=STORE_US + 1000), NOW_US, late_us=400)
    assert cache.find(acquire_request(), NOW_US + 599) is not None
    assert cache.find(acquire_request(), NOW_US + 600) is None


def test_denial_without_free_at_is_cached_for_one_second(cache: DenyCache) -> None:
    cache.keep(acquire_request(), replace(DENIED, free_at_us=None), NOW_US)
    assert cache.find(acquire_request(), NOW_US + SECOND_US - 1) is not None
    assert cache.find(acquire_request(), NOW_US + SECOND_US) is None


@pytest.mark.parametrize(
    "receipt",
    [
        Receipt(STORE_US, charged=True),
        Receipt(STORE_US, refused=DeniedBy.BREAKER),
        Receipt(STORE_US, would_refuse=(DeniedBy.QUOTA,), charged=True),
        replace(DENIED, breaker=BreakerView(State.OPEN, 1, 0)),
        replace(DENIED, breaker=BreakerView(State.HALF_OPEN, 2, 0)),
    ],
)
def test_only_enforced_quota_denials_are_cached(cache: DenyCache, receipt: Receipt) -> None:
    cache.keep(acquire_request(), receipt, NOW_US)
    assert cache.find(acquire_request(), NOW_US) is None


def test_resizes_bypass_the_cache(cache: DenyCache) -> None:
    cache.keep(acquire_request(resize_from={"pods": 1}), DENIED, NOW_US)
    assert cache.find(acquire_request(), NOW_US) is None
    cache.keep(acquire_request(), DENIED, NOW_US)
    assert cache.find(acquire_request(resize_from={"pods": 1}), NOW_US) is None


def test_refund_or_changed_plan_invalidates_a_denial(cache: DenyCache) -> None:
    cache.keep(acquire_request(), DENIED, NOW_US)
    assert cache.find(acquire_request(plan_of(window(60, pods=6))), NOW_US) is None
    cache.drop("another")
    assert cache.find(acquire_request(), NOW_US) is not None
    cache.drop(PLAN.tag)
    assert cache.find(acquire_request(), NOW_US) is None


def test_denials_are_cached_per_service_and_counted_namespace(cache: DenyCache) -> None:
    per_namespace = replace(PLAN, per_namespace=True)
    cache.keep(acquire_request(per_namespace), DENIED, NOW_US)
    assert cache.find(acquire_request(per_namespace, "shop"), NOW_US) is not None
    assert cache.find(acquire_request(per_namespace, "bank"), NOW_US) is None
    assert cache.find(acquire_request(replace(per_namespace, service="other")), NOW_US) is None
    cache.keep(acquire_request(), DENIED, NOW_US)
    assert cache.find(acquire_request(namespace="bank"), NOW_US) is not None


def test_transitions_of_a_cached_denial_are_reported_once(cache: DenyCache) -> None:
    tripped = replace(DENIED, transitions=(object(),))  # type: ignore[arg-type]
    cache.keep(acquire_request(), tripped, NOW_US)
    found = cache.find(acquire_request(), NOW_US)
    assert found is not None
    assert found.transitions == ()


def breaker_plan(*, by_controller: bool = True) -> BreakerPlan:
    events = QuotaEventPlan(count=10, within_us=60 * SECOND_US, by_controller=by_controller)
    return BreakerPlan(False, None, None, events, SECOND_US, 1, SECOND_US)  # noqa: FBT003


CLOSED = BreakerView(State.CLOSED, 3, 0)


def test_denial_is_not_cached_while_an_event_of_its_controller_is_due(cache: DenyCache) -> None:
    plan = replace(PLAN, breaker=breaker_plan())
    denied = replace(DENIED, breaker=CLOSED)
    cache.keep(acquire_request(plan, source="controller:a"), denied, NOW_US)
    assert cache.find(acquire_request(plan, source="controller:a"), NOW_US) is not None
    assert cache.find(acquire_request(plan, source="controller:b"), NOW_US) is None, "its event must reach the store"
    assert cache.find(acquire_request(plan, source="controller:b", peek=True), NOW_US) is not None, (
        "a dry run is no event"
    )
    # A denial in the last second of the span is no event in the store, so the next event is due when the span ends.
    refreshed_us = NOW_US + 60 * SECOND_US - 1000
    cache.keep(acquire_request(plan, source="controller:a"), denied, refreshed_us)
    assert cache.find(acquire_request(plan, source="controller:a"), refreshed_us + 999) is not None
    assert cache.find(acquire_request(plan, source="controller:a"), refreshed_us + 1000) is None


def test_breaker_transition_discards_counted_events(cache: DenyCache) -> None:
    plan = replace(PLAN, breaker=breaker_plan())
    cache.keep(acquire_request(plan, source="controller:a"), replace(DENIED, breaker=CLOSED), NOW_US)
    transitioned = replace(DENIED, breaker=replace(CLOSED, generation=6))
    cache.keep(acquire_request(plan, source="controller:b"), transitioned, NOW_US)
    assert cache.find(acquire_request(plan, source="controller:a"), NOW_US) is None
    assert cache.find(acquire_request(plan, source="controller:b"), NOW_US) is not None


def test_denial_is_not_cached_if_the_breaker_counts_every_request(cache: DenyCache) -> None:
    plan = replace(PLAN, breaker=breaker_plan(by_controller=False))
    cache.keep(acquire_request(plan), replace(DENIED, breaker=CLOSED), NOW_US)
    assert cache.find(acquire_request(plan), NOW_US) is None


def test_cache_size_is_bounded(cache: DenyCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deny_cache, "ENTRIES_MAX", 8)
    plan = replace(PLAN, breaker=breaker_plan())
    for number in range(100):
        request = acquire_request(plan, source=f"controller:{number}", cost={"pods": number})
        cache.keep(request, replace(DENIED, breaker=CLOSED), NOW_US)
        assert cache.find(request, NOW_US) is not None
        assert sum(map(len, cache.entries.values())) <= 8
        assert sum(map(len, cache._counted.values())) <= 8


def test_sweep_removes_expired_denials(cache: DenyCache) -> None:
    cache.keep(acquire_request(), DENIED, NOW_US)
    cache.sweep(NOW_US + SECOND_US - 1)
    assert cache.find(acquire_request(), NOW_US) is not None
    cache.sweep(NOW_US + SECOND_US)
    assert not cache.entries
