"""Shortfalls of ratios: a limit too far above its request."""

from collections.abc import Iterator

from webhook.core.container_resources.plan import Amount, ResourceRule
from webhook.core.container_resources.ranges import BEYOND_ALL, PodLevel, RequestAndLimit
from webhook.core.container_resources.ratios import exceeds
from webhook.core.container_resources.shortfalls import Shortfall
from webhook.core.findings import Code
from webhook.core.kubernetes.pod_requests import NANO, Side, format_quantity


def find_ratio_shortfalls(
    rule: ResourceRule, most: Amount, before: RequestAndLimit, wanted: RequestAndLimit, level: PodLevel
) -> Iterator[Shortfall]:
    """Yield the shortfall of one resource of one container by `maxLimitRequestRatio`, which is `most`.

    There is none by `defaultRequestRatio`: the final Pod does not show whether the user wrote its requests.
    """
    governed = rule.name in level.governed
    limit, request = before.limits, before.requests or before.limits
    if _is_accepted(most, before, governed=governed):
        return
    is_lost = _is_accepted(most, wanted, governed=governed)
    if limit is None and is_lost:
        return  # the missing default is reported
    yield build_ratio_shortfall(rule.name, most, _read_nano(request), _read_nano(limit), is_lost=is_lost)


def build_ratio_shortfall(name: str, most: Amount, request: int, limit: int, *, is_lost: bool = False) -> Shortfall:
    """Return the shortfall of a request and a limit, in billionths, that `most` does not allow."""
    code = Code.RESOURCES_UNFULFILLED if is_lost else Code.RESOURCES_OUTSIDE
    sides: tuple[tuple[Side, int], ...] = (("limits", limit), ("requests", request))
    lacking = tuple(side for side, nano in sides if not nano)
    if lacking:
        whose = " and ".join(f"{side}[{name}]" for side in lacking)
        verb = "are" if len(lacking) > 1 else "is"
        text = f"{whose} {verb} missing or 0, and the limit is at most {most.text} times the request: write both"
        return Shortfall(code, name, "maxLimitRequestRatio", tuple((side, BEYOND_ALL) for side in lacking), text)
    shown, allowed = (
        format_quantity(name, limit),
        f"{most.text} times requests[{name}] {format_quantity(name, request)!r}",
    )
    text = f"limits[{name}] is {shown!r}, expected at most {allowed}"
    if not is_lost:
        text = f"limits[{name}] is {shown!r}, at most {allowed} is allowed: lower the limit, or raise the request"
    return Shortfall(code, name, "maxLimitRequestRatio", (("limits", limit - most.nano * request // NANO),), text)


def _is_accepted(most: Amount, asked: RequestAndLimit, *, governed: bool) -> bool:
    """Return whether the ratio is in range. As in LimitRange both amounts are required, unless the Pod sets them."""
    request, limit = _read_nano(asked.requests or asked.limits), _read_nano(asked.limits)
    return governed if not (request and limit) else not exceeds(limit, request, most)


def _read_nano(amount: Amount | None) -> int:
    return 0 if amount is None else amount.nano
