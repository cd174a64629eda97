"""Rules of `resources`: consistent ranges, as in LimitRange's own validation, and plausible amounts."""

import re
from collections.abc import Iterator

from webhook.core.container_resources.plan import (
    COMPUTE,
    DECIDE_QOS,
    is_extended,
    is_huge_pages,
    overcommits,
    page_size,
)
from webhook.core.document.yaml.parts import DocumentPart, until_invalid
from webhook.core.document.yaml.problems import Problem
from webhook.core.kubernetes.pod_requests import HUGE_PAGES
from webhook.core.kubernetes.quantity import Quantity
from webhook.core.policy_spec import WhenOutside
from webhook.core.quota import canonical

_LEAST_BYTES = {"memory": 1 << 20, "ephemeral-storage": 1 << 10}
_PLAIN = re.compile(r"([1-9][0-9]{0,5})[a-zA-Z]*")
_MOST_CORES, _MOST_CORES_OF_A_FLEET = 10_000, 10_000_000
_PLACES = (
    *(("services", "*", "resources", "container", word) for word in ("min", "defaultRequest", "default", "max")),
    *(("services", "*", "resources", "pod", word) for word in ("min", "max")),
    ("services", "*", "quota", "windows", "*", "hard"),
    ("services", "*", "quota", "standing", "hard"),
    ("pools", "*", "windows", "*", "hard"),
)
_OF_QUOTA = "hard"


def units_are_meant(document: DocumentPart) -> Iterator[Problem]:
    """`resources`, `hard`: warn about memory below 1Mi, storage below 1Ki, cpu below 1m, and too many cores.

    Too many are 10 000 cores, and 10 000 000 in `hard`, which may be that of a fleet; there cpu below 1m is refused.
    """
    seen = set[int]()
    for path in _PLACES:
        for amounts in document.select(*path):
            if id(amounts.node.value) in seen:  # inherited from `defaults`, or by an alias
                continue
            seen.add(id(amounts.node.value))
            for resource, part in amounts.fields().items():
                yield from until_invalid(_is_meant(resource, part, is_quota=path[-1] == _OF_QUOTA))


def _is_meant(resource: str, part: DocumentPart, *, is_quota: bool) -> Iterator[Problem]:
    name = canonical(resource).partition(".")[2] if is_quota else resource
    value, text = part.read(Quantity).value, part.node.text
    digits = found[1] if (found := _PLAIN.fullmatch(text)) else "1"
    if not value:
        return
    if name in _LEAST_BYTES and value < _LEAST_BYTES[name]:
        how_many = "less than a byte" if value < 1 else "1 byte" if value == 1 else f"{float(value):g} bytes"
        remedy = f"write a unit, such as {digits}Mi or {digits}Gi"
        yield part.wrong(f"{how_many}, less than any container needs", remedy)
    elif name == "cpu" and value > (_MOST_CORES_OF_A_FLEET if is_quota else _MOST_CORES):
        remedy = f"write cores, such as {digits}, or thousandths, such as {digits}m"
        yield part.wrong(f"{int(value)} cores", remedy)
    elif name == "cpu" and value * 1000 < 1 and not is_quota:
        yield part.wrong("finer than 1m, the smallest unit of a container's cpu", "write 1m or more")


_ASCENDING = ("min", "defaultRequest", "default", "max")
_CLAMPED = ("min", "max", "maxLimitRequestRatio")


def ranges_ascend(service: DocumentPart) -> Iterator[Problem]:
    """`container`, `pod`: min <= defaultRequest <= default <= max; min and defaults of `container` <= `pod.max`.

    Refuse others.
    """
    for owner in ("container", "pod"):
        for bounds in service.select("resources", owner):
            for index, low in enumerate(_ASCENDING):
                for high in _ASCENDING[index + 1 :]:
                    yield from until_invalid(_ascends(bounds, low, bounds, high, ""))
    for container in service.select("resources", "container"):
        for pod in service.select("resources", "pod"):
            for low in _ASCENDING[:3]:
                yield from until_invalid(_ascends(container, low, pod, "max", "the Pod's "))


def _ascends(below: DocumentPart, low: str, above: DocumentPart, high: str, whose: str) -> Iterator[Problem]:
    smaller, larger = below.get(low), above.get(high)
    if smaller is None or larger is None:
        return
    limits = larger.fields()
    for resource, part in smaller.fields().items():
        if resource in limits and part.read(Quantity).value > limits[resource].read(Quantity).value:
            bound = limits[resource].node
            reason = f"above {whose}{high} {bound.shown} of {resource} in line {bound.line}"
            yield part.wrong(reason, f"lower it, or raise {whose}{high}")


def defaults_do_not_overcommit(service: DocumentPart) -> Iterator[Problem]:
    """`container.defaultRequest`: equal to `default` for resources that cannot be overcommitted.

    Refuse a smaller one.
    """
    limits = amounts_under(service, "default")
    for resource, part in amounts_under(service, "defaultRequest").items():
        if overcommits(resource) or resource not in limits:
            continue
        limit = limits[resource]
        if part.read(Quantity).value < limit.read(Quantity).value:
            reason = f"below default {limit.node.shown} of {resource} in line {limit.node.line}"
            yield part.wrong(f"{reason}, and Kubernetes requires both to be equal", "keep one of the two")


