"""Ranges of one resource of one container: defaults, clamping, and amounts out of range."""

from collections.abc import Iterator
from typing import Literal, NamedTuple

from webhook.core.container_resources.plan import ZERO, Amount, ResourceRule
from webhook.core.container_resources.ratios import compute_default_limit, compute_request_share, raise_request
from webhook.core.kubernetes.pod_requests import Side

Word = Literal["min", "max", "default", "maxLimitRequestRatio", "remove", "forbid"]
BEYOND_ALL = 1 << 256
"""Stands for "no limit": above every amount that can be written."""


class RequestAndLimit(NamedTuple):
    """Request and limit of one resource of one container; None: absent."""

    requests: Amount | None = None
    limits: Amount | None = None


class OutOfRange(NamedTuple):
    """A request or limit that is out of range: the bound, and the distance in billionths."""

    word: Word
    bound: Amount
    side: Side
    far: int


class PodLevel(NamedTuple):
    """Pod-level resources: those with a request or limit (`governed`), and those with a limit (`limited`).

    The API server rejects containers that ask for more than their Pod, so governed resources are never raised. Limited
    ones need no default limit; those with only a request do, because nothing else bounds the containers.
    """

    governed: frozenset[str] = frozenset()
    limited: frozenset[str] = frozenset()


def apply_rule(rule: ResourceRule, asked: RequestAndLimit, level: PodLevel, *, clamps: bool) -> RequestAndLimit:
    """Apply the rule's defaults and, if it `clamps`, its range and its ratio.

    Idempotent, except for requests that count as absent: see `RangePlan.later`. No default changes an amount that is
    known to be written.
    """
    governed = rule.name in level.governed
    limited = rule.name in level.limited or (governed and not rule.overcommits)
    # A limit alone is also the request, as the API server defaults it.
    limit, request = asked.limits, asked.requests or asked.limits
    if clamps:
        low = None if governed else rule.low
        request = _clamp(request, low, rule.high)
        escapes = rule.high is not None and is_no_limit(rule, limit, level)
        limit = rule.high if escapes else _clamp(limit, low, rule.high)
    if limit is None and not limited:
        limit = _choose_limit(rule, request, governed=governed)
    if request is None:
        request = _choose_request(rule, limit, governed=governed)
    elif limit is not None and not governed and _may_be_absent(rule, asked):
        share = compute_request_share(rule, limit)
        request = request if share is limit else share
    if clamps and not governed:
        request = raise_request(rule, request, limit)
    return RequestAndLimit(request, limit)


def find_out_of_range(rule: ResourceRule, asked: RequestAndLimit, level: PodLevel) -> Iterator[OutOfRange]:
    """Yield amounts above max or below min."""
    low, high = rule.low, rule.high
    absent = 0 if rule.name in level.governed else None  # 0 is allowed if the Pod sets the amount
    sides: tuple[tuple[Side, Amount | None], ...] = (("limits", asked.limits), ("requests", asked.requests))
    for side, amount in sides:
        if high is not None and side == "limits" and is_no_limit(rule, amount, level):
            yield OutOfRange("max", high, side, BEYOND_ALL)
        elif amount is not None and high is not None and amount.nano > high.nano:
            yield OutOfRange("max", high, side, amount.nano - high.nano)
        elif amount is not None and low is not None and amount.nano < low.nano and amount.nano != absent:
            yield OutOfRange("min", low, side, low.nano - amount.nano)


def is_no_limit(rule: ResourceRule, limit: Amount | None, level: PodLevel) -> bool:
    """Return whether a limit has no effect: the kubelet treats 0 as no limit, unless a Pod-level limit exists."""
    return limit is not None and limit.nano == 0 and rule.zero_is_no_limit and rule.name not in level.limited


def _clamp(amount: Amount | None, low: Amount | None, high: Amount | None) -> Amount | None:
    if amount is None:
        return None
    if high is not None and amount.nano > high.nano:
        return high
    return low if low is not None and amount.nano < low.nano else amount


def _choose_limit(rule: ResourceRule, request: Amount | None, *, governed: bool) -> Amount | None:
    """Return the default limit for a container with the given request, which may be absent."""
    if request is None:
        return rule.limit if governed or rule.request is None else compute_default_limit(rule, rule.request)
    limit = compute_default_limit(rule, request)
    if limit is None:
        return None
    # Never below the request: the API server rejects that.
    return limit if rule.overcommits and limit.nano >= request.nano else request


def _choose_request(rule: ResourceRule, limit: Amount | None, *, governed: bool) -> Amount | None:
    """Return the default request for a container with the given default limit."""
    if governed:
        return None if limit is None else ZERO
    if rule.request is not None or limit is None:
        return rule.request
    return compute_request_share(rule, limit)


def _may_be_absent(rule: ResourceRule, asked: RequestAndLimit) -> bool:
    """Return whether only the limit may be the user's: the API server sets an absent request to it.

    A limit of 0 has no share.
    """
    request, limit = asked
    if limit is None or not limit.nano or not rule.ratios.takes_equal:
        return False
    return request is None or request.nano == limit.nano
