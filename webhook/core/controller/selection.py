"""Selection of the held controllers to wake: as many as there is room for, by class, then by age of the denial."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from webhook.core.controller.demand import Demand
from webhook.core.controller.free_capacity import FreeCapacity
from webhook.core.controller.held_controller import ControllerReference


class HeldController(Struct, frozen=True):
    """A controller that lacks Pods. `refused_us`: when the first of them was denied.

    It may be woken from `next_us`. Not `settled`: it was just woken, and may be creating Pods.
    """

    reference: ControllerReference
    demand: Demand
    missing: int
    refused_us: int
    settled: bool = True
    next_us: int = 0

    @property
    def order(self) -> tuple[int, int, str]:
        return -self.demand.priority, self.refused_us, self.reference.uid


class Selection(Struct, frozen=True):
    """`woken`, in order. `due_us`: when to select again, by tag; a past moment or 0 for soon: no moment is known."""

    woken: Sequence[HeldController]
    due_us: Mapping[str, int]


def select(held: Iterable[HeldController], free: FreeCapacity, now_us: int, most: int) -> Selection:
    """Select controllers, at most `most`.

    Room for those that were just woken stays reserved: their Pods may not be charged yet. What a pool frees is for the
    first controller that waits for it, even if a Pod of a later one is smaller.
    """
    ordered = sorted(held, key=lambda controller: controller.order)
    for controller in ordered:
        if not controller.settled:
            free.take(controller.demand, controller.missing)
    woken: list[HeldController] = []
    due_us: dict[str, int] = {}
    for controller in ordered:
        moment_us = 0
        pods = min(controller.missing, free.count_fitting_pods(controller.demand))
        if not controller.settled or controller.next_us > now_us:
            moment_us = controller.next_us
        elif pods and len(woken) < most:
            free.take(controller.demand, pods)
            woken.append(controller)
            continue
        elif not pods:
            moment_us = free.find_free_at_us(controller.demand)
            free.reserve_pool(controller.demand)
        tag = controller.demand.tag
        due_us[tag] = min(due_us.get(tag, moment_us), moment_us)
    return Selection(woken, due_us)
