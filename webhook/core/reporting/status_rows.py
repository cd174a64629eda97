"""Rows of the status document: the limits of a service or pool, and a breaker."""

from collections.abc import Iterable
from typing import Any

from webhook.core.admission.messages.denials import utc
from webhook.core.breaker import BreakerView
from webhook.core.ledger.live_set import LiveSet
from webhook.core.quota import CounterPlan, Holder, ServiceSnapshot, Use, WindowPlan
from webhook.core.quota.pod_cost import shown

_SECOND_US = 1_000_000


def limits_of(snapshot: ServiceSnapshot | None, plan: CounterPlan | None) -> Iterable[tuple[str, Use]]:
    """Yield each limit by namespace; without usage if it is unknown, or if all namespaces are idle."""
    if snapshot is not None and snapshot.uses:
        for namespace, uses in sorted(snapshot.uses.items()):
            for use in uses:
                yield namespace, use
    elif plan is not None:
        for use in (
            *unused_limits(plan.windows, Holder.SERVICE),
            *(LiveSet().uses(plan.standing, 0) if plan.standing else ()),
        ):
            yield "", use


def unused_limits(windows: Iterable[WindowPlan], of: Holder) -> Iterable[Use]:
    return (Use(window.name, limit.resource, 0, limit.hard, of=of) for window in windows for limit in window.limits)


def limit_row(use: Use, namespace: str, snapshot: ServiceSnapshot | None) -> dict[str, Any]:
    """Return the row of one limit; without a snapshot all but `hard` is null.

    `nextFree` is null if capacity is free now, or never will be. A limit on live Pods has no such time; it
    has the current `surge` above `hard`, and whether it is enforced.
    """
    limit: dict[str, Any] = {"window": use.window, "resource": use.resource, "namespace": namespace or None}
    if use.of is Holder.STANDING:
        limit["surge"] = shown(use.resource, use.surge) if snapshot is not None else None
        limit["enforced"] = snapshot.is_standing_known if snapshot is not None else None
    hard = shown(use.resource, use.hard)
    if snapshot is None:
        return {**limit, "used": None, "hard": hard, "full": None, "nextFree": None, "nextFreeSeconds": None}
    waits = use.free_at_us is not None and use.free_at_us > snapshot.at_us
    return {
        **limit,
        "used": shown(use.resource, use.used),
        "hard": hard,
        "full": use.used >= use.hard + use.surge,
        "nextFree": moment(use.free_at_us) if waits else None,
        "nextFreeSeconds": seconds(use.free_at_us - snapshot.at_us) if waits and use.free_at_us else 0,
    }


def breaker_row(view: BreakerView, now_us: int, plan: CounterPlan | None) -> dict[str, Any]:
    """Return the row of a breaker; `openUntil` may be an override's end, `failed` has sources without early probes."""
    return {
        "state": view.state,
        "reason": view.reason,
        "since": moment(view.since_us),
        "generation": view.generation,
        "trippedAt": moment(view.tripped_at_us),
        "trippedBy": view.tripped_by or None,
        "openUntil": moment(view.open_until_us),
        "openRemainingSeconds": seconds(view.open_remaining_us(now_us)),
        "probes": {
            "leased": view.probes_leased,
            "succeeded": view.probes_succeeded,
            "needed": plan.breaker.probes if plan and plan.breaker else None,
            "early": view.early,
        },
        "failed": list(view.failed),
    }


def moment(at_us: int | None) -> str | None:
    return utc(at_us) if at_us else None


def seconds(span_us: int) -> int:
    """Return whole seconds, rounded up: a countdown shows 0 only when it is over."""
    return -(-span_us // _SECOND_US)
