"""Patch of a Pod's resources: defaults for absent amounts, and under Clamp the bound for amounts out of range."""

from functools import lru_cache

from msgspec import UnsetType
from msgspec.structs import replace

from webhook.core.container_resources.container_plan import ContainerPlan, ResourceChange, plan_containers
from webhook.core.container_resources.plan import RangePlan
from webhook.core.container_resources.qos import find_common_class
from webhook.core.kubernetes.pod import Amounts, Pod, Resources
from webhook.core.patch import PatchOperation, format_pointer

_NO_LIMITS, _NO_REQUESTS, _NOTHING = 1, 2, 4


def build_operations(pod: Pod, plan: RangePlan) -> list[PatchOperation]:
    """Return the operations that set each container's amounts; empty if none is needed.

    f(f(x)) = f(x), if the second f is of `plan.later`.
    Requests that equal the limit are written too, although the API server would default them: the patched Pod is then
    exactly what is stored. ValueError: an unreadable quantity.
    """
    if not plan.judges:
        return []
    found: list[PatchOperation] = []
    for field, index, container, shape in plan_containers(pod, plan):
        if shape.limits or shape.requests:
            found += _build_container_operations(field, index, shape, _find_missing_maps(container.resources))
    return found


def apply_plan(pod: Pod, plan: RangePlan) -> Pod:
    """Return the Pod with these operations applied, which takes much less than a patch of its JSON."""
    if not plan.judges:
        return pod
    spec = pod.spec
    made = {"containers": list(spec.containers or ()), "initContainers": list(spec.init_containers or ())}
    for field, index, container, shape in plan_containers(pod, plan):
        if shape.limits or shape.requests:
            own = container.resources or Resources()
            amounts = Resources(_change_map(own.requests, shape.requests), _change_map(own.limits, shape.limits))
            made[field][index] = replace(container, resources=amounts)
    return replace(
        pod,
        spec=replace(
            spec,
            containers=spec.containers and tuple(made["containers"]),
            init_containers=spec.init_containers and tuple(made["initContainers"]),
        ),
    )


def _change_map(amounts: Amounts | None, changes: tuple[ResourceChange, ...]) -> Amounts | None:
    if not changes:
        return amounts
    changed = {**(amounts or {}), **_build_map(changes)}
    return {name: amount for name, amount in changed.items() if not isinstance(amount, UnsetType)}


def find_qos_change(pod: Pod, plan: RangePlan) -> tuple[str, str] | None:
    """Return a Pod's QoS class before and after these operations, None if it does not change."""
    if not plan.judges or pod.spec.resources is not None:
        return None  # Pod-level resources decide the class, and are never rewritten
    classes = {shape.classes for _, _, _, shape in plan_containers(pod, plan)}
    before, after = (find_common_class(of_container[side] for of_container in classes) for side in (0, 1))
    return None if before is after else (before, after)


def _find_missing_maps(resources: Resources | None) -> int:
    """Return which maps a container does not have."""
    if resources is None:
        return _NOTHING
    return (_NO_LIMITS if resources.limits is None else 0) | (_NO_REQUESTS if resources.requests is None else 0)


@lru_cache(maxsize=8192)
def _build_container_operations(field: str, index: int, shape: ContainerPlan, form: int) -> tuple[PatchOperation, ...]:
    """Return the operations of one container; maps that it does not have are added whole."""
    place = format_pointer("spec", field, index)
    if form == _NOTHING:
        sides = {"limits": _build_map(shape.limits), "requests": _build_map(shape.requests)}
        return (
            PatchOperation("add", f"{place}/resources", {side: amounts for side, amounts in sides.items() if amounts}),
        )
    found: list[PatchOperation] = []
    for side, lacking, changes in (
        ("limits", form & _NO_LIMITS, shape.limits),
        ("requests", form & _NO_REQUESTS, shape.requests),
    ):
        if lacking and changes:
            found.append(PatchOperation("add", f"{place}/resources/{side}", _build_map(changes)))
        else:
            found += [PatchOperation(change.operation, place + change.path, change.text) for change in changes]
    return tuple(found)


def is_limit_removal(operation: PatchOperation) -> bool:
    return operation.op == "remove" and "/resources/limits/" in operation.path


def _build_map(changes: tuple[ResourceChange, ...]) -> dict[str, str | UnsetType]:
    return {change.name: change.text for change in changes}
