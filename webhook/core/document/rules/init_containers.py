"""Rules of `resources.initContainer`: its amounts agree with those of `container`, which hold where it has none."""

from collections.abc import Iterator

from webhook.core.container_resources.plan import COMPUTE, can_overcommit
from webhook.core.document.rules.resources import ASCENDING, check_can_be_written, select_amounts
from webhook.core.document.yaml.parts import DocumentPart, stop_at_invalid
from webhook.core.document.yaml.problems import Problem
from webhook.core.kubernetes.quantity import Quantity

_OWNER = "initContainer"


def init_ranges_ascend(service: DocumentPart) -> Iterator[Problem]:
    """`initContainer`: min <= defaultRequest <= default <= max, of `container` where absent.

    Refuse others, amounts that give a container more than `pod.max`, and unequal defaults of resources that cannot be
    overcommitted.
    """
    if not service.select("resources", _OWNER):
        return
    for index, low in enumerate(ASCENDING):
        for high in ASCENDING[index + 1 :]:
            yield from stop_at_invalid(_check_pair(service, low, high))
    for low in ASCENDING:
        yield from stop_at_invalid(_check_fits_the_pod(service, low))


def _check_pair(service: DocumentPart, low: str, high: str) -> Iterator[Problem]:
    own_low, own_high = (select_amounts(service, word, of=_OWNER) for word in (low, high))
    lows = {**select_amounts(service, low), **own_low}
    highs = {**select_amounts(service, high), **own_high}
    for resource in lows.keys() & highs.keys() & (own_low.keys() | own_high.keys()):
        below, above = (part.read(Quantity).value for part in (lows[resource], highs[resource]))
        is_equal_only = (low, high) == ("defaultRequest", "default") and not can_overcommit(resource)
        if below <= above and not (is_equal_only and below != above):
            continue
        if resource in own_low:
            owner = _OWNER if resource in own_high else "container"
            bound = highs[resource].node
            yield own_low[resource].report(
                f"{_compare(below > above, is_equal_only)} {owner}.{high} {bound.shown} of {resource} in line"
                f" {bound.line}",
                f"change it, or write initContainer.{high} of {resource} that fits",
            )
        else:
            bound = lows[resource].node
            yield own_high[resource].report(
                f"{_compare(above > below, is_equal_only)} container.{low} {bound.shown} of {resource} in line"
                f" {bound.line}, which init containers have too",
                f"change it, or write initContainer.{low} of {resource} that fits",
            )


def _compare(is_above: bool, is_equal_only: bool) -> str:  # noqa: FBT001  two facts of one comparison
    word = "above" if is_above else "below"
    return f"Kubernetes requires request and limit to be equal, and it is {word}" if is_equal_only else word


def _check_fits_the_pod(service: DocumentPart, low: str) -> Iterator[Problem]:
    bounds = select_amounts(service, "max", of="pod")
    limited = {**select_amounts(service, "default"), **select_amounts(service, "default", of=_OWNER)}
    for resource, part in select_amounts(service, low, of=_OWNER).items():
        if low == "max" and (resource in limited or resource not in COMPUTE):
            continue  # only as the limit of a container without one it is more than a bound
        if resource in bounds and part.read(Quantity).value > bounds[resource].read(Quantity).value:
            bound = bounds[resource].node
            reason = f"above the Pod's max {bound.shown} of {resource} in line {bound.line}"
            yield part.report(reason, "lower it, or raise the Pod's max")


def init_defaults_are_in_ratio(service: DocumentPart) -> Iterator[Problem]:
    """`initContainer.default`, `defaultRequest`: within `container.maxLimitRequestRatio`. Refuse others."""
    if not service.select("resources", _OWNER):
        return
    own_limits, own_requests = (select_amounts(service, word, of=_OWNER) for word in ("default", "defaultRequest"))
    limits = {**select_amounts(service, "default"), **own_limits}
    requests = {**select_amounts(service, "defaultRequest"), **own_requests}
    for resource, most in select_amounts(service, "maxLimitRequestRatio").items():
        part = own_limits.get(resource) or own_requests.get(resource)
        if part is None or resource not in limits or resource not in requests:
            continue
        limit, request = (amounts[resource].read(Quantity).value for amounts in (limits, requests))
        if limit > most.read(Quantity).value * request:
            reason = f"default divided by defaultRequest is above container.maxLimitRequestRatio {most.node.shown}"
            yield part.report(f"{reason} of {resource} in line {most.node.line}", "bring the two closer together")


def init_amounts_can_be_written(service: DocumentPart) -> Iterator[Problem]:
    """Amounts of `initContainer`: whole numbers of extended resources, multiples of a huge page's size."""
    for word in ASCENDING:
        for resource, part in select_amounts(service, word, of=_OWNER).items():
            yield from stop_at_invalid(check_can_be_written(resource, part))


def init_amounts_have_containers(service: DocumentPart) -> Iterator[Problem]:
    """`initContainer`: warn about an empty one, and about an amount that `container` has, too."""
    for own in service.select("resources", _OWNER):
        if own.is_empty:
            yield own.report_field("has no effect: it has no amount", "write one, such as default, or remove it")
    for word in ASCENDING:
        inherited = select_amounts(service, word)
        for resource, part in select_amounts(service, word, of=_OWNER).items():
            same = inherited.get(resource)
            if same is not None and same.read(Quantity).value == part.read(Quantity).value:
                reason = f"has no effect: container.{word} of {resource} in line {same.node.line} is the same"
                yield part.report(reason, "remove it")
