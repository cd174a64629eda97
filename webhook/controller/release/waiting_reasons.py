"""Reasons for which Pods wait: a stop of their service, a store that may have lost charges, or a limit without room."""

from collections.abc import Mapping
from typing import NamedTuple

from webhook.controller.release.gated_groups import GatedGroup, describe_asked
from webhook.core.admission.denials import format_utc
from webhook.core.breaker import State
from webhook.core.controller.lane import UNANSWERED
from webhook.core.quota import Cost, CounterPlan, Holder, Limit, WindowPlan
from webhook.core.quota.pod_cost import format_amount
from webhook.core.reporting.queue_document import WaitCause, describe_pause
from webhook.ports import CounterStore


class WaitReason(NamedTuple):
    """Why a Pod waits; `until_us` is when a stop of its whole service ends, 0 without one or if that is unknown."""

    cause: WaitCause
    why: str
    until_us: int = 0


_CAUSES = {Holder.STANDING: WaitCause.LIVE_PODS, UNANSWERED: WaitCause.STORE_UNAVAILABLE}
_LIMIT_OF: Mapping[str, str] = {
    UNANSWERED: "the store of the counters gives no answer",
    Holder.SERVICE: "a limit of {service} is reached",
    Holder.POOL: "a limit of pool {queue} is reached",
    Holder.STANDING: "the limit on live Pods of {service} is reached",
}


def find_stop(plan: CounterPlan, store: CounterStore) -> WaitReason | None:
    """Return why no Pod of a service is released, whatever room there is; None if nothing stops them."""
    if plan.queue is not None and plan.queue.pause is not None:
        return WaitReason(WaitCause.PAUSED, f"the queue is paused {describe_pause(plan)}", plan.queue.pause.until_us)
    view = store.find_known_breaker(plan)
    is_asked = plan.queue is not None and plan.queue.for_breaker
    if view is not None and is_asked and (view.state.is_open or view.state is State.HALF_OPEN):
        until = f" until {format_utc(view.open_until_us)}" if view.state.is_open else ""
        return WaitReason(WaitCause.BREAKER_OPEN, f"the breaker is {view.state}{until}", view.open_until_us)
    return None


def describe_hold(until_us: int) -> WaitReason:
    """Return that nothing is released for a while because the store may have lost charges."""
    why = f"the store may have lost charges: nothing is released until {format_utc(until_us)}"
    return WaitReason(WaitCause.STORE_UNAVAILABLE, why, until_us)


def describe_obstacle(by: str | None, service: str, queue: str) -> WaitReason:
    """Return whose limit has no room, as `PodReleaser.find_blocking_holder` returns it."""
    if by is None:
        return WaitReason(WaitCause.BEHIND, "others are released before it")
    return WaitReason(_CAUSES.get(by, WaitCause.QUOTA_EXCEEDED), _LIMIT_OF[by].format(service=service, queue=queue))


def describe_group(reason: WaitReason, group: GatedGroup, plan: CounterPlan) -> WaitReason:
    """Return the reason for which a complete group waits."""
    count, name = len(group.members), group.key.name
    excess = find_excess(plan, group.waiting.cost)
    if excess is None:
        amounts = describe_asked(plan, [group.waiting])
        room = f"all {count} Pods{f', {amounts}' if amounts else ''}"
        return reason._replace(why=f"its group {name} waits for room for {room}: {reason.why}")
    window, limit = excess
    asked, hard = (format_amount(limit.resource, amount) for amount in (group.waiting.cost[limit.counts], limit.hard))
    why = (
        f"its group {name} of {count} Pods asks for {limit.resource} {asked}, and {window.name} has {hard} in all: make"
        " the group smaller, or have an admin raise the limit"
    )
    return WaitReason(WaitCause.QUOTA_EXCEEDED, why)


def find_excess(plan: CounterPlan, cost: Cost) -> tuple[WindowPlan, Limit] | None:
    """Return the first limit that is below this cost, which therefore never fits; None if there is none."""
    return next(((window, limit) for _, window, limit in plan.limits if cost.get(limit.counts, 0) > limit.hard), None)
