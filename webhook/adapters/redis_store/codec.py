"""Encoding of requests for the script, and decoding of its results. Plans are encoded in `plans.py`."""

from collections.abc import Collection, Sequence
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import astuple, replace

from webhook.adapters.redis_store.transport.records import (
    PASSED,
    LimitFigures,
    OutcomeEntry,
    OverEntry,
)
from webhook.adapters.redis_store.transport.script import PARTS, SHARED
from webhook.core.breaker import (
    BreakerView,
    State,
    Transition,
    TransitionCause,
)
from webhook.core.breaker.outcome_types import Outcomes
from webhook.core.quota import (
    EXACT_AMOUNT_MAX,
    Cost,
    CounterPlan,
    DeniedBy,
    GuaranteeUse,
    Holder,
    Receipt,
    Use,
    clip_amounts,
    find_free_at_us,
)

_ARRAY_16, _ARRAY_32 = 16, 1 << 16
"""The lengths from which MessagePack arrays have longer headers."""
_REFUSALS = {1: DeniedBy.BREAKER, 2: DeniedBy.QUOTA}
_NEVER = -1
_MOVES_AT = {
    "acquire": PASSED["ACQUIRE_ANSWER"].index("moves"),
    "resize": PASSED["ACQUIRE_ANSWER"].index("moves"),
    "record_start": PASSED["START_ANSWER"].index("moves"),
    "record_outcomes": PASSED["BREAKER_ANSWER"].index("moves"),
    "apply_override": PASSED["BREAKER_ANSWER"].index("moves"),
    "tick": PASSED["TICK_ANSWER"].index("moves"),
}
"""Index of the transitions in the result of each operation."""
_AT, _CHARGED = PASSED["ACQUIRE_ANSWER"].index("at_us"), PASSED["ACQUIRE_ANSWER"].index("charged")
_VIEW, _VIEW_START = SHARED["VIEW"], PARTS["VIEW_START"]
_STATES = {state.value: state for state in State}
_NEW = BreakerView(State.CLOSED, 0, 0)
_encode = msgspec.msgpack.Encoder().encode
_encode_text = msgspec.json.Encoder().encode


def encode_values(values: Sequence[Any]) -> bytes:
    """Return the values packed without an array header: the script unpacks them as a list of arguments."""
    count = len(values)
    return _encode(values)[1 if count < _ARRAY_16 else 3 if count < _ARRAY_32 else 5 :]  # without its header


def encode_list(values: Sequence[Any]) -> Raw:
    """Return values as one argument, which the script unpacks as a list.

    It is a MessagePack string: Redis' MessagePack does not know the binary type.
    """
    packed = encode_values(values)
    return Raw(b"\xdb" + len(packed).to_bytes(4) + packed)


def encode_cost(cost: Cost) -> str:
    """Return a cost as text, as in records: the script parses each distinct text once per call."""
    if cost and max(cost.values()) > EXACT_AMOUNT_MAX:
        cost = clip_amounts(cost)
    return _encode_text(cost).decode()


def encode_outcomes(outcomes: Sequence[Outcomes]) -> list[OutcomeEntry]:
    """Return outcomes as the script reads them; the records of those with a uid are keys of their own, in order."""
    entries, pods = [], 0
    for reported in outcomes:
        pods += reported.uid is not None
        entries.append(
            OutcomeEntry(
                succeeded=reported.succeeded,
                failed=reported.failed,
                latency_us=reported.latency_us,
                uid=_or_false(reported.uid),
                generation=_or_false(reported.generation),
                age_us=reported.age_us,
                pod_number=pods if reported.uid is not None else 0,
            )
        )
    return entries


def _or_false(value: Any) -> Any:
    return False if value is None else value


def encode_view(view: BreakerView) -> tuple[Any, ...]:
    """Return a view as the script reads and publishes it."""
    return astuple(view)


def decode_receipt(plan: CounterPlan, result: Sequence[Any], cost: Cost) -> Receipt:
    """Return the receipt of an acquire; `cost` is the requested cost."""
    # The fields of AcquireAnswer, by position because an answer is decoded for each Pod.
    at_us, refused, would, charged, repeated, used, figures, view, moves, _, charged_us = result
    if not (refused or would or moves):
        known = _NEW if view is True else decode_view(view)
        return Receipt(at_us, None, (), charged, repeated, tuple(used), (), 0, breaker=known, charged_us=charged_us)
    over = tuple([_decode_over(plan, OverEntry(*figure), cost) for figure in figures])
    return Receipt(
        at_us=at_us,
        refused=_REFUSALS.get(refused),
        would_refuse=tuple([guard for bit, guard in _REFUSALS.items() if would & bit]),
        charged=charged,
        repeated=repeated,
        used=tuple(used),
        over=over,
        free_at_us=find_free_at_us(over),
        breaker=decode_view(view),
        transitions=decode_transitions(plan, moves) if moves else (),
    )


