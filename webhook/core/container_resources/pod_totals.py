"""Totals of a whole Pod, checked against `resources.pod`. Never clamped: no single container is to blame."""

from collections.abc import Iterator, Mapping, Sequence

from webhook.core.container_resources.plan import COMPUTE, Amount, PodBounds, RangePlan
from webhook.core.container_resources.ranges import BEYOND_ALL, Word
from webhook.core.container_resources.ratio_shortfalls import build_ratio_shortfall
from webhook.core.container_resources.ratios import exceeds
from webhook.core.container_resources.shortfalls import NO_LIMIT, Shortfall, describe_excess, find_limit_shortfalls
from webhook.core.findings import Code
from webhook.core.kubernetes.pod import Pod
from webhook.core.kubernetes.pod_requests import (
    Side,
    combine_containers,
    compute_pod_total,
    format_quantity,
    read_amount,
)

Shares = tuple[int, ...]
"""One container's share of each resource in `RangePlan.pod`, request and limit alternating, in billionths."""


def find_pod_shortfalls(
    pod: Pod, plan: RangePlan, running: Sequence[Shares], starting: Sequence[tuple[Shares, bool]]
) -> Iterator[Shortfall]:
    """Yield the totals outside their range. ValueError: an unreadable quantity."""
    boundless = _find_boundless(pod)
    for index, bounds in enumerate(plan.pod):
        requests = _compute_total(pod, "requests", bounds.name, 2 * index, running, starting)
        limits = _compute_total(pod, "limits", bounds.name, 2 * index + 1, running, starting)
        yield from _check_bounds(bounds, requests, BEYOND_ALL if bounds.name in boundless else limits)
        limits = 0 if bounds.name in boundless else limits
        if bounds.ratio is not None and not (requests and limits and not exceeds(limits, requests, bounds.ratio)):
            yield build_ratio_shortfall(bounds.name, bounds.ratio, requests, limits)
    if boundless:
        judged = {bounds.name for bounds in plan.pod if bounds.high is not None}
        for rule in plan.rules:
            if rule.high is not None and rule.name in boundless - judged:
                yield from _build_shortfall(rule.name, "max", rule.high, {"limits": BEYOND_ALL})
    for name in plan.forbid:
        yield from _find_forbidden(pod, name)


def _find_forbidden(pod: Pod, name: str) -> Iterator[Shortfall]:
    """Yield the Pod-level limit that no Pod may have."""
    limits = pod.spec.resources.limits if pod.spec.resources is not None else None
    nano = read_amount(limits, name)
    if nano is not None:
        yield from find_limit_shortfalls("forbid", name, Amount(nano, format_quantity(name, nano)))


def _find_boundless(pod: Pod) -> frozenset[str]:
    """Return the resources that a Pod-level limit of 0 makes unbounded: the containers may have no limit then."""
    limits = pod.spec.resources.limits if pod.spec.resources is not None else None
    return (
        frozenset(name for name in COMPUTE.intersection(limits) if read_amount(limits, name) == 0)
        if limits
        else frozenset()
    )


def _compute_total(
    pod: Pod,
    side: Side,
    name: str,
    column: int,
    running: Sequence[Shares],
    starting: Sequence[tuple[Shares, bool]],
) -> int:
    containers = combine_containers(
        [shares[column] for shares in running], [(shares[column], stays) for shares, stays in starting]
    )
    return compute_pod_total(pod, side, name, containers)


def _check_bounds(bounds: PodBounds, requests: int, limits: int) -> Iterator[Shortfall]:
    """Check limits against max, and requests against min and max."""
    low, high = bounds.low, bounds.high
    totals: dict[Side, int] = {"limits": limits, "requests": requests}
    if high is not None:
        above = {side: total for side, total in totals.items() if total > high.nano}
        yield from _build_shortfall(bounds.name, "max", high, above)
    if low is not None and requests < low.nano:
        yield from _build_shortfall(bounds.name, "min", low, {"requests": requests})


def _build_shortfall(name: str, word: Word, bound: Amount, totals: Mapping[Side, int]) -> Iterator[Shortfall]:
    if totals:
        excess = tuple((side, abs(total - bound.nano)) for side, total in totals.items())
        shown = {
            side: NO_LIMIT if total == BEYOND_ALL else repr(format_quantity(name, total))
            for side, total in totals.items()
        }
        yield Shortfall(Code.RESOURCES_OUTSIDE, name, word, excess, describe_excess(name, shown, word, bound))
