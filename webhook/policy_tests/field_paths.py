"""Field paths of objects, as Kubernetes writes them: `spec.containers[api].resources.limits[nvidia.com/gpu]`."""

import re
from collections.abc import Mapping
from typing import Any

_STEP = re.compile(r"""(?:^|\.)([^.\[\]"]+)|\[(?:"([^"\]]+)"|([^\]"]+))\]""")
_LISTS = frozenset({"containers", "initContainers"})
"""Lists whose items are known by name."""
ABSENT = object()
"""The value at a path that leads nowhere."""


def field_steps(path: str) -> tuple[str, ...]:
    """Return the steps of a path. ValueError: it is no path."""
    steps, at = [], 0
    while at < len(path):
        found = _STEP.match(path, at)
        if found is None:
            raise ValueError(path[at:])
        steps.append(next(step for step in found.groups() if step is not None))
        at = found.end()
    return tuple(steps)


def value_at(document: Any, path: str) -> Any:
    """Return the value at a path, ABSENT without one. A step in a list is an index, or the `name` of an item."""
    for step in field_steps(path):
        if isinstance(document, Mapping):
            document = document.get(step, ABSENT)
        elif isinstance(document, list):
            document = _item(document, step)
        else:
            return ABSENT
    return document


def written_field(steps: tuple[str | int, ...]) -> str:
    """Return a path that `value_at` reads, in brackets the items of lists, and keys that are no name of a field."""
    text = ""
    for before, step in zip(("", *steps), steps, strict=False):
        is_field = isinstance(step, str) and re.fullmatch(r"[A-Za-z][A-Za-z0-9]*", step) and before not in _LISTS
        text += (f".{step}" if text else str(step)) if is_field else f"[{step}]"
    return text


def _item(items: list[Any], step: str) -> Any:
    if step.isdecimal():
        return items[int(step)] if int(step) < len(items) else ABSENT
    return next((one for one in items if isinstance(one, Mapping) and one.get("name") == step), ABSENT)
