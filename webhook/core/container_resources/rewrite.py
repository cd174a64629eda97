"""The patch of a Pod's resources: what is missing is added, and under Clamp what is outside is brought to the bound."""

from functools import lru_cache

from webhook.core.container_resources.container_cache import ContainerPlan, ResourceChange, shapes
from webhook.core.container_resources.plan import RangePlan
from webhook.core.container_resources.qos import common
from webhook.core.kubernetes.pod import Pod, Resources
from webhook.core.patch import PatchOperation, pointer

_NO_LIMITS, _NO_REQUESTS, _NOTHING = 1, 2, 4


def operations(pod: Pod, plan: RangePlan) -> list[PatchOperation]:
    """Return what gives each container its amounts; empty where it has them. f(f(x)) = f(x).

    A request that is its limit is written as well, though the API server would: object and patch are what is stored.
    ValueError: an unreadable quantity.
    """
    if not plan.rules:
        return []
    found: list[PatchOperation] = []
    for field, index, container, shape in shapes(pod, plan):
        if shape.limits or shape.requests:
            found += _of_one(field, index, shape, _form(container.resources))
    return found


def qos_change(pod: Pod, plan: RangePlan) -> tuple[str, str] | None:
    """Return a Pod's QoS class before and after these operations, None where they leave it."""
    if not plan.rules or pod.spec.resources is not None:
        return None  # the Pod's own resources come first, and are never rewritten
    classes = {shape.classes for _, _, _, shape in shapes(pod, plan)}
    before, after = (common(one[side] for one in classes) for side in (0, 1))
    return None if before is after else (before, after)


def _form(resources: Resources | None) -> int:
    """Return which maps a container lacks."""
    if resources is None:
        return _NOTHING
    return (_NO_LIMITS if resources.limits is None else 0) | (_NO_REQUESTS if resources.requests is None else 0)


@lru_cache(maxsize=8192)
def _of_one(field: str, index: int, shape: ContainerPlan, form: int) -> tuple[PatchOperation, ...]:
    """Return the operations of one container: whole maps where there are none, each with values of its own."""
    place = pointer("spec", field, index)
    if form == _NOTHING:
        sides = {"limits": _map(shape.limits), "requests": _map(shape.requests)}
        return (
            PatchOperation("add", f"{place}/resources", {side: amounts for side, amounts in sides.items() if amounts}),
        )
    found: list[PatchOperation] = []
    for side, lacking, changes in (
        ("limits", form & _NO_LIMITS, shape.limits),
        ("requests", form & _NO_REQUESTS, shape.requests),
    ):
        if lacking and changes:
            found.append(PatchOperation("add", f"{place}/resources/{side}", _map(changes)))
        else:
            found += [PatchOperation(change.operation, place + change.path, change.text) for change in changes]
    return tuple(found)


def _map(changes: tuple[ResourceChange, ...]) -> dict[str, str]:
    return {change.name: change.text for change in changes}
