"""What the ledger keeps, and for how long: live Pods of pools, resets, uses of members; and moments after a rebase."""

from itertools import count

import pytest
from msgspec.structs import replace

from tests.core.ledger.operations import BREAKER
from tests.core.plans import plan_of, standing, window
from tests.core.watched_pods import MINUTE_US, NOW_US, ONE, SECOND_US, WatchedService
from webhook.core.breaker import BreakerView, State
from webhook.core.breaker.outcome_types import Outcomes
from webhook.core.ledger import breaker_operations, member_uses, store_time
from webhook.core.ledger.live_set import IDLE_US
from webhook.core.ledger.member_uses import MemberUses
from webhook.core.ledger.pool_live_set import PoolLiveSet
from webhook.core.ledger.store_time import TagClock
from webhook.core.ledger.tag_state import LONG_US, RESET_US, TagState
from webhook.core.quota import (
    HOUR_US,
    GuaranteeUse,
    Holder,
    Limit,
    LimitGuarantees,
    PoolPlan,
    Use,
    WindowPlan,
)
from webhook.core.quota.guarantees import GuaranteedWindow

LIVE = WindowPlan("standing", 0, (Limit("pods", "pods", 9),))
POOLED = plan_of(service="web", tag="prod", pool=PoolPlan("prod", (), LIVE))
VIEW = BreakerView(State.OPEN, 3, 50 * SECOND_US, 60 * SECOND_US, tripped_at_us=40 * SECOND_US)


def test_live_pods_of_an_idle_pool_are_swept() -> None:
    service = WatchedService(POOLED)
    service.observe("a")
    swept_us = service.now_us + IDLE_US + LONG_US
    assert not service.state.sweep(swept_us - 1)
    assert len(service.state.live_pods.list_of_pool(POOLED, service.now_us)) == 1
    assert service.state.sweep(swept_us)
    assert service.state.live_pods.list_of_pool(POOLED, service.now_us) == []


def test_a_live_pod_whose_record_has_expired_is_live_once() -> None:
    service = WatchedService(plan_of(window(3600, pods=9), standing=standing(pods=9), remember_us=SECOND_US))
    service.ask("a")
    service.now_us += SECOND_US
    receipt = service.ask("a")
    assert (receipt.charged, receipt.used) == (True, (2, 1)), "it is charged again, and lives once"


def test_a_pool_without_limits_on_live_pods_counts_none() -> None:
    live = PoolLiveSet()
    assert not live.put_for("web", PoolPlan("prod", ()), "a", ONE, 1)
    assert (list(live.items()), live.touched_us, "a" in live) == ([], 0, False)
    assert live.list_uses_of_pool(PoolPlan("prod", ())) == ()


def test_a_service_that_remembers_for_long_keeps_no_records_of_others() -> None:
    long = replace(plan_of(window(60, pods=9999)), service="batch", remember_us=24 * HOUR_US)
    short = replace(long, service="web", remember_us=HOUR_US)
    batch, web = WatchedService(long), WatchedService(short)
    web.state = batch.state
    for minute in range(24 * 60):
        batch.now_us = web.now_us = NOW_US + minute * MINUTE_US
        if minute % 120 == 0:
            batch.ask(f"batch-{minute}")
        web.ask(f"web-{minute}")
        web.state.sweep(web.now_us)
        assert len(web.state._pods) <= 12 + 60 + LONG_US // MINUTE_US + 1
    assert all(web.state.find_pod(f"batch-{minute}", web.now_us) for minute in range(0, 24 * 60, 120))


def test_a_reset_is_remembered_for_thirty_days() -> None:
    """The request may be repeated, and must not forget what was charged after it."""
    service = WatchedService(plan_of(window(60, pods=9)))
    service.ask("a")
    asked_us = service.now_us
    assert service.reset(asked_us)
    service.now_us += 2 * MINUTE_US
    service.ask("b")
    kept_us = asked_us + RESET_US + LONG_US
    service.state.sweep(kept_us - SECOND_US)
    assert not service.reset(asked_us)
    assert service.state._resets
    service.state.sweep(kept_us + SECOND_US)
    assert not service.state._resets


def test_a_refund_after_the_reset_of_one_window_is_of_the_others() -> None:
    service = WatchedService(plan_of(window(60, pods=9), window(3600, pods=9)))
    service.ask("a")
    service.now_us += SECOND_US
    service.ask("b")
    assert service.reset(service.now_us - SECOND_US, 60)
    assert service.read_usage() == [1, 2]
    assert service.refund("a")
    assert service.read_usage() == [1, 1]
    assert service.refund("b")
    assert service.read_usage() == [0, 0]


def test_uses_of_the_oldest_member_are_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member_uses, "_ENTRIES_MAX", 2)
    uses, limit = MemberUses(), Limit("pods", "pods", 9)
    for number, name in zip(count(1), ("web", "pay", "web", "api"), strict=False):
        found = LimitGuarantees(f"pods {name}", 3, ())
        pool = PoolPlan("prod", (GuaranteedWindow("1m", 60, (limit,), (found,)),))
        use = Use("1m", "pods", 5, 9, of=Holder.POOL, guarantee=GuaranteeUse(3, number, 0))
        uses.record(plan_of(tag="prod", pool=pool), (use,), number)
    counters = ("pods web", "pods pay", "pods api")
    assert uses.list_used("prod", 60, counters, 0) == {"pods web": 3, "pods api": 4}
    assert uses.list_used("prod", 60, counters, 4) == {"pods api": 4}
    assert uses.list_used("prod", 30, counters, 0) == uses.list_used("other", 60, counters, 0) == {}


def test_moments_of_a_view_are_the_tags_inside_and_the_stores_outside() -> None:
    clock = TagClock(offset_us=7)
    inside = store_time.convert_view_to_tag(clock, VIEW)
    moments = inside.since_us, inside.open_until_us, inside.tripped_at_us
    assert moments == (VIEW.since_us + 7, VIEW.open_until_us + 7, VIEW.tripped_at_us + 7)
    assert store_time.convert_view(clock, inside) == VIEW
    never = replace(VIEW, since_us=0, open_until_us=0, tripped_at_us=0)
    assert store_time.convert_view_to_tag(clock, never) == never
    assert store_time.convert_view_to_tag(TagClock(), VIEW) is VIEW


def test_a_proposed_view_is_read_by_the_stores_clock() -> None:
    state, plan = TagState(), plan_of(breaker=BREAKER)
    clock = state.find_clock(plan)
    clock.offset_us, clock.last_us = 9 * SECOND_US, 59 * SECOND_US
    breaker_operations.propose(state, plan, VIEW, 51 * SECOND_US)
    record = state.find_breaker(plan.service)
    assert (record.state, record.since_us, record.open_until_us) == (State.OPEN, 59 * SECOND_US, 69 * SECOND_US)
    breaker_operations.propose(state, plan_of(service="other"), VIEW, 51 * SECOND_US)
    assert state.find_breaker("other").state is State.CLOSED, "a service without a breaker has none"


def test_outcomes_without_a_breaker_write_nothing() -> None:
    state = TagState()
    for plan, outcomes in ((plan_of(), [Outcomes(1, 0, 5)]), (plan_of(breaker=BREAKER), [])):
        assert breaker_operations.record_outcomes(state, plan, outcomes, 5 * SECOND_US) == ()
    assert (state._seen_us, state._breakers) == (0, {})
