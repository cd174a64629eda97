"""Checks that the API server makes of Pods and workloads: names, images, amounts, tolerations, selectors.

Source: ValidatePodSpec in pkg/apis/core/validation, and ValidateDeploymentSpec in pkg/apis/apps/validation.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from webhook.core.kubernetes.quantity import parse_quantity
from webhook.core.kubernetes.selector_match import selects
from webhook.core.kubernetes.types import LabelSelector

_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")
_OPERATORS = ("Exists", "Equal", "Lt", "Gt")


class ObjectFault(NamedTuple):
    """A field that the API server would reject, with the reason and a remedy."""

    field: str
    reason: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.field}: {self.reason}"


def check_pod(spec: Any, at: str = "spec") -> Iterator[ObjectFault]:
    """Yield the faults of a Pod's spec, as JSON, at the path `at`. Fields of a wrong type are left out."""
    if not isinstance(spec, Mapping):
        return
    if not _list_objects(spec.get("containers")):
        yield ObjectFault(f"{at}.containers", "a Pod needs a container", "add one")
    names = set[str]()
    for field in _CONTAINERS:
        for index, container in enumerate(_list_objects(spec.get(field))):
            where, name = f"{at}.{field}[{index}]", container.get("name")
            if not name:
                yield ObjectFault(f"{where}.name", "required", "give the container a name")
            elif name in names:
                yield ObjectFault(f"{where}.name", f"{name!r} is the name of another container", "rename one of them")
            names.add(str(name))
            if not container.get("image"):
                yield ObjectFault(f"{where}.image", "required", "name the image")
            yield from _check_amounts(container.get("resources"), f"{where}.resources")
    for index, toleration in enumerate(_list_objects(spec.get("tolerations"))):
        yield from _check_toleration(toleration, f"{at}.tolerations[{index}]")


def check_selector(selector: Any, template: Any, at: str = "spec.selector") -> Iterator[ObjectFault]:
    """Yield the fault of a workload's selector that does not select the Pods of its template."""
    if not selector:
        yield ObjectFault(at, "required", "select the labels of the template")
        return
    metadata = template.get("metadata") if isinstance(template, Mapping) else None
    try:
        labels = msgspec.convert((metadata or {}).get("labels") or {}, dict[str, str])
        wanted = msgspec.convert(selector, LabelSelector)
    except (msgspec.ValidationError, AttributeError):
        return  # a wrong type, which the review reports
    if selects(wanted, labels):
        return
    for key, value in (wanted.match_labels or {}).items():
        if labels.get(key) != value:
            has = repr(labels[key]) if key in labels else "absent"
            reason = f"{value!r}, and the label of the template is {has}"
            yield ObjectFault(f"{at}.matchLabels[{key}]", reason, "write the same in both")
            return
    yield ObjectFault(f"{at}.matchExpressions", "the labels of the template do not match", "write the same in both")


def _check_amounts(resources: Any, at: str) -> Iterator[ObjectFault]:
    if not isinstance(resources, Mapping):
        return
    requests, limits = (resources.get(side) or {} for side in ("requests", "limits"))
    if not isinstance(requests, Mapping) or not isinstance(limits, Mapping):
        return
    for name, request in requests.items():
        limit = limits.get(name)
        try:
            is_above = limit is not None and parse_quantity(str(request)) > parse_quantity(str(limit))
        except ValueError:
            continue  # the review reports it
        if is_above:
            reason = f"{request} is above the limit of {limit}"
            yield ObjectFault(f"{at}.requests[{name}]", reason, "lower the request, or raise the limit")


def _check_toleration(toleration: Mapping[str, Any], at: str) -> Iterator[ObjectFault]:
    operator = toleration.get("operator") or "Equal"
    if operator not in _OPERATORS:
        yield ObjectFault(f"{at}.operator", f"{operator!r} is no operator", f"write one of {', '.join(_OPERATORS)}")
    elif operator == "Exists" and toleration.get("value"):
        yield ObjectFault(f"{at}.value", "Exists takes no value", "remove it, or write operator: Equal")
    elif operator != "Exists" and not toleration.get("key"):
        yield ObjectFault(f"{at}.key", f"{operator} needs a key", "add it, or write operator: Exists")


def _list_objects(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []
