"""Outdated amounts: requests and limits that an earlier call wrote for the service that a new Pod has left."""

from collections.abc import Collection, Iterator
from typing import NamedTuple

from msgspec import UnsetType
from msgspec.structs import replace

from webhook.core.container_resources.container_plan import plan_containers
from webhook.core.container_resources.plan import RangePlan
from webhook.core.kubernetes.pod import Amounts, Container, Pod, Resources
from webhook.core.kubernetes.pod_requests import Side, parse_nano
from webhook.core.kubernetes.sent_fields import SentFields
from webhook.core.patch import PatchOperation, remove

_SIDES: tuple[Side, Side] = ("requests", "limits")
NO_RESOURCES = Resources()


class AmountPlace(NamedTuple):
    """Where an amount is: the list of containers, the container in it, the side, and the resource."""

    field: str
    container: int
    side: Side
    name: str


def remove_written_amounts(pod: Pod, former: RangePlan) -> list[PatchOperation]:
    """Return the operations that remove what the plan of the service that a new Pod has left wrote into it.

    An amount counts as written if the Pod's creator did not send it, and the plan writes it where it is absent. Another
    webhook may have written the request that a limit was chosen for, before that call.
    ValueError: an unreadable quantity.
    """
    unsent = frozenset(_list_unsent(pod, former))
    if not unsent:
        return []
    written = _find_written(pod, former, unsent)
    kept = {place for place in unsent if place.side == "requests"} - written
    written |= _find_written(pod, former, unsent - kept)
    return [remove("spec", *place[:2], "resources", *place[2:]) for place in sorted(written)]


def list_containers(pod: Pod) -> Iterator[tuple[str, int, Container]]:
    """Yield each container with the name of its list and its index."""
    for field, containers in (("containers", pod.spec.containers), ("initContainers", pod.spec.init_containers)):
        for index, container in enumerate(containers or ()):
            yield field, index, container


def is_sent(sent: SentFields, container: Container, place: AmountPlace) -> bool:
    """Return whether a Pod's creator sent an amount of a container."""
    return sent.has("spec", place.field, f'k:{{"name":"{container.name}"}}', "resources", *place[2:])


def drop_amounts(pod: Pod, places: Collection[AmountPlace]) -> Pod:
    """Return a Pod without some of its amounts."""
    made: dict[str, list[Container]] = {"containers": [], "initContainers": []}
    for field, index, container in list_containers(pod):
        own = container.resources or NO_RESOURCES
        requests, limits = (_drop(getattr(own, side), field, index, side, places) for side in _SIDES)
        changed = replace(container, resources=replace(own, requests=requests, limits=limits))
        made[field].append(container if container.resources is None else changed)
    spec = pod.spec
    return replace(
        pod,
        spec=replace(
            spec,
            containers=spec.containers and tuple(made["containers"]),
            init_containers=spec.init_containers and tuple(made["initContainers"]),
        ),
    )


def _drop(
    amounts: Amounts | None, field: str, index: int, side: Side, places: Collection[AmountPlace]
) -> Amounts | None:
    if amounts is None:
        return None
    return {name: amount for name, amount in amounts.items() if AmountPlace(field, index, side, name) not in places}


def _list_unsent(pod: Pod, plan: RangePlan) -> Iterator[AmountPlace]:
    sent = SentFields(pod.metadata)
    for field, index, container in list_containers(pod):
        for side in _SIDES:
            for name in getattr(container.resources or NO_RESOURCES, side) or ():
                place = AmountPlace(field, index, side, name)
                if name in plan.names and not is_sent(sent, container, place):
                    yield place


def _find_written(pod: Pod, plan: RangePlan, absent: Collection[AmountPlace]) -> set[AmountPlace]:
    """Return which amounts of a Pod the plan writes where those of `absent` are absent."""
    has = {(field, index): container.resources or NO_RESOURCES for field, index, container in list_containers(pod)}
    found = set[AmountPlace]()
    for field, index, _, shape in plan_containers(drop_amounts(pod, absent), plan):
        for side in _SIDES:
            for change in shape.requests if side == "requests" else shape.limits:
                own = (getattr(has[field, index], side) or {}).get(change.name)
                if own is None or isinstance(change.text, UnsetType) or parse_nano(str(own)) != parse_nano(change.text):
                    continue
                found.add(AmountPlace(field, index, side, change.name))
    return found.intersection(absent)
