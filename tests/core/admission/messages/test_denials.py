"""Messages of denials: code, amounts, and a time that is never too early."""

from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.core.plans import plan_of, standing, window
from tests.core.reviewing import ALICE, NOW_US, REPLICA_SETS
from webhook.core.admission.decision import Finding
from webhook.core.admission.denials import (
    build_breaker_finding,
    build_counter_findings,
    build_store_finding,
    format_utc,
    status_of,
)
from webhook.core.breaker import BreakerView, State
from webhook.core.findings import Code
from webhook.core.kubernetes.admission_request import ResponseStatus
from webhook.core.policy.model import Match, Modes, Service
from webhook.core.policy_fields import Breaker, Denial, Mode, Quota, RetryAfter, WhenOpen, WhenStoreUnavailable
from webhook.core.quota import DeniedBy, Holder, Receipt, Use
from webhook.errors import StoreFailure, StoreFault

OVER = (
    Use("1m", "pods", 50, 50, asked=1, free_at_us=NOW_US + 12_000_001),
    Use("24h", "cpu", 39_500, 40_000, asked=1_500, free_at_us=NOW_US + 12_000_001),
)
REFUSED = Receipt(NOW_US, refused=DeniedBy.QUOTA, over=OVER, free_at_us=NOW_US + 12_000_001)
OPEN = BreakerView(State.OPEN, 2, NOW_US, NOW_US + 90_000_001, "quotaExceeded: 10 within 1m")


def service(**denial: Any) -> Service:
    return Service("web", Match(any_namespace=True), quota=Quota(denial=Denial(**denial)))


@given(st.integers(0, 4_000_000_000_000_000))
def test_time_is_rounded_up_to_the_next_millisecond(at_us: int) -> None:
    shown = datetime.strptime(format_utc(at_us), "%Y-%m-%dT%H:%M:%S.%f%z")
    delay_us = round(shown.timestamp() * 1000) * 1000 - at_us
    assert 0 <= delay_us < 1000


def test_quota_denial_has_code_amounts_and_time() -> None:
    (found,) = build_counter_findings(service(), REFUSED)
    assert str(found) == (
        "QuotaExceeded: service web: pods in 1m: hard 50, used 50, asked 1;"
        " cpu in 24h: hard 40, used 39500m, asked 1500m; could pass from 2027-01-15T08:00:12.001Z"
    )


def test_status_403_has_the_message_format_of_resource_quota() -> None:
    (found,) = build_counter_findings(service(status=403), REFUSED)
    assert found.message.startswith(
        "exceeded quota: podgate/web, requested: pods=1,cpu=1500m, used: pods=50,cpu=39500m, limited: pods=50,cpu=40; "
    )
    assert status_of(found, service(status=403), REFUSED, ALICE) == ResponseStatus(403, "Forbidden")


def test_status_403_has_one_amount_per_resource_and_names_the_windows() -> None:
    daily = Use("24h", "pods", 900, 900, asked=1, free_at_us=NOW_US + 5)
    receipt = Receipt(NOW_US, refused=DeniedBy.QUOTA, over=(OVER[0], daily), free_at_us=NOW_US + 5)
    (found,) = build_counter_findings(service(status=403), receipt)
    assert found.message.startswith(
        "exceeded quota: podgate/web, requested: pods=1, used: pods=50, limited: pods=50; pods in 1m, pods in 24h; "
    )


def test_denial_by_a_pool_names_it_and_has_the_default_status_without_a_quota() -> None:
    full = Use("1m", "pods", 300, 300, asked=1, free_at_us=NOW_US + 5, of=Holder.POOL, name="prod")
    receipt = Receipt(NOW_US, refused=DeniedBy.QUOTA, over=(OVER[0], full), free_at_us=NOW_US + 5)
    (found,) = build_counter_findings(service(status=403), receipt)
    assert "limited: pods=50; pods in 1m, pool prod: pods in 1m; " in found.message
    alone = Service("web", Match(any_namespace=True), pool="prod")
    (found,) = build_counter_findings(
        alone, Receipt(NOW_US, refused=DeniedBy.QUOTA, over=(full,), free_at_us=NOW_US + 5)
    )
    assert found.message.startswith("service web: pool prod: pods in 1m: hard 300, used 300, asked 1; could pass from ")
    assert status_of(found, alone, receipt, ALICE) == ResponseStatus(429, "TooManyRequests")


