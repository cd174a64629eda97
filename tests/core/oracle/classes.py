"""Scheduler, priority class and runtime class of a rewritten Pod, and what the API server computes from them."""

from collections.abc import Iterator

from tests.core.oracle.nodes import Json
from tests.core.oracle.policy import find_rule, is_priority_of_user

DEFAULT_SCHEDULER = "default-scheduler"


def has_conflict(pod: Json, placement: Json, field: str) -> bool:
    """Return whether the user chose another scheduler or class; a plugin's default is no choice."""
    wanted, own = placement.get(field), pod["spec"].get(field) or ""
    if wanted is None or own in {"", wanted}:
        return False
    if field == "schedulerName":
        return bool(own != DEFAULT_SCHEDULER)
    return field != "priorityClassName" or is_priority_of_user(pod)


def is_set(pod: Json, placement: Json, field: str) -> bool:
    """Return whether the policy writes the field."""
    wanted = placement.get(field)
    if wanted is None or pod["spec"].get(field) == wanted:
        return False
    return not has_conflict(pod, placement, field) or find_rule(placement, field) == "Override"


_COMPUTED = {
    "schedulerName": (),
    "priorityClassName": ("priority", "preemptionPolicy"),
    "runtimeClassName": ("overhead",),
}
"""Fields that a plugin computes from each field: they are removed exactly if the field changes."""


def find_class_faults(old: Json, new: Json, placement: Json) -> Iterator[str]:
    for field, computed in _COMPUTED.items():
        expected = {name: old["spec"].get(name) for name in (field, *computed)}
        if is_set(old, placement, field):
            expected = {field: placement[field], **dict.fromkeys(computed)}
        found = {name: new["spec"].get(name) for name in (field, *computed)}
        if found != expected:
            yield f"{field}: expected {expected}, found {found}"
