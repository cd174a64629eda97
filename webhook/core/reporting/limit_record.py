"""Limits of a decision record: the use of each limit of the plan after the decision."""

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import astuple

from webhook.core.admission.denials import format_utc
from webhook.core.lru_cache import LruCache
from webhook.core.quota import Acquire, Cost, CounterPlan, Holder, Receipt, Use
from webhook.core.quota.pod_cost import format_amount


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
    guaranteed: int | str = 0
    guaranteed_used: int | str = 0
    """The part of a pool's limit that is kept for the service, and its use."""
    kept: int | str = 0
    """What is kept for other services, if any part of the limit is."""


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
_ARRAY_OF_FIVE = b"\x95"
"""The beginning of a `_PackedLimits`: MessagePack writes an array as its length and its elements."""
_NONE = _pack(())
NO_LIMITS = _pack(("", (), (), (), ()))


def pack_limits(asked: Acquire, receipt: Receipt) -> bytes:
    """Pack the use of each limit of the plan; only of exceeded ones if the store did not report the others."""
    plan = asked.plan
    over = _pack([astuple(use) for use in receipt.over]) if receipt.over else _NONE
    if len(receipt.used) != len(plan.limits):
        return b"".join((_ARRAY_OF_FIVE, _pack(plan.service), _NONE, _NONE, _NONE, over))
    begin, end = _make_shared_parts(plan, asked.cost)
    return b"".join((begin, _pack(receipt.used), end, over))


def unpack_limits(packed: bytes | Raw) -> list[RecordedLimit]:
    """Return the rows that `pack_limits` packed. Raises msgspec.MsgspecError."""
    limits = _unpack(packed)
    over = {(use.of, use.window, use.resource): _make_exceeded_row(use, limits.service) for use in limits.over}
    if not limits.heads:
        return list(over.values())
    return [
        over.get((head.of, head.window, head.resource)) or _make_row(head, used, asked)
        for head, used, asked in zip(limits.heads, limits.used, limits.asked, strict=False)
    ]


class _Parts(Struct, frozen=True, gc=False):
    """What the limits of Pods with one plan and cost share: what is packed before their use, and after it."""

    plan: CounterPlan
    cost: Cost
    begin: bytes
    end: bytes


_known: LruCache[tuple[int, int], _Parts] = LruCache(512)


def _make_shared_parts(plan: CounterPlan, cost: Cost) -> tuple[bytes, bytes]:
    """Return the packed service and heads of a plan's limits, and what a Pod asks of each.

    They are cached by the identity of plan and cost: a hash would cover all their limits and amounts.
    """
    key = id(plan), id(cost)
    known = _known.get(key)
    if known is not None and known.plan is plan and known.cost is cost:
        return known.begin, known.end
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
    begin = b"".join((_ARRAY_OF_FIVE, _pack(plan.service), _pack(heads)))
    end = _pack([cost.get(limit.counts, 0) for _, _, limit in plan.limits])
    _known.keep(key, _Parts(plan, cost, begin, end))
    return begin, end


def _make_row(head: _LimitHead, used: int, asked: int) -> RecordedLimit:
    name = head.resource
    return RecordedLimit(
        head.of,
        head.name,
        head.window,
        name,
        format_amount(name, head.hard),
        format_amount(name, used),
        format_amount(name, asked),
    )


def _make_exceeded_row(use: Use, service: str) -> RecordedLimit:
    resource = use.resource
    return RecordedLimit(
        use.of,
        use.name or service,
        use.window,
        resource,
        format_amount(resource, use.hard),
        format_amount(resource, use.used),
        format_amount(resource, use.asked),
        format_amount(resource, use.surge) if use.surge else 0,
        over=True,
        free_at=format_utc(use.free_at_us) if use.free_at_us else "",
        never=use.free_at_us is None,
        **_name_guarantee(use),
    )


def _name_guarantee(use: Use) -> dict[str, int | str]:
    found = use.guarantee
    if found is None:
        return {}
    amounts = {"guaranteed": found.hard, "guaranteed_used": found.used, "kept": found.kept}
    return {name: format_amount(use.resource, amount) for name, amount in amounts.items() if amount}
