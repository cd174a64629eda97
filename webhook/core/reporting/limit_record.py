"""Limits of a decision record: the use of each limit of the plan after the decision."""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import NamedTuple

from msgspec import Struct

from webhook.core.admission.messages.denials import utc
from webhook.core.kubernetes.pod_requests import in_millicores
from webhook.core.lru_cache import LruCache
from webhook.core.quota import Acquire, CounterPlan, Holder, Receipt, Use, is_cpu
from webhook.core.quota.pod_cost import shown


class RecordedLimit(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """Use of one limit after the decision, in the amounts of the denial's text.

    `name` is the pool's or the service's. `over`: the Pod exceeds it; then it fits from `free_at`, never, or, if
    neither is set, when enough live Pods have ended.
    """

    of: Holder
    name: str
    window: str
    resource: str
    hard: int | str
    used: int | str
    asked: int | str = 0
    surge: int | str = 0
    over: bool = False
    free_at: str = ""
    never: bool = False


class LimitUses(Struct, frozen=True, gc=False):
    """What the rows of a decision's limits are made from, only when they are read: the store's request and answer."""

    asked: Acquire
    receipt: Receipt


def limit_rows(uses: LimitUses) -> list[RecordedLimit]:
    """Return the use of each limit of the plan; of those exceeded only, if the store did not report the others."""
    plan, cost, receipt = uses.asked.plan, uses.asked.cost, uses.receipt
    if len(receipt.used) != len(plan.limits):
        return [_exceeded(use, plan.service) for use in receipt.over]
    over = {(use.of, use.window, use.resource): use for use in receipt.over} if receipt.over else None
    rows = []
    for head, used in zip(_heads(plan), receipt.used, strict=True):
        of, name, window, resource, hard, counts, show = head
        if over is not None and (use := over.get((of, window, resource))) is not None:
            rows.append(_exceeded(use, plan.service))
        else:
            rows.append(RecordedLimit(of, name, window, resource, hard, show(used), show(cost.get(counts, 0))))
    return rows


class _LimitHead(NamedTuple):
    """What all rows of a limit share, and how its amounts are shown: the figures of others change with each Pod."""

    of: Holder
    name: str
    window: str
    resource: str
    hard: int | str
    counts: str
    show: Callable[[int], int | str]


_known_heads: LruCache[int, tuple[CounterPlan, list[_LimitHead]]] = LruCache(256)


def _heads(plan: CounterPlan) -> list[_LimitHead]:
    """Return the heads of a plan's limits; known by the plan's identity, as its hash is that of all its limits."""
    known = _known_heads.get(id(plan))
    if known is not None and known[0] is plan:
        return known[1]
    heads = [
        _LimitHead(
            holder,
            plan.pool.name if holder is Holder.POOL and plan.pool is not None else plan.service,
            window.name,
            limit.resource,
            shown(limit.resource, limit.hard),
            limit.counts,
            in_millicores if is_cpu(limit.resource) else partial(shown, limit.resource),
        )
        for holder, window, limit in plan.limits
    ]
    _known_heads.keep(id(plan), (plan, heads))
    return heads


@lru_cache(maxsize=256)  # the Pods of a controller are denied over and over by the same figures
def _exceeded(use: Use, service: str) -> RecordedLimit:
    resource = use.resource
    return RecordedLimit(
        use.of,
        use.name or service,
        use.window,
        resource,
        shown(resource, use.hard),
        shown(resource, use.used),
        shown(resource, use.asked),
        shown(resource, use.surge) if use.surge else 0,
        over=True,
        free_at=utc(use.free_at_us) if use.free_at_us else "",
        never=use.free_at_us is None,
    )