LIVE = Use("standing", "pods", 225, 200, asked=1, of=Holder.STANDING, surge=50)
LIVE_CPU = Use("standing", "cpu", 39_500, 40_000, asked=1_500, of=Holder.STANDING)
WAITS = "could pass when enough of the service's live Pods have ended"


def build_quota_denial(*over: Use, free_at_us: int | None = 0) -> Receipt:
    return Receipt(NOW_US, refused=DeniedBy.QUOTA, over=over, free_at_us=free_at_us)


def test_denial_by_live_pods_shows_the_surge() -> None:
    (found,) = build_counter_findings(service(), build_quota_denial(LIVE, LIVE_CPU))
    assert str(found) == (
        "QuotaExceeded: service web: pods live at one time: hard 200, surge 50, used 225, asked 1;"
        f" cpu live at one time: hard 40, used 39500m, asked 1500m; {WAITS}"
    )


def test_denial_by_live_pods_with_status_403_has_the_format_of_resource_quota() -> None:
    (found,) = build_counter_findings(service(status=403), build_quota_denial(LIVE))
    assert found.message == (
        "exceeded quota: podgate/web, requested: pods=1, used: pods=225, limited: pods=200;"
        f" pods live at one time; {WAITS}"
    )


def test_denial_by_live_pods_and_a_window_has_a_time_and_a_condition() -> None:
    (found,) = build_counter_findings(service(), build_quota_denial(OVER[0], LIVE_CPU, free_at_us=OVER[0].free_at_us))
    assert found.message.endswith(
        "; could pass from 2027-01-15T08:00:12.001Z, if enough of the service's live Pods have ended by then"
    )
    receipt = build_quota_denial(OVER[0], LIVE, free_at_us=OVER[0].free_at_us)
    (found,) = build_counter_findings(service(status=403), receipt)
    assert ", used: pods=50, limited: pods=50; pods in 1m, pods live at one time; could pass from " in found.message


def test_request_above_hard_and_surge_can_never_pass() -> None:
    (found,) = build_counter_findings(
        service(), build_quota_denial(replace(LIVE, asked=251, free_at_us=None), free_at_us=None)
    )
    assert found.message.endswith("; the request exceeds the whole limit and can never pass")


def test_denial_by_live_pods_has_no_retry_after() -> None:
    users = service(retry_after=RetryAfter.USERS)
    (found,) = build_counter_findings(users, build_quota_denial(LIVE))
    assert status_of(found, users, build_quota_denial(LIVE), ALICE) == ResponseStatus(429, "TooManyRequests")


def test_limit_on_live_pods_alone_has_a_store_finding() -> None:
    plan = plan_of(standing=standing(pods=1), when_unavailable=WhenStoreUnavailable.DENY)
    found = build_store_finding(service(), plan, "timeout")
    assert found is not None
    assert (found.concern, found.code) == ("quota", Code.STORE_UNAVAILABLE)
    assert build_store_finding(service(), replace(plan, when_unavailable=WhenStoreUnavailable.ALLOW), "timeout") is None


def test_request_that_can_never_pass_has_no_retry_after() -> None:
    never = Receipt(NOW_US, refused=DeniedBy.QUOTA, over=OVER, free_at_us=None)
    (found,) = build_counter_findings(service(retry_after=RetryAfter.USERS), never)
    assert "can never pass" in found.message
    assert status_of(found, service(retry_after=RetryAfter.USERS), never, ALICE).retry_after_seconds is None


@pytest.mark.parametrize(
    ("rule", "user", "seconds"),
    [
        (RetryAfter.NEVER, ALICE, None),
        (RetryAfter.USERS, ALICE, 13),
        (RetryAfter.USERS, REPLICA_SETS, None),
        (RetryAfter.USERS, "system:node:n1", None),
        (RetryAfter.USERS, "system:kube-controller-manager", None),
    ],
)
def test_retry_after_is_set_for_users_and_not_for_controllers(rule: RetryAfter, user: str, seconds: int | None) -> None:
    (found,) = build_counter_findings(service(), REFUSED)
    status = status_of(found, service(retry_after=rule), REFUSED, user)
    assert status == ResponseStatus(429, "TooManyRequests", retry_after_seconds=seconds)