def _decode_over(plan: CounterPlan, entry: OverEntry, cost: Cost) -> Use:
    index, asked = entry.number - 1, entry.asked
    if asked == EXACT_AMOUNT_MAX:  # the script was asked for a clipped amount
        _, _, limit = plan.limits[index]
        asked = cost[limit.counts]
    use = _make_use(plan, index, entry.used, asked, entry.free_at_us, entry.surge)
    return _add_guarantee(plan, index, use, entry.own_used, entry.kept) if plan.has_guarantees else use


def _add_guarantee(plan: CounterPlan, index: int, use: Use, own_used: int, kept: int) -> Use:
    """Return a use of a limit with the plan's guarantee in it, if it has any guarantees."""
    found = plan.guarantees[index]
    return use if found is None else replace(use, guarantee=GuaranteeUse(found.hard, own_used, kept))


def decode_pool_uses(plan: CounterPlan, figures: Sequence[int], guarantees: Sequence[int]) -> tuple[Use, ...]:
    """Return every limit of the plan's pool; `guarantees` are the own use and what is kept in each, if in any."""
    uses = decode_uses(plan, (Holder.POOL,), figures)
    if not plan.has_guarantees:
        return uses
    numbers = [index for index, (holder, _, _) in enumerate(plan.limits) if holder is Holder.POOL]
    pairs = zip(*[iter(guarantees)] * 2, strict=True)
    return tuple(
        _add_guarantee(plan, index, use, own_used, kept)
        for index, use, (own_used, kept) in zip(numbers, uses, pairs, strict=True)
    )


def _make_use(plan: CounterPlan, index: int, used: int, asked: int, free_at_us: int, surge: int = 0) -> Use:
    holder, window, limit = plan.limits[index]
    name = plan.pool.name if holder is Holder.POOL and plan.pool else ""
    moment = None if free_at_us == _NEVER else free_at_us
    return Use(window.name, limit.resource, used, limit.hard, asked, moment, of=holder, name=name, surge=surge)


def decode_uses(plan: CounterPlan, holders: Collection[Holder], figures: Sequence[int]) -> tuple[Use, ...]:
    """Return every limit of these holders with its figures, which are in the same order.

    Each limit has two figures: the use, and the time from which one more Pod fits; for live Pods, the surge instead.
    """
    limits = [index for index, (holder, _, _) in enumerate(plan.limits) if holder in holders]
    pairs = zip(*[iter(figures)] * len(LimitFigures._fields), strict=True)
    return tuple(
        _make_use(plan, index, found.used, 1, 0, found.more)
        if plan.limits[index][1].is_standing
        else _make_use(plan, index, found.used, 1, found.more)
        for index, found in zip(limits, map(LimitFigures._make, pairs), strict=True)
    )


def decode_view(values: Any) -> BreakerView | None:
    """Return a view as the script sends it: true for a breaker without a record.

    A breaker that has never tripped has only the first fields; another version may send more fields.
    """
    if values is True:
        return _NEW
    if not values:  # `false` in Lua
        return None
    if len(values) == len(_VIEW_START):
        state, *others = values
        return BreakerView(_STATES[state], *others)
    fields = dict(zip(_VIEW, values, strict=False))
    return BreakerView(**fields | {"state": _STATES[fields["state"]], "failed": tuple(fields["failed"])})


def find_moves(operation: str, result: Sequence[Any]) -> Sequence[Any]:
    """Return the transitions in the result of any operation."""
    index = _MOVES_AT.get(operation, len(result))
    return result[index] or () if index < len(result) else ()


def find_charge_time(operation: str, result: Sequence[Any]) -> int:
    """Return when an operation has charged a new Pod, by its result; 0 if it has not."""
    return int(result[_AT]) if operation == "acquire" and result[_CHARGED] else 0


def decode_transitions(plan: CounterPlan, moves: Sequence[Sequence[Any]]) -> tuple[Transition, ...]:
    return tuple([_decode_transition(plan, dict(zip(PASSED["MOVE"], move, strict=True))) for move in moves])


def _decode_transition(plan: CounterPlan, move: dict[str, Any]) -> Transition:
    named = {"old": State(move["old"]), "new": State(move["new"]), "cause": TransitionCause(move["cause"])}
    return Transition(plan.service, **move | named)
