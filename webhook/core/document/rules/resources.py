"""Rules of `resources`: consistent ranges, as in LimitRange's own validation, and plausible amounts."""

import re
from collections.abc import Iterator, Mapping

from webhook.core.container_resources.plan import (
    COMPUTE,
    DECIDE_QOS,
    can_overcommit,
    is_extended,
    is_huge_pages,
    parse_page_size,
)
from webhook.core.document.yaml.parts import DocumentPart, stop_at_invalid
from webhook.core.document.yaml.problems import Problem
from webhook.core.kubernetes.pod_requests import HUGE_PAGES
from webhook.core.kubernetes.quantity import Quantity
from webhook.core.policy_fields import WhenOutside
from webhook.core.quota import canonicalize

_BYTES_MIN = {"memory": 1 << 20, "ephemeral-storage": 1 << 10}
_PLAIN = re.compile(r"([1-9][0-9]{0,5})[a-zA-Z]*")
_CORES_MAX, _FLEET_CORES_MAX = 10_000, 10_000_000
_PLACES = (
    *(("services", "*", "resources", "container", word) for word in ("min", "defaultRequest", "default", "max")),
    *(("services", "*", "resources", "initContainer", word) for word in ("min", "defaultRequest", "default", "max")),
    *(("services", "*", "resources", "pod", word) for word in ("min", "max")),
    ("services", "*", "quota", "windows", "*", "hard"),
    ("services", "*", "quota", "standing", "hard"),
    ("pools", "*", "windows", "*", "hard"),
    ("pools", "*", "standing", "hard"),
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
                yield from stop_at_invalid(_check_meant(resource, part, is_quota=path[-1] == _OF_QUOTA))


def _check_meant(resource: str, part: DocumentPart, *, is_quota: bool) -> Iterator[Problem]:
    name = canonicalize(resource).partition(".")[2] if is_quota else resource
    value, text = part.read(Quantity).value, part.node.text
    digits = found[1] if (found := _PLAIN.fullmatch(text)) else "1"
    if not value:
        return
    if name in _BYTES_MIN and value < _BYTES_MIN[name]:
        how_many = "less than a byte" if value < 1 else "1 byte" if value == 1 else f"{float(value):g} bytes"
        remedy = f"write a unit, such as {digits}Mi or {digits}Gi"
        yield part.report(f"{how_many}, less than any container needs", remedy)
    elif name == "cpu" and value > (_FLEET_CORES_MAX if is_quota else _CORES_MAX):
        remedy = f"write cores, such as {digits}, or thousandths, such as {digits}m"
        yield part.report(f"{int(value)} cores", remedy)
    elif name == "cpu" and value * 1000 < 1 and not is_quota:
        yield part.report("finer than 1m, the smallest unit of a container's cpu", "write 1m or more")


ASCENDING = ("min", "defaultRequest", "default", "max")
_CLAMPED = ("min", "max", "maxLimitRequestRatio")


def ranges_ascend(service: DocumentPart) -> Iterator[Problem]:
    """`container`, `pod`: min <= defaultRequest <= default <= max; min and defaults of `container` <= `pod.max`.

    Refuse others.
    """
    for owner in ("container", "pod"):
        for bounds in service.select("resources", owner):
            for index, low in enumerate(ASCENDING):
                for high in ASCENDING[index + 1 :]:
                    yield from stop_at_invalid(_check_ascends(bounds, low, bounds, high, ""))
    for container in service.select("resources", "container"):
        for pod in service.select("resources", "pod"):
            for low in ASCENDING[:3]:
                yield from stop_at_invalid(_check_ascends(container, low, pod, "max", "the Pod's "))


def _check_ascends(below: DocumentPart, low: str, above: DocumentPart, high: str, whose: str) -> Iterator[Problem]:
    smaller, larger = below.get(low), above.get(high)
    if smaller is None or larger is None:
        return
    limits = larger.fields()
    for resource, part in smaller.fields().items():
        if resource in limits and part.read(Quantity).value > limits[resource].read(Quantity).value:
            bound = limits[resource].node
            reason = f"above {whose}{high} {bound.shown} of {resource} in line {bound.line}"
            yield part.report(reason, f"lower it, or raise {whose}{high}")


def defaults_do_not_overcommit(service: DocumentPart) -> Iterator[Problem]:
    """`container.defaultRequest`: equal to `default` for resources that cannot be overcommitted.

    Refuse a smaller one.
    """
    limits = select_amounts(service, "default")
    for resource, part in select_amounts(service, "defaultRequest").items():
        if can_overcommit(resource) or resource not in limits:
            continue
        limit = limits[resource]
        if part.read(Quantity).value < limit.read(Quantity).value:
            reason = f"below default {limit.node.shown} of {resource} in line {limit.node.line}"
            yield part.report(f"{reason}, and Kubernetes requires both to be equal", "keep one of the two")


def implied_limits_fit_the_pod(service: DocumentPart) -> Iterator[Problem]:
    """`container.max` without `default`: at most `pod.max`, as it becomes the limit. Refuse a higher one."""
    limits = {*select_amounts(service, "default"), *_list_limited_by_ratio(service)}
    of_pod = select_amounts(service, "max", of="pod")
    for resource, part in select_amounts(service, "max").items():
        if resource in COMPUTE and resource in of_pod and resource not in limits:
            bound = of_pod[resource]
            if part.read(Quantity).value > bound.read(Quantity).value:
                reason = (
                    f"the limit of a container without one, and above the Pod's max {bound.node.shown} of {resource}"
                )
                yield part.report(f"{reason} in line {bound.node.line}", f"lower it, or write default of {resource}")


def amounts_can_be_written(service: DocumentPart) -> Iterator[Problem]:
    """Amounts of `container`: whole numbers of extended resources, multiples of a huge page's size. Refuse others."""
    for word in ASCENDING:
        for resource, part in select_amounts(service, word).items():
            yield from stop_at_invalid(check_can_be_written(resource, part))


def check_can_be_written(resource: str, part: DocumentPart) -> Iterator[Problem]:
    value = part.read(Quantity).value
    if is_extended(resource) and value.denominator != 1:
        yield part.report("an extended resource is a whole number in Kubernetes", "write a whole number")
    if is_huge_pages(resource):
        size = parse_page_size(resource)
        if size is None:
            yield part.report_field("not a size of huge pages", "write hugepages-SIZE, such as hugepages-2Mi")
        elif value % size:
            least = resource.removeprefix(HUGE_PAGES)
            yield part.report(f"huge pages come in multiples of {least}", f"write a multiple of {least}")


def limits_are_meant(service: DocumentPart) -> Iterator[Problem]:
    """`container.max` of cpu and memory: warn about it without `default`, in whose place it becomes the limit."""
    given = {*select_amounts(service, "default"), *_list_limited_by_ratio(service)}
    for resource, part in select_amounts(service, "max").items():
        if resource in COMPUTE and resource not in given:
            gets = "limit" if resource in select_amounts(service, "defaultRequest") else "limit and as its request"
            reason = f"a container that asks for nothing gets all of it as its {gets}, because there is no default"
            yield part.report(reason, f"write default of {resource} too, which may be the same")


def totals_see_every_container(service: DocumentPart) -> Iterator[Problem]:
    """`pod.max` of cpu and memory: warn about it if containers may have no limit, which counts as 0."""
    bounded = {*select_amounts(service, "default"), *select_amounts(service, "max"), *_list_limited_by_ratio(service)}
    bounded |= select_no_limits(service).keys()  # the remedy would contradict these
    for resource, part in select_amounts(service, "max", of="pod").items():
        if resource in COMPUTE and resource not in bounded:
            reason = "containers without a limit count as 0 here, and are unbounded"
            yield part.report(reason, f"write container.default or container.max of {resource} too")


def clamping_has_a_range(service: DocumentPart) -> Iterator[Problem]:
    """`whenOutside`: warn about Clamp without `min`, `max` or `maxLimitRequestRatio` of containers."""
    for chosen in service.select("resources", "whenOutside"):
        bounds = {word for word in _CLAMPED if select_amounts(service, word)}
        if chosen.read(WhenOutside) is WhenOutside.CLAMP and not bounds:
            reason = "only containers are clamped, and theirs have no min, max or maxLimitRequestRatio"
            yield chosen.report(reason, "write one of them, or remove it: a Pod as a whole is always denied")


def huge_pages_have_company(service: DocumentPart) -> Iterator[Problem]:
    """`container.defaultRequest`, `default`: warn about huge pages without cpu or memory, which Kubernetes requires."""
    given = {resource for word in ASCENDING for resource in select_amounts(service, word)}
    for word in ("defaultRequest", "default"):
        for resource, part in select_amounts(service, word).items():
            if is_huge_pages(resource) and given.isdisjoint(DECIDE_QOS):
                reason = "Kubernetes allows huge pages only with cpu or memory: a container without both gets none"
                yield part.report_field(reason, "write a default of cpu or memory too")


def _list_limited_by_ratio(service: DocumentPart) -> set[str]:
    """Return the resources of which each absent limit becomes a multiple of the request."""
    return select_amounts(service, "defaultLimitRatio").keys() & select_amounts(service, "defaultRequest").keys()


def select_amounts(service: DocumentPart, word: str, of: str = "container") -> Mapping[str, DocumentPart]:
    """Return the valid amounts under one field of the range."""
    amounts = service.select("resources", of, word)
    return amounts[0].fields() if amounts else {}


def select_no_limits(service: DocumentPart) -> dict[str, tuple[str, DocumentPart]]:
    """Return the resources in `container.remove` and `forbid`, each with the field and its entry."""
    return {
        part.read(str).removeprefix("limits."): (word, part)
        for word in ("remove", "forbid")
        for part in service.select("resources", "container", word, "*")
    }
