"""How far a limit may be exceeded: the bound that docs/redis.md states for the fault, counted from the history."""

from collections.abc import Sequence
from typing import NamedTuple

from tests.chaos.checkers.counted import Counted, CountedPod, LimitKey
from tests.chaos.checkers.facts import Facts
from tests.chaos.checkers.faults import FaultSpan
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.policy_fields import WhenStoreUnavailable
from webhook.core.quota import CounterPlan, Holder

REBOOKED_SECONDS = 60.0
"""After a loss each server submits what it admitted within this time."""
IN_FLIGHT_SECONDS = 0.25
"""Calls that are under way when the store goes away, with the deadline of the store."""
SHARED_SECONDS = 3600
"""Longer windows deny nothing while the store is away."""


class Excess(NamedTuple):
    """What a window may hold above its limit; None: without a bound."""

    amount: int | None
    why: str


def compute_excess(facts: Facts, counted: Counted, key: LimitKey, begin: float, end: float) -> Excess:
    """Return how far a limit may be exceeded in a window that ends at `end`."""
    tags = {plan.tag for policy in facts.policies.values() for plan in list_plans(policy, key)}
    spans = facts.faults.list_store_spans(begin, end, tags)
    if not spans:
        return Excess(0, "no fault of the store: never")
    rules = {plan.when_unavailable for policy in facts.list_policies(begin, end) for plan in list_plans(policy, key)}
    if WhenStoreUnavailable.ALLOW in rules:
        return Excess(None, "Allow admits all")
    if WhenStoreUnavailable.LOCAL in rules and key.seconds > SHARED_SECONDS:
        return Excess(None, "longer windows deny nothing while the store is away")
    losses = [span for span in spans if facts.faults.loses_data(span)]
    if WhenStoreUnavailable.LOCAL not in rules and not losses:
        return Excess(0, "Deny admits nothing")
    pods = counted.by_limit[key]
    largest = max(pod.amount for pod in pods)
    servers = facts.server_count
    amount, why = (servers - 1) * largest, [f"(N - 1) * {largest}"]
    hard = counted.find_hard(key, begin, end)
    for span in spans:
        unseen = count_unseen(facts, pods, span, key, facts.server_count)
        started = count_started(facts, span) * (hard // servers + largest)
        clocked = hard if span.steps_clock else 0
        lost = count_lost(facts, pods, span) if span in losses else count_unbooked(facts, pods, span)
        amount += unseen + started + clocked + lost
        terms = {"unseen": unseen, "started": started, "clock": clocked, "lost": lost}
        why += [f"{name} {value}" for name, value in terms.items() if value]
    return Excess(amount, " + ".join(why))


def list_plans(policy: CompiledPolicy, key: LimitKey) -> list[CounterPlan]:
    """Return the plans that count in a limit."""
    holder, name, _, _ = key.account
    if holder is Holder.SERVICE:
        return [plan for plan in policy.plans.values() if plan.service == name]
    return [plan for plan in policy.plans.values() if plan.pool is not None and plan.pool.name == name]


def count_unseen(facts: Facts, pods: Sequence[CountedPod], span: FaultSpan, key: LimitKey, servers: int) -> int:
    """Return what servers could not know of each other: admitted since the last answer of each, before they divided."""
    del servers
    services = {plan.service for policy in facts.policies.values() for plan in list_plans(policy, key)}
    seen: dict[str, list[float]] = {}
    for review in facts.history.reviews:
        if review.half == "validate" and review.service in services:
            seen.setdefault(review.replica, []).append(review.at)
    unseen = 0
    for replica, times in seen.items():
        last = max((at for at in times if at < span.began), default=min(times))
        is_silent = not any(span.began <= at <= span.ended for at in times)
        until = span.ended + 1 if is_silent else span.began + IN_FLIGHT_SECONDS
        unseen += sum(
            pod.amount for pod in pods if pod.replica != replica and last < pod.latest and pod.earliest <= until
        )
    return unseen


def list_ends(facts: Facts, begin: float, end: float) -> list[FaultSpan]:
    """Return the faults by which servers ended in a time."""
    return [
        span
        for span in facts.faults.list_active(begin, end)
        if span.ends_process and facts.faults.is_of(span, {"server"})
    ]


def count_started(facts: Facts, span: FaultSpan) -> int:
    """Return how many servers started while the store was away, without an answer of it."""
    return len(list_ends(facts, span.began - REBOOKED_SECONDS, span.ended))


def count_lost(facts: Facts, pods: Sequence[CountedPod], span: FaultSpan) -> int:
    """Return what nobody submits again: of servers that ended, and what is older than a minute."""
    ended = list_ends(facts, span.began - REBOOKED_SECONDS, span.ended)
    oldest = span.began - REBOOKED_SECONDS
    gone = set() if not ended else list_gone(facts, max(end.ended for end in ended))
    return sum(
        pod.amount for pod in pods if pod.earliest <= span.ended and (pod.earliest < oldest or pod.replica in gone)
    )


def count_unbooked(facts: Facts, pods: Sequence[CountedPod], span: FaultSpan) -> int:
    """Return what servers admitted without the store and took with them when they ended."""
    ended = list_ends(facts, span.began, span.ended)
    if not ended:
        return 0
    gone = list_gone(facts, max(end.ended for end in ended))
    return sum(pod.amount for pod in pods if span.began <= pod.latest <= span.ended and pod.replica in gone)


def list_gone(facts: Facts, at: float) -> set[str]:
    """Return the processes that judged nothing after a moment."""
    last: dict[str, float] = {}
    for review in facts.history.reviews:
        last[review.replica] = max(review.at, last.get(review.replica, 0))
    return {replica for replica, seen in last.items() if seen <= at}
