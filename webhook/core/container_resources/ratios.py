"""Ratios of limit and request of one resource of one container, in exact billionths."""

from webhook.core.container_resources.plan import Amount, ResourceRule
from webhook.core.kubernetes.pod_requests import NANO, format_quantity

_UNITS = {"cpu": NANO // 1000}
"""The unit of an amount that is written, in billionths: thousandths of a core, whole bytes."""


def exceeds(limit: int, request: int, ratio: Amount) -> bool:
    """Return whether a limit is more than `ratio` times its request. Exact, where LimitRanger uses floats."""
    return limit * NANO > ratio.nano * request


def compute_highest_limit(name: str, request: Amount, ratio: Amount) -> Amount:
    """Return `ratio` times the request, rounded down to the resource's unit."""
    unit = _UNITS.get(name, NANO)
    nano = request.nano * ratio.nano // (NANO * unit) * unit
    return Amount(nano, format_quantity(name, nano))


def compute_lowest_request(name: str, limit: Amount, ratio: Amount) -> Amount:
    """Return the least request whose limit is not above `ratio` times it, rounded up to the resource's unit."""
    return _choose_smaller(_round_up(name, limit.nano * NANO, ratio.nano), limit)


def compute_default_limit(rule: ResourceRule, request: Amount) -> Amount | None:
    """Return the default limit beside a request: by `defaultLimitRatio`, else within `maxLimitRequestRatio`.

    A request of 0 has no multiple where a limit of 0 would be no limit.
    """
    ratios, limit = rule.ratios, rule.limit
    if not request.nano and rule.zero_is_no_limit:
        return limit
    if ratios.limit is not None:
        return _choose_smaller(compute_highest_limit(rule.name, request, ratios.limit), rule.high)
    if limit is not None and ratios.most is not None:
        return _choose_smaller(limit, compute_highest_limit(rule.name, request, ratios.most))
    return limit


def compute_request_share(rule: ResourceRule, limit: Amount) -> Amount:
    """Return the request of a container that wrote none: a share of its limit by `defaultRequestRatio`, else all of it.

    Never below `min`.
    """
    share = rule.ratios.request
    if share is None or not limit.nano:
        return limit
    wanted = _round_up(rule.name, limit.nano * share.nano, NANO)
    if rule.low is not None and wanted.nano < rule.low.nano:
        wanted = rule.low
    return wanted if wanted.nano < limit.nano else limit


def raise_request(rule: ResourceRule, request: Amount | None, limit: Amount | None) -> Amount | None:
    """Return the request, raised until the limit is within `maxLimitRequestRatio` of it."""
    most = rule.ratios.most
    if most is None or request is None or limit is None or not exceeds(limit.nano, request.nano, most):
        return request
    return compute_lowest_request(rule.name, limit, most)


def _round_up(name: str, numerator: int, denominator: int) -> Amount:
    """Return a quotient, rounded up to the resource's unit."""
    unit = _UNITS.get(name, NANO)
    nano = -(-numerator // (denominator * unit)) * unit
    return Amount(nano, format_quantity(name, nano))


def _choose_smaller(one: Amount, other: Amount | None) -> Amount:
    return other if other is not None and other.nano < one.nano else one
