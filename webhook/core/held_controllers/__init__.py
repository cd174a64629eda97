"""Held controllers: workload controllers whose Pods were denied, and which of them to wake once there is room."""

from webhook.core.held_controllers.controller import (
    CREATING_KINDS,
    ControllerReference,
    CreatingController,
    held_by,
)
from webhook.core.held_controllers.demand import Demand, demand_of
from webhook.core.held_controllers.free_capacity import FreeCapacity
from webhook.core.held_controllers.selection import HeldController, Selection, select

__all__ = [
    "CREATING_KINDS",
    "ControllerReference",
    "CreatingController",
    "Demand",
    "FreeCapacity",
    "HeldController",
    "Selection",
    "demand_of",
    "held_by",
    "select",
]
