"""What one container's request and limit of one resource become: defaults where there are none, and the range."""

from collections.abc import Iterator
from typing import Literal, NamedTuple

from webhook.core.container_resources.plan import ZERO, Amount, ResourceRule
from webhook.core.kubernetes.pod_requests import Side

Word = Literal["min", "max", "default"]
BEYOND_ALL = 1 << 256
"""No limit at all: farther out than any that can be written."""


class RequestAndLimit(NamedTuple):
    """One resource of one container; None where the container does not say."""

    requests: Amount | None = None
    limits: Amount | None = None


class OutOfRange(NamedTuple):
    """One side that is out of its range, by which bound of it, and by how many billionths."""

    word: Word
    bound: Amount
    side: Side
    far: int


class PodLevel(NamedTuple):
    """Which resources the Pod sets for all its containers together: by request or limit, and by a limit.

    The API server refuses containers that ask for more than their Pod, so that nothing of these is raised. What has a
    limit needs no default one; what has only a request does, or nothing would bound the containers.
    """

    governed: frozenset[str] = frozenset()
    limited: frozenset[str] = frozenset()


def settled(rule: ResourceRule, asked: RequestAndLimit, level: PodLevel, *, clamps: bool) -> RequestAndLimit:
    """Return what the rule makes of one resource; settled again it stays as it is."""
    governed = rule.name in level.governed
    limited = rule.name in level.limited or (governed and not rule.overcommits)
    # A limit alone is the request as well: what the API server would make of it is written out.
    limit, request = asked.limits, asked.requests or asked.limits
    if clamps:
        low = None if governed else rule.low
        request = _within(request, low, rule.high)
        escapes = rule.high is not None and is_no_limit(rule, limit, level)
        limit = rule.high if escapes else _within(limit, low, rule.high)
    if limit is None and not limited:
        limit = _not_below(rule.limit, request, equal=not rule.overcommits)
    if request is None:
        request = _request(rule, limit, governed=governed)
    return RequestAndLimit(request, limit)


def outside(rule: ResourceRule, asked: RequestAndLimit, level: PodLevel) -> Iterator[OutOfRange]:
    """Yield what is above max or below min."""
    low, high = rule.low, rule.high
    absent = 0 if rule.name in level.governed else None  # what an amount that the Pod asks for it counts
    sides: tuple[tuple[Side, Amount | None], ...] = (("limits", asked.limits), ("requests", asked.requests))
    for side, amount in sides:
        if high is not None and side == "limits" and is_no_limit(rule, amount, level):
            yield OutOfRange("max", high, side, BEYOND_ALL)
        elif amount is not None and high is not None and amount.nano > high.nano:
            yield OutOfRange("max", high, side, amount.nano - high.nano)
        elif amount is not None and low is not None and amount.nano < low.nano and amount.nano != absent:
            yield OutOfRange("min", low, side, low.nano - amount.nano)


def is_no_limit(rule: ResourceRule, limit: Amount | None, level: PodLevel) -> bool:
    """Say whether a limit that is there binds nothing: the kubelet takes 0 for none. A limit of the Pod's own would."""
    return limit is not None and limit.nano == 0 and rule.zero_is_no_limit and rule.name not in level.limited


def _within(amount: Amount | None, low: Amount | None, high: Amount | None) -> Amount | None:
    if amount is None:
        return None
    if high is not None and amount.nano > high.nano:
        return high
    return low if low is not None and amount.nano < low.nano else amount


def _not_below(limit: Amount | None, request: Amount | None, *, equal: bool) -> Amount | None:
    """Return a default limit that the request fits under: the API server refuses a limit below its request."""
    if limit is None or request is None:
        return limit
    return request if equal or request.nano > limit.nano else limit


def _request(rule: ResourceRule, limit: Amount | None, *, governed: bool) -> Amount | None:
    """Return the default request beside the default limit."""
    if governed:
        return None if limit is None else ZERO
    return limit if rule.request is None else rule.request
