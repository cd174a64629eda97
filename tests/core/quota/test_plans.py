"""Counter plans of services: what a policy's stanzas and modes make of limits, breaker and queue."""

from typing import Any

import pytest
from msgspec.structs import replace

from tests.core.plans import plan_of, standing, window
from tests.core.reviewing import policy_of
from webhook.core.breaker import BreakerPlan, ErrorRatePlan, Forcing, LatencyPlan, QuotaEventPlan, State
from webhook.core.kubernetes.quantity import Quantity
from webhook.core.policy.model import QueuePause
from webhook.core.policy_fields import GroupSource, Mode, StandingQuota, WhenStoreUnavailable
from webhook.core.quota import (
    HOUR_US,
    Acquire,
    CounterPlan,
    GroupPlan,
    Holder,
    Limit,
    LimitGuarantees,
    PoolPlan,
    QueuePlan,
    StandingPlan,
    WindowPlan,
)
from webhook.core.quota.plans import build_standing_window

SECOND_US = 1_000_000
WINDOWS = "windows: [{window: 1m, hard: {pods: 5}}]"
BREAKER = """{outcomes: {source: Pushed, reporters: [mesh]},
  errorRate: {percent: 95, interval: 2s, consecutive: 3, minimumOutcomes: 7},
  latency: {mean: 500ms, interval: 3s, consecutive: 4, minimumOutcomes: 8},
  quotaExceeded: {count: 3, within: 30s}, openFor: 60s, halfOpen: {probes: 2, probeTimeout: 90s}}"""
POD_STARTS = """{outcomes: {source: PodStart, startDeadline: 5m}, errorRate: {percent: 95},
  halfOpen: {probeTimeout: 90s}}"""


def plan_from(fields: str, head: str = "", **more: Any) -> CounterPlan:
    policy = policy_of(f"- {{name: web, match: {{namespaces: [shop]}}, {fields}}}", head).policy
    pool = policy.pools[0] if policy.pools else None
    return CounterPlan.from_service(policy.services[0], pool, **more)


def queue_from(fields: str, head: str = "", **more: Any) -> QueuePlan | None:
    return plan_from(fields, head, **more).queue


# Modes


def test_a_service_without_stanzas_counts_nothing() -> None:
    plan = plan_from("slaClass: gold")
    assert (plan.service, plan.tag, plan.limits, plan.breaker, plan.queue) == ("web", "web", (), None, None)
    assert plan.counts_nothing
    assert not plan_from(f"quota: {{{WINDOWS}}}").counts_nothing
    assert not plan_from("breaker: {quotaExceeded: {}}").counts_nothing


def test_what_is_disabled_is_not_in_the_plan() -> None:
    head = "pools: [{name: prod, scope: Fleet, windows: [{window: 1m, hard: {pods: 9}}]}]"
    fields = f"pool: prod, quota: {{scope: Fleet, {WINDOWS}}}, breaker: {{quotaExceeded: {{}}}}"
    both = plan_from(f"{fields}, modes: {{quota: Warn, breaker: Audit}}", head)
    assert (both.quota_mode, both.breaker_mode, len(both.limits)) == (Mode.WARN, Mode.AUDIT, 2)
    assert (both.tag, both.fleet, both.breaker is None) == ("prod", True, False)
    neither = plan_from(f"{fields}, modes: {{quota: Disabled, breaker: Disabled}}", head)
    assert (neither.limits, neither.pool, neither.breaker, neither.tag) == ((), None, None, "prod")


@pytest.mark.parametrize(
    ("quota", "pod_scope"),
    [
        (f"{{{WINDOWS}}}", ""),
        (f"{{per: Namespace, {WINDOWS}}}", "shop"),
        (f"{{per: {{namespaceLabel: team}}, {WINDOWS}}}", "blue"),
    ],
)
def test_pods_count_where_the_quota_says(quota: str, pod_scope: str) -> None:
    plan = plan_from(f"quota: {quota}")
    request = Acquire(plan, "shop", "u", {"pods": 1}, "user:x", team="blue")
    assert plan.scope_of(request) == pod_scope
    assert plan.varies is (pod_scope == "blue")
    [(account, _)] = plan.accounts_of(pod_scope)
    assert account == (Holder.SERVICE, "web", False, pod_scope)


def test_the_answer_without_a_store_is_the_quotas() -> None:
    assert plan_from(f"quota: {{{WINDOWS}}}").when_unavailable is WhenStoreUnavailable.LOCAL
    assert plan_from("slaClass: gold").when_unavailable is WhenStoreUnavailable.LOCAL
    denies = plan_from(f"quota: {{{WINDOWS}, whenStoreUnavailable: Deny}}")
    assert denies.when_unavailable is WhenStoreUnavailable.DENY


