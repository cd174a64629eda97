"""Conversion of decoded fields of a Pod into those that rules read, with limits on their number and length."""

from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from math import ceil
from typing import Any

from webhook.core.kubernetes.quantity import parse_quantity
from webhook.core.pod_rules.fields import ENTRIES_MAX, NESTED_MAX, TEXT_CHARACTERS_MAX, VOLUME_SOURCES, Field

AMOUNT_FIELDS = ("requests", "limits")
NAMES_OF_OBJECTS = frozenset({"schedulingGates", "imagePullSecrets"})
"""Lists of objects with only a name; a rule reads the names."""
INT_MAX = 2**63 - 1
_QUANTITIES_MAX = 1024
_OWN_FIELDS = {"cpu": "cpu", "memory": "memory", "ephemeral-storage": "ephemeralStorage"}
_NESTED = (dict, list)
_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""An annotation with a copy of the Pod, which no rule reads."""


def name_fields(message: str, source: str) -> list[Field]:
    """Return the fields that a field of Kubernetes' object becomes."""
    return [(message, name) for name in (AMOUNT_FIELDS if source == "resources" else (source,))]


def convert_field(name: str, value: Any) -> dict[str, Any]:
    """Return fields of the message Pod for a field of a Pod. ValueError: more or longer than rules judge."""
    if name == "resources":
        return _convert_resources(value)
    if name in NAMES_OF_OBJECTS:
        return {name: [entry.get("name", "") for entry in value]}
    if name == "volumes":
        return {name: [_convert_volume(volume) for volume in value]}
    if name == "annotations":
        return {name: _bound_annotations(value)}
    return {name: value}


def convert_containers(containers: list[dict[str, Any]], excess: dict[Field, str]) -> list[dict[str, Any]]:
    """Return containers, in place, without fields that have more than rules judge."""
    counts: Counter[str] = Counter()
    for container in containers:
        resources = container.pop("resources", None) or {}
        counts["resources"] += sum(map(len, resources.values()))
        counts.update({name: _count_entries(value) for name, value in container.items() if isinstance(value, _NESTED)})
        try:
            container.update(_convert_resources(resources))
        except ValueError as error:
            excess |= dict.fromkeys(name_fields("Container", "resources"), f"a container's resources: {error}")
    for name in [name for name, count in counts.items() if count > NESTED_MAX]:
        reason = f"the containers' {name} have more than {NESTED_MAX} entries together"
        for _, field in name_fields("Container", name):
            excess["Container", field] = reason
            for container in containers:
                container.pop(field, None)
    return containers


def _count_entries(value: Any) -> int:
    """Return how many entries lists have in a value, with the amounts in `resources`."""
    if isinstance(value, list):
        return len(value) + sum(map(_count_entries, value))
    return sum(map(_count_entries, value.values())) if isinstance(value, dict) else 0


def _convert_resources(resources: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _convert_amounts(resources[name]) for name in AMOUNT_FIELDS if resources.get(name)}


def _convert_amounts(amounts: Mapping[str, str | float | None]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    named: dict[str, int] = {}
    for resource, written in amounts.items():
        if written is None:
            continue
        value, milli_value = compute_quantity(str(written))
        if resource in _OWN_FIELDS:
            fields[_OWN_FIELDS[resource]] = milli_value if resource == "cpu" else value
        else:
            named[resource] = value
    return {**fields, "named": named} if named else fields


def _convert_volume(volume: Mapping[str, Any]) -> dict[str, Any]:
    kind = next((name for name, value in volume.items() if name != "name" and value is not None), "emptyDir")
    fields: dict[str, Any] = {"name": _check_text(volume.get("name", "")), "kind": kind}
    if kind in VOLUME_SOURCES:
        source = volume.get(kind, {})
        if not isinstance(source, Mapping):
            raise ValueError(f"{kind} is no object")
        fields[kind] = {name: _check_text(source[name]) for name in VOLUME_SOURCES[kind] if source.get(name)}
    return fields


def _check_text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > TEXT_CHARACTERS_MAX:
        raise ValueError(f"not a text of at most {TEXT_CHARACTERS_MAX} characters")
    return value


def _bound_annotations(annotations: dict[str, str]) -> dict[str, str]:
    found = {name: value for name, value in annotations.items() if name != _APPLIED}
    if len(found) > ENTRIES_MAX:
        raise ValueError(f"more than {ENTRIES_MAX}")
    longest = max(found, key=lambda name: len(found[name]), default="")
    if len(found.get(longest, "")) > TEXT_CHARACTERS_MAX:
        raise ValueError(f"{longest} has more than {TEXT_CHARACTERS_MAX} characters")
    return found


@lru_cache(_QUANTITIES_MAX)
def compute_quantity(text: str) -> tuple[int, int]:
    """Return a quantity in whole units and in thousandths, rounded up. ValueError: not a quantity."""
    value = parse_quantity(text)
    return min(ceil(value), INT_MAX), min(ceil(value * 1000), INT_MAX)
