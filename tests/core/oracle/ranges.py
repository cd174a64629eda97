"""Resources of a rewritten Pod: every container satisfies the ranges, all else is unchanged."""

from collections.abc import Iterator
from typing import Any

from tests.core.api_server import defaulted
from tests.core.generating.vocabulary import OUR_ANNOTATION, OUR_LABEL, SERVICE
from tests.core.oracle.nodes import Json
from tests.core.ranges_model import all_boxes, all_settled, is_ignored, named

_FIELDS = ("containers", "initContainers")


def range_faults(old: Json, new: Json, rules: dict[str, Any]) -> Iterator[str]:
    found = {box.place: box for box in all_boxes(defaulted(dict(new)))}
    labels, annotations = (old["metadata"].get(field) or {} for field in ("labels", "annotations"))
    again = labels.get(OUR_LABEL) == SERVICE and OUR_ANNOTATION in annotations
    for (place, name), expected in all_settled(dict(old), rules, again=again).items():
        box = found.get(place)
        values = (box.requests.get(name), box.limits.get(name)) if box is not None else (None, None)
        if values != (expected.request, expected.limit):
            yield f"resources: {place}: {name} is {values}, expected {expected}"
    for field in _FIELDS:
        before, after = (_without_amounts_of_rules(one["spec"].get(field), rules) for one in (old, new))
        if before != after:
            yield f"resources: {field}: the rest was {before}, is {after}"


def _without_amounts_of_rules(containers: list[Json] | None, rules: dict[str, Any]) -> list[Any] | None:
    """Return containers without the amounts that rules may write, and without empty maps of amounts."""
    if containers is None:
        return None
    names = {*named(rules), "cpu", "memory"}
    return [one if is_ignored(rules, one["name"]) else _stripped(one, names) for one in containers]


def _stripped(container: Json, names: set[str]) -> Json:
    resources = container.get("resources") or {}
    kept: dict[str, Any] = {key: value for key, value in resources.items() if key not in {"requests", "limits"}}
    for side in ("requests", "limits"):
        others = {name: value for name, value in (resources.get(side) or {}).items() if name not in names}
        if others:
            kept[side] = others
    rest = {key: value for key, value in container.items() if key != "resources"}
    return {**rest, "resources": kept}
