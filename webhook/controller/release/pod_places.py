"""Places of waiting Pods: in their queue, and among those of their class."""

from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct

from webhook.controller.release.gated_pods import GatedPod
from webhook.core.compiled_policy import CompiledPolicy


class PodPlace(Struct, frozen=True, gc=False):
    """A Pod and its places in its queue and in its class."""

    pod: GatedPod
    queue: str
    place: int
    class_place: int
    class_waiting: int
    is_lifted: bool


def find_class(service: str, compiled: CompiledPolicy) -> str:
    """Return a service's class; "" for one that the policy does not have."""
    known = compiled.services.get(service)
    return known.sla_class if known is not None else ""


def find_queue(pod: GatedPod, compiled: CompiledPolicy) -> str:
    known = compiled.services.get(pod.waiting.service)
    return pod.waiting.service if known is None else known.pool or known.name


def format_name(pod: GatedPod) -> str:
    return f"pod {pod.namespace}/{pod.name}"


def make_places(queue: str, sequence: Sequence[tuple[GatedPod, bool]], compiled: CompiledPolicy) -> Iterable[PodPlace]:
    """Yield the places of one queue's Pods."""
    classes = [find_class(pod.waiting.service, compiled) for pod, _ in sequence]
    totals, before = Counter(classes), Counter[str]()
    for place, ((pod, is_lifted), sla_class) in enumerate(zip(sequence, classes, strict=True), 1):
        before[sla_class] += 1
        yield PodPlace(pod, queue, place, before[sla_class], totals[sla_class], is_lifted)
