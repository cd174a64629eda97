"""Rules of `resources`: a range must be one, as LimitRange's own validation has it."""

from collections.abc import Iterator

from webhook.core.document.parts import Part, sound
from webhook.core.document.problems import Problem
from webhook.core.quantity import Quantity

_ASCENDING = ("min", "defaultRequest", "default", "max")


def ranges_ascend(service: Part) -> Iterator[Problem]:
    """Judge min <= defaultRequest <= default <= max, for containers and Pods, and container's min <= pod's max."""
    for owner in ("container", "pod"):
        for bounds in service.select("resources", owner):
            for index, low in enumerate(_ASCENDING):
                for high in _ASCENDING[index + 1 :]:
                    yield from sound(_ascends(bounds, low, bounds, high, ""))
    for container in service.select("resources", "container"):
        for pod in service.select("resources", "pod"):
            for low in _ASCENDING[:3]:
                yield from sound(_ascends(container, low, pod, "max", "the Pod's "))


def _ascends(below: Part, low: str, above: Part, high: str, whose: str) -> Iterator[Problem]:
    smaller, larger = below.get(low), above.get(high)
    if smaller is None or larger is None:
        return
    limits = larger.fields()
    for resource, part in smaller.fields().items():
        if resource in limits and part.read(Quantity).value > limits[resource].read(Quantity).value:
            bound = limits[resource].node
            reason = f"above {whose}{high} {bound.shown} of {resource} in line {bound.line}"
            yield part.wrong(reason, f"lower it, or raise {whose}{high}")