def test_open_breaker_finding_has_end_time_and_reason() -> None:
    found = build_breaker_finding(service(), OPEN)
    assert str(found) == (
        "BreakerOpen: service web: the breaker is open until 2027-01-15T08:01:30.001Z (quotaExceeded: 10 within 1m);"
        " probes are admitted from then on: wait, or have an admin run podgate breaker close|reset web"
    )
    assert status_of(found, service(), None, ALICE) == ResponseStatus(503, "ServiceUnavailable")


def test_open_breaker_finding_names_the_first_trigger_and_suggests_a_rollback() -> None:
    reopened = replace(OPEN, reason="probe failed", tripped_at_us=1, tripped_by=OPEN.reason, early=1, failed=("x",))
    message = build_breaker_finding(service(), reopened).message
    assert "(probe failed; tripped by quotaExceeded: 10 within 1m); probes are admitted from then on" in message
    assert (
        "wait, or roll back (a controller that did not cause the failures may probe early), or have an adm" in message
    )
    opened = build_breaker_finding(service(), replace(OPEN, tripped_by=OPEN.reason)).message
    assert opened.count("quotaExceeded") == 1
    assert "roll back" not in opened


def test_forced_open_breaker_finding_has_reason_end_time_and_remedy() -> None:
    forced = BreakerView(State.FORCED_OPEN, 2, NOW_US, NOW_US + 90_000_001, "INC-1", tripped_by="errorRate: 9 of 9")
    found = build_breaker_finding(service(), forced)
    assert str(found) == (
        "BreakerOpen: service web: the breaker was forced open until 2027-01-15T08:01:30.001Z (INC-1);"
        " an admin can end it: podgate breaker reset web"
    )
    assert status_of(found, service(), None, ALICE) == ResponseStatus(503, "ServiceUnavailable")


def test_breaker_that_degrades_has_no_finding() -> None:
    degrades = replace(service(), breaker=Breaker(when_open=WhenOpen.DEGRADE))
    receipt = Receipt(NOW_US, would_refuse=(DeniedBy.BREAKER,), charged=True, breaker=OPEN)
    assert build_counter_findings(degrades, receipt) == ()
    assert [found.concern for found in build_counter_findings(service(), receipt)] == ["breaker"]


def test_half_open_breaker_finding_says_that_all_probes_are_in_flight() -> None:
    found = build_breaker_finding(service(), BreakerView(State.HALF_OPEN, 2, NOW_US, probes_leased=3))
    assert found.code is Code.BREAKER_PROBING
    since = "2027-01-15T08:00:00.000Z"
    expected = f"service web: the breaker is half-open since {since} and all its probes are in flight: try again soon"
    assert found.message == expected
    later = build_breaker_finding(
        service(), BreakerView(State.HALF_OPEN, 2, NOW_US, probes_leased=2, probes_succeeded=1)
    )
    assert later == found, "equal Events are counted, others are listed one by one"


def test_each_finding_has_the_mode_of_its_concern() -> None:
    mixed = Service("web", Match(any_namespace=True), modes=Modes(quota=Mode.WARN), quota=Quota())
    receipt = Receipt(NOW_US, DeniedBy.BREAKER, (DeniedBy.QUOTA,), over=OVER, free_at_us=NOW_US + 1, breaker=OPEN)
    found = build_counter_findings(mixed, receipt)
    assert [(finding.concern, finding.mode) for finding in found] == [("breaker", Mode.ENFORCE), ("quota", Mode.WARN)]
    assert build_counter_findings(mixed, Receipt(NOW_US, charged=True)) == ()


def test_placement_denial_has_status_403() -> None:
    finding = Finding(Code.PLACEMENT_CONFLICT, "placement", Mode.ENFORCE, "no")
    assert status_of(finding, service(), None, ALICE) == ResponseStatus(403, "Forbidden")


@pytest.mark.parametrize("detail", ["no answer for 1.2 s", "no answer for 1.3 s", "connection to 10.0.0.7:6379 lost"])
def test_store_finding_has_a_constant_text_and_names_no_server(detail: str) -> None:
    plan = plan_of(window(60, pods=1), when_unavailable=WhenStoreUnavailable.DENY)
    found = build_store_finding(service(), plan, StoreFailure(detail, StoreFault.TIMEOUT).summary)
    assert found is not None
    assert found.message == "service web: the counters are unavailable (timeout): try again soon"
