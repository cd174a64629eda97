"""Limits of a decision record: the use of each limit of the plan after the decision."""

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import astuple

from webhook.core.admission.messages.denials import utc
from webhook.core.lru_cache import LruCache
from webhook.core.quota import Acquire, CounterPlan, Holder, Receipt, Use
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


class _LimitHead(Struct, frozen=True, gc=False, array_like=True):
    """What all uses of a limit share."""

    of: Holder
    name: str
    window: str
    resource: str
    hard: int


class _Use(Use, frozen=True, gc=False, array_like=True):
    """A use by the position of its fields."""


class _PackedLimits(Struct, frozen=True, gc=False, array_like=True):
    """The use of each limit, in the units of the counters. `over`: those that the Pod exceeds."""

    service: str
    heads: tuple[_LimitHead, ...]
    used: tuple[int, ...]
    asked: tuple[int, ...]
    over: tuple[_Use, ...]


_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(_PackedLimits).decode
NO_LIMITS = _pack(("", (), (), (), ()))


def packed_limits(asked: Acquire, receipt: Receipt) -> bytes:
    """Return the use of each limit of the plan; of those exceeded only, if the store did not report the others."""
    plan, cost = asked.plan, asked.cost
    over = tuple([astuple(use) for use in receipt.over]) if receipt.over else ()
    if len(receipt.used) != len(plan.limits):
        return _pack((plan.service, (), (), (), over))
    heads, names = _heads(plan)
    return _pack((plan.service, heads, receipt.used, [cost.get(name, 0) for name in names], over))


def limit_rows(packed: bytes | Raw) -> list[RecordedLimit]:
    """Return the rows of what `packed_limits` returned. Raises msgspec.MsgspecError."""
    limits = _unpack(packed)
    over = {(use.of, use.window, use.resource): _exceeded(use, limits.service) for use in limits.over}
    if not limits.heads:
        return list(over.values())
    return [
        over.get((head.of, head.window, head.resource)) or _row(head, used, asked)
        for head, used, asked in zip(limits.heads, limits.used, limits.asked, strict=False)
    ]


_known_heads: LruCache[int, tuple[CounterPlan, Raw, list[str]]] = LruCache(256)


def _heads(plan: CounterPlan) -> tuple[Raw, list[str]]:
    """Return the packed heads of a plan's limits, and what each counts.

    They are known by the plan's identity, as its hash is that of all its limits.
    """
    known = _known_heads.get(id(plan))
    if known is not None and known[0] is plan:
        return known[1:]
    heads = [
        _LimitHead(
            holder,
            plan.pool.name if holder is Holder.POOL and plan.pool is not None else plan.service,
            window.name,
            limit.resource,
            limit.hard,
        )
        for holder, window, limit in plan.limits
    ]
    packed, names = Raw(_pack(heads)), [limit.counts for _, _, limit in plan.limits]
    _known_heads.keep(id(plan), (plan, packed, names))
    return packed, names


def _row(head: _LimitHead, used: int, asked: int) -> RecordedLimit:
    name = head.resource
    return RecordedLimit(
        head.of, head.name, head.window, name, shown(name, head.hard), shown(name, used), shown(name, asked)
    )


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