def implied_limits_fit_the_pod(service: DocumentPart) -> Iterator[Problem]:
    """`container.max` without `default`: at most `pod.max`, as it becomes the limit. Refuse a higher one."""
    limits = {*amounts_under(service, "default"), *_limited_by_ratio(service)}
    of_pod = amounts_under(service, "max", of="pod")
    for resource, part in amounts_under(service, "max").items():
        if resource in COMPUTE and resource in of_pod and resource not in limits:
            bound = of_pod[resource]
            if part.read(Quantity).value > bound.read(Quantity).value:
                reason = (
                    f"the limit of a container without one, and above the Pod's max {bound.node.shown} of {resource}"
                )
                yield part.wrong(f"{reason} in line {bound.node.line}", f"lower it, or write default of {resource}")


def amounts_can_be_written(service: DocumentPart) -> Iterator[Problem]:
    """Amounts of `container`: whole numbers of extended resources, multiples of a huge page's size. Refuse others."""
    for word in _ASCENDING:
        for resource, part in amounts_under(service, word).items():
            yield from until_invalid(_can_be_written(resource, part))


def _can_be_written(resource: str, part: DocumentPart) -> Iterator[Problem]:
    value = part.read(Quantity).value
    if is_extended(resource) and value.denominator != 1:
        yield part.wrong("an extended resource is a whole number in Kubernetes", "write a whole number")
    if is_huge_pages(resource):
        size = page_size(resource)
        if size is None:
            yield part.wrong_field("not a size of huge pages", "write hugepages-SIZE, such as hugepages-2Mi")
        elif value % size:
            least = resource.removeprefix(HUGE_PAGES)
            yield part.wrong(f"huge pages come in multiples of {least}", f"write a multiple of {least}")


def limits_are_meant(service: DocumentPart) -> Iterator[Problem]:
    """`container.max` of cpu and memory: warn about it without `default`, in whose place it becomes the limit."""
    given = {*amounts_under(service, "default"), *_limited_by_ratio(service)}
    for resource, part in amounts_under(service, "max").items():
        if resource in COMPUTE and resource not in given:
            gets = "limit" if resource in amounts_under(service, "defaultRequest") else "limit and as its request"
            reason = f"a container that asks for nothing gets all of it as its {gets}, because there is no default"
            yield part.wrong(reason, f"write default of {resource} too, which may be the same")


def totals_see_every_container(service: DocumentPart) -> Iterator[Problem]:
    """`pod.max` of cpu and memory: warn about it if containers may have no limit, which counts as 0."""
    bounded = {*amounts_under(service, "default"), *amounts_under(service, "max"), *_limited_by_ratio(service)}
    for resource, part in amounts_under(service, "max", of="pod").items():
        if resource in COMPUTE and resource not in bounded:
            reason = "containers without a limit count as 0 here, and are unbounded"
            yield part.wrong(reason, f"write container.default or container.max of {resource} too")


def clamping_has_a_range(service: DocumentPart) -> Iterator[Problem]:
    """`whenOutside`: warn about Clamp without `min`, `max` or `maxLimitRequestRatio` of containers."""
    for chosen in service.select("resources", "whenOutside"):
        bounds = {word for word in _CLAMPED if amounts_under(service, word)}
        if chosen.read(WhenOutside) is WhenOutside.CLAMP and not bounds:
            reason = "only containers are clamped, and theirs have no min, max or maxLimitRequestRatio"
            yield chosen.wrong(reason, "write one of them, or remove it: a Pod as a whole is always denied")


def huge_pages_have_company(service: DocumentPart) -> Iterator[Problem]:
    """`container.defaultRequest`, `default`: warn about huge pages without cpu or memory, which Kubernetes requires."""
    given = {resource for word in _ASCENDING for resource in amounts_under(service, word)}
    for word in ("defaultRequest", "default"):
        for resource, part in amounts_under(service, word).items():
            if is_huge_pages(resource) and given.isdisjoint(DECIDE_QOS):
                reason = "Kubernetes allows huge pages only with cpu or memory: a container without both gets none"
                yield part.wrong_field(reason, "write a default of cpu or memory too")


def _limited_by_ratio(service: DocumentPart) -> set[str]:
    """Return the resources of which each absent limit becomes a multiple of the request."""
    return amounts_under(service, "defaultLimitRatio").keys() & amounts_under(service, "defaultRequest").keys()


def amounts_under(service: DocumentPart, word: str, of: str = "container") -> dict[str, DocumentPart]:
    """Return the valid amounts under one field of the range."""
    found: dict[str, DocumentPart] = {}
    for amounts in service.select("resources", of, word):
        found |= amounts.fields()
    return found
