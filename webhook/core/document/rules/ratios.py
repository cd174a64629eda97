"""Rules of ratios and `qosClasses` in `resources`: possible values, and defaults that satisfy them."""

from collections.abc import Callable, Iterator
from fractions import Fraction

from webhook.core.container_resources import RangePlan, find_qos_change
from webhook.core.container_resources.plan import COMPUTE, DECIDE_QOS, can_overcommit
from webhook.core.document.rules.resources import select_amounts
from webhook.core.document.yaml.parts import DocumentPart, stop_at_invalid
from webhook.core.document.yaml.problems import Problem
from webhook.core.kubernetes.pod import Container, Pod, PodMetadata, PodSpec
from webhook.core.kubernetes.quantity import Quantity
from webhook.core.policy_fields import QosClass, ResourceRules

_MOST, _LIMIT, _REQUEST = "maxLimitRequestRatio", "defaultLimitRatio", "defaultRequestRatio"
_FROM_1 = ("below 1, and a limit is never below its request", "write 1 or more")
_POSSIBLE: tuple[tuple[str, str, Callable[[Fraction], bool], tuple[str, str]], ...] = (
    ("container", _MOST, lambda ratio: ratio >= 1, _FROM_1),
    ("pod", _MOST, lambda ratio: ratio >= 1, _FROM_1),
    ("container", _LIMIT, lambda ratio: ratio >= 1, _FROM_1),
    ("container", _REQUEST, lambda ratio: 0 < ratio < 1, ("not a share of the limit", "write one such as 0.5")),
)


def ratios_are_possible(service: DocumentPart) -> Iterator[Problem]:
    """`maxLimitRequestRatio`, `defaultLimitRatio`: 1 or more. `defaultRequestRatio`: between 0 and 1.

    Refuse others, and ratios of resources that cannot be overcommitted.
    """
    for owner, word, fits, fault in _POSSIBLE:
        for resource, part in select_amounts(service, word, of=owner).items():
            if not can_overcommit(resource):
                yield part.report_field("Kubernetes requires its request and limit to be equal", "remove it")
            elif not fits(part.read(Quantity).value):
                yield part.report(*fault)


def a_limit_has_one_default(service: DocumentPart) -> Iterator[Problem]:
    """`container.defaultLimitRatio`: resources without `container.default`. Refuse a resource that has both."""
    defaults = select_amounts(service, "default")
    for resource, part in select_amounts(service, _LIMIT).items():
        if resource in defaults:
            reason = f"default of {resource} in line {defaults[resource].node.line} sets the same limits"
            yield part.report_field(reason, "keep one of the two")


def defaults_are_in_ratio(service: DocumentPart) -> Iterator[Problem]:
    """`container.default`, `defaultLimitRatio`, `defaultRequestRatio`: limits within `maxLimitRequestRatio`.

    Refuse defaults by which a limit is more than this ratio times its request.
    """
    for owner in ("container", "pod"):
        for resource, part in select_amounts(service, _MOST, of=owner).items():
            yield from stop_at_invalid(_check_defaults_within(service, resource, part, owner))


def _check_defaults_within(service: DocumentPart, resource: str, most: DocumentPart, owner: str) -> Iterator[Problem]:
    bound = most.read(Quantity).value
    limit, request, times, share = (
        select_amounts(service, word).get(resource) for word in ("default", "defaultRequest", _LIMIT, _REQUEST)
    )
    reason = f"above {owner}.{_MOST} {most.node.shown} of {resource} in line {most.node.line}"
    if limit is not None and request is not None and _read_value(limit) > bound * _read_value(request):
        yield limit.report(f"divided by defaultRequest, {reason}", "lower it, or raise defaultRequest")
    if times is not None and _read_value(times) > bound:
        yield times.report(reason, "lower it")
    if share is not None and _read_value(share) * bound < 1:
        yield share.report(f"the limit divided by it is {reason}", "raise it")


def _read_value(part: DocumentPart) -> Fraction:
    return part.read(Quantity).value


def classes_can_be_reached(service: DocumentPart) -> Iterator[Problem]:
    """`pod.qosClasses`: refuse classes that the defaults rule out, such as BestEffort alone beside requests."""
    words = ("min", "defaultRequest", "default", "max")
    given = {resource for word in words for resource in select_amounts(service, word)}
    for part in service.select("resources", "pod", "qosClasses"):
        classes = set(part.read(list[str]))
        if classes == {QosClass.BEST_EFFORT} and not given.isdisjoint(DECIDE_QOS):
            reason = "the defaults give each container requests, so that no Pod is BestEffort"
            yield part.report_field(reason, "add Burstable, or remove the defaults")
        elif classes == {QosClass.GUARANTEED}:
            shares = select_amounts(service, _REQUEST)
            if not shares.keys().isdisjoint(DECIDE_QOS):
                reason = (
                    f"{_REQUEST} lowers requests that equal their limits, so that Pods written as Guaranteed are denied"
                )
                yield part.report_field(reason, f"add Burstable, or remove {_REQUEST}")


_POD_WITHOUT_REQUESTS = Pod(PodMetadata(), PodSpec(containers=(Container(),)))


def classes_fit_the_defaults(service: DocumentPart) -> Iterator[Problem]:
    """`pod.qosClasses`: warn about a list of all classes, and about a list without the class that the defaults give."""
    for resources in service.select("resources"):
        part = resources.get("pod", "qosClasses")
        if part is None:
            continue
        classes = part.read(list[str])
        if set(classes) == set(QosClass):
            yield part.report_field("has no effect: these are all classes", "remove it")
        change = find_qos_change(_POD_WITHOUT_REQUESTS, RangePlan.from_rules(resources.read(ResourceRules)))
        if change is not None and change[1] not in classes:
            reason = f"a Pod that asks for nothing becomes {change[1]} by the defaults, and is denied"
            yield part.report_field(reason, f"add {change[1]}, or change the defaults of cpu and memory")


def ratios_can_bind(service: DocumentPart) -> Iterator[Problem]:
    """`container.maxLimitRequestRatio`: warn about a ratio above max / min, and about a resource without limits."""
    low, high = select_amounts(service, "min"), select_amounts(service, "max")
    for resource, part in select_amounts(service, _MOST).items():
        if (
            resource in low
            and resource in high
            and _read_value(part) * _read_value(low[resource]) > _read_value(high[resource])
        ):
            yield part.report("above max divided by min, which no container can exceed", "lower it, or remove it")
        set_by = {*select_amounts(service, "default"), *select_amounts(service, _LIMIT), *(COMPUTE & high.keys())}
        if resource not in set_by:
            reason = "a container without a limit is denied, as by LimitRange"
            yield part.report_field(reason, f"write {_LIMIT} or default of {resource} too")
