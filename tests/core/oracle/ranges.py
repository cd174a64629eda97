"""Resources of a rewritten Pod: every container satisfies the ranges, all else is unchanged."""

from collections.abc import Iterator
from typing import Any

from tests.core.api_server import apply_defaults
from tests.core.generating.vocabulary import OUR_ANNOTATION, OUR_LABEL, SERVICE
from tests.core.oracle.nodes import Json
from tests.core.ranges_model import (
    Box,
    is_ignored,
    is_removed,
    list_all_boxes,
    list_named_resources,
    parse_rule_amount,
    select_rules,
    settle_all,
)

_FIELDS = ("containers", "initContainers")


def find_range_faults(old: Json, new: Json, rules: dict[str, Any]) -> Iterator[str]:
    found = {box.place: box for box in list_all_boxes(apply_defaults(dict(new)))}
    again = _is_rewritten(old)
    for (place, name), expected in settle_all(dict(old), rules, again=again).items():
        box = found.get(place)
        values = (box.requests.get(name), box.limits.get(name)) if box is not None else (None, None)
        if values != (expected.request, expected.limit):
            yield f"resources: {place}: {name} is {values}, expected {expected}"
    for field in _FIELDS:
        before, after = (_strip_containers(pod["spec"].get(field), rules) for pod in (old, new))
        if before != after:
            yield f"resources: {field}: the rest was {before}, is {after}"


def _is_rewritten(pod: Json) -> bool:
    labels, annotations = (pod["metadata"].get(field) or {} for field in ("labels", "annotations"))
    return labels.get(OUR_LABEL) == SERVICE and OUR_ANNOTATION in annotations


def find_written_faults(old: Json, new: Json, rules: dict[str, Any]) -> Iterator[str]:
    """Check that no default changes an amount that the user wrote: only `Clamp` does.

    The one exception: the API server sets an absent request to its limit, so that an equal one may be a default.
    """
    before = {box.place: box for box in list_all_boxes(dict(old))}
    for box in list_all_boxes(dict(new)):
        own = before[box.place]
        for name in {**own.requests, **own.limits}:
            if not _may_be_absent(old, own, name, rules):
                yield from _find_changes(own, box, name, select_rules(rules, box))
        for name, limit in box.limits.items():
            is_of_the_user = name in own.limits and own.requests.get(name, 0) > own.limits[name]
            if box.requests.get(name, 0) > limit and not is_of_the_user:
                yield f"resources: {box.place}: {name}: its request is above its limit"


def _may_be_absent(pod: Json, own: Box, name: str, rules: dict[str, Any]) -> bool:
    request, limit = own.requests.get(name), own.limits.get(name)
    has_share = parse_rule_amount(rules, "container", "defaultRequestRatio", name) is not None
    return has_share and request is not None and request == limit and not _is_rewritten(pod)


def _find_changes(own: Box, box: Box, name: str, rules: dict[str, Any]) -> Iterator[str]:
    low, high, most = (
        parse_rule_amount(rules, "container", word, name) for word in ("min", "max", "maxLimitRequestRatio")
    )
    clamps = rules["whenOutside"] == "Clamp"
    for side, written, final in (
        ("limit", own.limits.get(name), box.limits.get(name)),
        ("request", own.requests.get(name), box.requests.get(name)),
    ):
        if written is None or final == written or (clamps and final in {low, high}):
            continue
        if side == "limit" and final is None and is_removed(rules, name) and not is_ignored(rules, box.name):
            continue
        is_raised = final is not None and final > written and most is not None
        if not (clamps and side == "request" and is_raised):
            yield f"resources: {box.place}: {name}: its {side} was {written}, and is {final}"


def _strip_containers(containers: list[Json] | None, rules: dict[str, Any]) -> list[Any] | None:
    """Return containers without the amounts that rules may write, and without empty maps of amounts."""
    if containers is None:
        return None
    names = {*list_named_resources(rules), "cpu", "memory"}
    return [
        container if is_ignored(rules, container["name"]) else _strip_container(container, names)
        for container in containers
    ]


def _strip_container(container: Json, names: set[str]) -> Json:
    resources = container.get("resources") or {}
    kept: dict[str, Any] = {key: value for key, value in resources.items() if key not in {"requests", "limits"}}
    for side in ("requests", "limits"):
        others = {name: value for name, value in (resources.get(side) or {}).items() if name not in names}
        if others:
            kept[side] = others
    rest = {key: value for key, value in container.items() if key != "resources"}
    return {**rest, "resources": kept}
