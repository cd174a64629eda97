"""Violations of a service's `resources`: per container, then of the whole Pod."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from webhook.core.container_resources.container_plan import plan_containers, shorten_name
from webhook.core.container_resources.plan import RangePlan
from webhook.core.container_resources.pod_totals import Shares, find_pod_shortfalls
from webhook.core.container_resources.qos import find_qos_class
from webhook.core.container_resources.shortfalls import Shortfall
from webhook.core.findings import Code, Violation
from webhook.core.kubernetes.pod import Pod
from webhook.core.kubernetes.pod_requests import is_sidecar
from webhook.core.policy_fields import QosClass

_KINDS = {"containers": "container", "initContainers": "init container"}
_WHOLE = "the Pod as a whole"
_CURES = {
    QosClass.GUARANTEED: "equal requests and limits of cpu and memory in each container",
    QosClass.BURSTABLE: "requests of cpu or memory",
    QosClass.BEST_EFFORT: "no requests and limits of cpu and memory",
}


class _LocatedShortfall(NamedTuple):
    """A shortfall with its field path, and the name of its container; the whole Pod has no name."""

    place: str
    kind: str
    name: str
    shortfall: Shortfall


def find_violations(pod: Pod, plan: RangePlan, old: Pod | None = None) -> list[Violation]:
    """Return one violation per bound and resource, however many containers violate it. `pod` is already rewritten.

    Shortfalls that `old` already had to the same extent are left out. ValueError: an unreadable quantity.
    """
    plan = plan.later
    shortfalls = _find_shortfalls(pod, plan)
    others = _check_qos_class(pod, plan) if old is None or find_qos_class(old) is not find_qos_class(pod) else []
    if shortfalls and old is not None:
        known = {key: far for located in _find_shortfalls(old, plan) for key, far in _list_excess(located)}
        shortfalls = [
            located for located in shortfalls if any(known.get(key, -1) < far for key, far in _list_excess(located))
        ]
    return [*map(_build_violation, _group(shortfalls)), *others] if shortfalls else others


def _check_qos_class(pod: Pod, plan: RangePlan) -> list[Violation]:
    """Return the violation of `qosClasses`, none if the class is allowed."""
    if plan.qos_classes is None or (found := find_qos_class(pod)) in plan.qos_classes:
        return []
    cures = " or ".join(_CURES[allowed] for allowed in plan.qos_classes)
    text = f"{_WHOLE}: its QoS class is {found}, only {' or '.join(plan.qos_classes)} is allowed: write {cures}"
    return [Violation(Code.RESOURCES_OUTSIDE, "spec.containers[*].resources", "qosClasses", text)]


def _find_shortfalls(pod: Pod, plan: RangePlan) -> list[_LocatedShortfall]:
    found: list[_LocatedShortfall] = []
    if not plan.judges and not plan.pod:
        return found
    running: list[Shares] = []
    starting: list[tuple[Shares, bool]] = []
    for field, index, container, shape in plan_containers(pod, plan):
        for shortfall in shape.shortfalls:
            place = f"spec.{field}[{index}].resources"
            found.append(_LocatedShortfall(place, _KINDS[field], shorten_name(container), shortfall))
        if field == "containers":
            running.append(shape.taken)
        else:
            starting.append((shape.taken, is_sidecar(container)))
    if plan.pod or pod.spec.resources is not None:
        place = "spec.containers[*].resources" if pod.spec.resources is None else "spec.resources"
        try:
            found += [
                _LocatedShortfall(place, _WHOLE, "", shortfall)
                for shortfall in find_pod_shortfalls(pod, plan, running, starting)
            ]
        except ValueError as error:
            raise ValueError(f"{_WHOLE}: {error}") from None
    return found


def _list_excess(located: _LocatedShortfall) -> Iterator[tuple[tuple[str, str, str, str], int]]:
    """Yield the distance of each side from its bound, by field, resource and bound."""
    for side, far in located.shortfall.excess:
        yield (located.place, side, located.shortfall.name, located.shortfall.word), far


def _group(shortfalls: Iterable[_LocatedShortfall]) -> Iterable[list[_LocatedShortfall]]:
    """Group equal shortfalls of several containers: a tenant chooses how many containers there are."""
    groups: dict[tuple[str, Code, str, str], list[_LocatedShortfall]] = {}
    for located in shortfalls:
        shortfall = located.shortfall
        groups.setdefault((located.kind, shortfall.code, shortfall.name, shortfall.word), []).append(located)
    return groups.values()


def _build_violation(shortfalls: list[_LocatedShortfall]) -> Violation:
    """Return one violation: the first container's text, and the number of others."""
    first, shortfall = shortfalls[0], shortfalls[0].shortfall
    whose = f"{first.kind} {first.name}".rstrip() + (f" and {len(shortfalls) - 1} more" if len(shortfalls) > 1 else "")
    side = shortfall.excess[0][0]
    return Violation(
        code=shortfall.code,
        field=f"{first.place}.{side}[{shortfall.name}]",
        owed=f"{shortfall.word}[{shortfall.name}] of {', '.join(located.place for located in shortfalls)}",
        text=f"{whose}: {shortfall.text}",
    )