@pytest.mark.parametrize(
    ("fields", "lasts_us"),
    [
        (f"quota: {{{WINDOWS}}}", HOUR_US),
        (f"quota: {{{WINDOWS}, whenExceeded: Queue, queue: {{maxWait: 2h}}}}", 2 * HOUR_US + HOUR_US // 6),
        ("breaker: {outcomes: {source: PodStart, startDeadline: 55m}, errorRate: {}}", HOUR_US + 5 * 60 * SECOND_US),
        ("breaker: {outcomes: {source: PodStart, startDeadline: 49m}, errorRate: {}}", HOUR_US),
    ],
)
def test_a_pods_record_outlasts_its_wait_and_its_start(fields: str, lasts_us: int) -> None:
    assert plan_from(fields).remember_us == lasts_us


def test_pods_are_rewritten_alike_unless_slots_or_a_breaker_that_degrades_decide() -> None:
    assert plan_of().rewrites_alike
    assert plan_from("breaker: {quotaExceeded: {}}").rewrites_alike
    assert not plan_from("breaker: {quotaExceeded: {}, whenOpen: Degrade}").rewrites_alike
    assert not plan_of(divides=True).rewrites_alike


# Limits


def test_limits_are_in_the_order_of_receipts() -> None:
    pool = PoolPlan("prod", (window(2, pods=2),), build_standing_window({}))
    live = WindowPlan("standing", 0, (Limit("pods", "pods", 4),))
    plan = plan_of(window(1, pods=1), standing=standing(pods=3), pool=replace(pool, standing=live))
    assert [(holder, limit.hard) for holder, _, limit in plan.limits] == [
        (Holder.SERVICE, 1),
        (Holder.POOL, 2),
        (Holder.STANDING, 3),
        (Holder.POOL, 4),
    ]
    assert plan.ceilings == tuple(("pods", hard) for hard in (1, 2, 3, 4))
    assert [each.is_standing for each in plan.pool.limiting] == [False, True] if plan.pool else False
    assert (plan.limits_live_pods, plan.has_sums_only) == (True, False)
    assert plan_of(window(1, pods=1)).has_sums_only
    assert plan_of(pool=replace(pool, standing=live)).limits_live_pods


@pytest.mark.parametrize(
    ("surge", "room"),
    [("25%", (2, 300)), ("1", (1, 200)), ("0", (0, 0)), ("26%", (2, 312))],
)
def test_the_surge_scales_all_limits_on_live_pods(surge: str, room: tuple[int, ...]) -> None:
    quoted = f'"{surge}"' if "%" in surge else surge
    plan = plan_from(f"quota: {{standing: {{hard: {{pods: 6, cpu: 1200m}}, surge: {quoted}}}}}")
    assert plan.standing is not None
    assert plan.standing.surge == room
    assert plan.standing.window.is_standing
    assert plan.standing.select_amounts({"pods": 1, "requests.cpu": 0, "requests.memory": 5}) == {"pods": 1}


def test_a_surge_of_pods_is_that_of_other_resources_where_pods_are_not_limited() -> None:
    hard = {"requests.example.com/gpu": Quantity.parse("6")}
    [limit] = StandingPlan.from_standing(StandingQuota(hard, 2)).limits
    assert StandingPlan.from_standing(StandingQuota(hard, 2)) == StandingPlan((limit,), (2,))
    none = plan_from("quota: {standing: {hard: {pods: 0, requests.example.com/gpu: 6}, surge: 2}}")
    assert none.standing is not None
    assert none.standing.surge == (2, 2)


def test_a_member_keeps_its_guarantee_and_leaves_the_others_theirs() -> None:
    found = LimitGuarantees("pods web", 3, (("pods pay", 4), ("pods api", 2)))
    assert found.compute_kept({"pods web": 2}, 1) == 0, "within its own"
    assert found.compute_kept({"pods web": 3, "pods pay": 1, "pods api": 5}, 1) == 3
    assert found.compute_kept_for_others({}) == 6
    assert [found.compute_most(hard) for hard in (2, 8, 20)] == [2, 3, 14]


# The breaker


def test_thresholds_of_a_breaker_are_exact() -> None:
    forcing = Forcing(State.FORCED_OPEN, 9, "INC-1")
    plan = plan_from(f"breaker: {BREAKER}", open_max=4, forcing=forcing).breaker
    assert plan == BreakerPlan(
        has_outcomes=True,
        error_rate=ErrorRatePlan(95, 2 * SECOND_US, 3, 7),
        latency=LatencyPlan(SECOND_US // 2, 3 * SECOND_US, 4, 8),
        quota=QuotaEventPlan(3, 30 * SECOND_US, by_controller=True),
        open_for_us=60 * SECOND_US,
        probes=2,
        probe_timeout_us=90 * SECOND_US,
        open_max=4,
        forcing=forcing,
    )


def test_a_probe_lasts_longer_than_a_start_may_take() -> None:
    plan = plan_from(f"breaker: {POD_STARTS}").breaker
    assert plan is not None
    assert plan.probe_timeout_us == 6 * 60 * SECOND_US
    requests = plan_from("breaker: {quotaExceeded: {countBy: Request}, halfOpen: {probeTimeout: 90s}}").breaker
    assert requests is not None
    assert (requests.probe_timeout_us, requests.has_outcomes) == (90 * SECOND_US, False)
    assert requests.quota is not None
    assert not requests.quota.by_controller


# The queue

QUEUES = f"quota: {{{WINDOWS}, whenExceeded: Queue, queue: {{}}}}"
POOL = "pools: [{name: prod, whenExceeded: Queue, windows: [{window: 1m, hard: {pods: 9}}]}]"
OVERLOADED = f"quota: {{{WINDOWS}, queue: {{onOverload: Gate}}}}"
OPEN = "breaker: {quotaExceeded: {}, whenOpen: Queue}"


@pytest.mark.parametrize(
    ("fields", "head", "reasons"),
    [
        (QUEUES, "", (True, False, False)),
        ("pool: prod", POOL, (True, False, False)),
        (OPEN, "", (False, True, False)),
        (OVERLOADED, "", (False, False, True)),
        (f"{QUEUES}, {OPEN}", "", (True, True, False)),
        (f"{OPEN}, quota: {{{WINDOWS}, queue: {{onOverload: Gate}}}}", "", (False, True, True)),
    ],
)
def test_pods_wait_for_what_the_policy_says(fields: str, head: str, reasons: tuple[bool, ...]) -> None:
    queue = queue_from(fields, head)
    assert queue is not None
    assert (queue.for_quota, queue.for_breaker, queue.on_overload) == reasons
    assert queue.only_on_overload is (reasons == (False, False, True))


@pytest.mark.parametrize(
    "fields",
    [
        f"quota: {{{WINDOWS}}}",
        f"{QUEUES}, modes: {{quota: Warn}}",
        f"{OVERLOADED}, modes: {{quota: Audit}}",
        f"{OPEN}, modes: {{breaker: Warn}}",
        "breaker: {quotaExceeded: {}}",
    ],
)
def test_without_an_enforced_reason_there_is_no_queue(fields: str) -> None:
    plan = plan_from(fields)
    assert plan.queue is None
    assert (plan.waiting_max, plan.queue_lasts_us) == (0, HOUR_US)


def test_a_queue_has_the_rules_of_its_stanza() -> None:
    rules = "maxPods: 7, maxWait: 2h, whenExpired: Keep, ageing: 5m, liftedShare: 25%"
    pause = QueuePause(9, "INC-1")
    plan = plan_from(f"quota: {{{WINDOWS}, whenExceeded: Queue, queue: {{{rules}}}}}", rank=3, pause=pause)
    queue = plan.queue
    assert queue is not None
    assert (queue.rank, queue.max_pods, queue.max_wait_us) == (3, 7, 2 * HOUR_US)
    assert (queue.ageing_us, queue.lifted_percent) == (300 * SECOND_US, 25)
    assert (queue.pause, queue.groups, queue.waits_in_turn) == (pause, None, True)
    assert (queue.keeps_expired, plan.waiting_max, plan.queue_lasts_us) == (True, 7, 3 * HOUR_US)
    usual = queue_from(QUEUES)
    assert usual is not None
    assert not usual.keeps_expired


@pytest.mark.parametrize(("word", "keeps"), [("Keep", True), ("Single", False)])
def test_groups_wait_where_pods_wait_for_quota(word: str, *, keeps: bool) -> None:
    groups = f"groups: {{from: [Job], waitFor: 2m, whenIncomplete: {word}, maxSize: 9}}"
    queue = queue_from(f"quota: {{{WINDOWS}, whenExceeded: Queue, queue: {{{groups}}}}}")
    assert queue is not None
    assert queue.groups == GroupPlan((GroupSource.JOB,), 120 * SECOND_US, keeps, 9)
