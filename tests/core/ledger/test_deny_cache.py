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


def asked(plan: CounterPlan = PLAN, namespace: str = "shop", source: str = "controller:a", **more: Any) -> Acquire:
    return Acquire(plan, namespace, more.pop("uid", "u"), more.pop("cost", {"pods": 1}), source, **more)


@pytest.fixture
def cache() -> DenyCache:
    return DenyCache()


def test_a_refusal_holds_for_the_same_cost_until_a_second_has_passed(cache: DenyCache) -> None:
    cache.keep(asked(), DENIED, NOW_US)
    assert cache.find(asked(uid="other"), NOW_US + SECOND_US - 1) == DENIED
    assert cache.find(asked(), NOW_US + SECOND_US) is None
    for cost in ({"pods": 2}, {"pods": 1, "requests.cpu": 1}, {}):
        assert cache.find(asked(cost=cost), NOW_US) is None


def test_a_refusal_holds_no_longer_than_until_there_could_be_room(cache: DenyCache) -> None:
    cache.keep(asked(), replace(DENIED, free_at_us=STORE_US + 1000), NOW_US)
    assert cache.find(asked(), NOW_US + 999) is not None
    assert cache.find(asked(), NOW_US + 1000) is None


def test_what_can_never_pass_is_asked_again_after_a_second_too(cache: DenyCache) -> None:
    cache.keep(asked(), replace(DENIED, free_at_us=None), NOW_US)
    assert cache.find(asked(), NOW_US + SECOND_US - 1) is not None
    assert cache.find(asked(), NOW_US + SECOND_US) is None


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
def test_only_an_enforced_refusal_by_quota_alone_is_kept(cache: DenyCache, receipt: Receipt) -> None:
    cache.keep(asked(), receipt, NOW_US)
    assert cache.find(asked(), NOW_US) is None


def test_a_resize_is_neither_kept_nor_answered(cache: DenyCache) -> None:
    cache.keep(asked(resize_from={"pods": 1}), DENIED, NOW_US)
    assert cache.find(asked(), NOW_US) is None
    cache.keep(asked(), DENIED, NOW_US)
    assert cache.find(asked(resize_from={"pods": 1}), NOW_US) is None


def test_a_refund_or_another_plan_ends_it(cache: DenyCache) -> None:
    cache.keep(asked(), DENIED, NOW_US)
    assert cache.find(asked(plan_of(window(60, pods=6))), NOW_US) is None
    cache.drop("another")
    assert cache.find(asked(), NOW_US) is not None
    cache.drop(PLAN.tag)
    assert cache.find(asked(), NOW_US) is None


def test_services_of_a_pool_and_namespaces_that_count_apart_are_kept_apart(cache: DenyCache) -> None:
    apart = replace(PLAN, per_namespace=True)
    cache.keep(asked(apart), DENIED, NOW_US)
    assert cache.find(asked(apart, "shop"), NOW_US) is not None
    assert cache.find(asked(apart, "bank"), NOW_US) is None
    assert cache.find(asked(replace(apart, service="other")), NOW_US) is None
    cache.keep(asked(), DENIED, NOW_US)
    assert cache.find(asked(namespace="bank"), NOW_US) is not None


def test_a_transition_is_reported_once(cache: DenyCache) -> None:
    tripped = replace(DENIED, transitions=(object(),))  # type: ignore[arg-type]
    cache.keep(asked(), tripped, NOW_US)
    found = cache.find(asked(), NOW_US)
    assert found is not None
    assert found.transitions == ()


def breaker(*, by_controller: bool = True) -> BreakerPlan:
    events = QuotaEventPlan(count=10, within_us=60 * SECOND_US, by_controller=by_controller)
    return BreakerPlan(False, None, None, events, SECOND_US, 1, SECOND_US)  # noqa: FBT003


CLOSED = BreakerView(State.CLOSED, 3, 0)


def test_a_breaker_counts_of_each_controller_once_in_its_span(cache: DenyCache) -> None:
    plan = replace(PLAN, breaker=breaker())
    denied = replace(DENIED, breaker=CLOSED)
    cache.keep(asked(plan, source="controller:a"), denied, NOW_US)
    assert cache.find(asked(plan, source="controller:a"), NOW_US) is not None
    assert cache.find(asked(plan, source="controller:b"), NOW_US) is None, "its event must reach the store"
    assert cache.find(asked(plan, source="controller:b", peek=True), NOW_US) is not None, "a dry run is no event"
    # Asked again in the last second of the span: that is no event there, so the next one is due when the span ends.
    late_us = NOW_US + 60 * SECOND_US - 1000
    cache.keep(asked(plan, source="controller:a"), denied, late_us)
    assert cache.find(asked(plan, source="controller:a"), late_us + 999) is not None
    assert cache.find(asked(plan, source="controller:a"), late_us + 1000) is None


def test_a_breaker_that_moved_has_forgotten_its_events(cache: DenyCache) -> None:
    plan = replace(PLAN, breaker=breaker())
    cache.keep(asked(plan, source="controller:a"), replace(DENIED, breaker=CLOSED), NOW_US)
    moved = replace(DENIED, breaker=replace(CLOSED, generation=6))
    cache.keep(asked(plan, source="controller:b"), moved, NOW_US)
    assert cache.find(asked(plan, source="controller:a"), NOW_US) is None
    assert cache.find(asked(plan, source="controller:b"), NOW_US) is not None


def test_a_breaker_that_counts_requests_counts_of_each(cache: DenyCache) -> None:
    plan = replace(PLAN, breaker=breaker(by_controller=False))
    cache.keep(asked(plan), replace(DENIED, breaker=CLOSED), NOW_US)
    assert cache.find(asked(plan), NOW_US) is None


def test_it_does_not_grow_beyond_its_bound(cache: DenyCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deny_cache, "ENTRIES_MAX", 8)
    plan = replace(PLAN, breaker=breaker())
    for number in range(100):
        one = asked(plan, source=f"controller:{number}", cost={"pods": number})
        cache.keep(one, replace(DENIED, breaker=CLOSED), NOW_US)
        assert cache.find(one, NOW_US) is not None
        assert sum(map(len, cache._entries.values())) <= 8
        assert sum(map(len, cache._counted.values())) <= 8


def test_what_no_longer_holds_is_swept(cache: DenyCache) -> None:
    cache.keep(asked(), DENIED, NOW_US)
    cache.sweep(NOW_US + SECOND_US - 1)
    assert cache.find(asked(), NOW_US) is not None
    cache.sweep(NOW_US + SECOND_US)
    assert not cache._entries
