"""View of a Pod: what rules may read, which are the recorded fields, so that a replay judges as the review did."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from math import ceil
from typing import Any, NamedTuple

from webhook.core.kubernetes.pod import Amounts, Container, Pod, Resources
from webhook.core.kubernetes.quantity import parse_quantity

Fields = Mapping[str, str | tuple[int, str]]
"""Field to type, with its number where that is not its place.

A type is `string`, `int`, `bytes` or a message of the table; `int?` may be absent; `[T]` is a list, `{T}` a map from
strings.
"""

ENTRIES_MAX = 50
"""Limit of each list and map of a Pod. No rule judges a Pod with more: the bound on cost counts on it."""
_AMOUNTS_MAX = 500
_TEXT_CHARACTERS_MAX = 1024
_INT_MAX = 2**63 - 1
_QUANTITIES_MAX = 1024

PACKAGE = "podgate"
MESSAGES: Mapping[str, Fields] = {
    "Quantity": {"value": "int", "milliValue": "int"},
    "Amounts": {"cpu": "int?", "memory": "int?", "ephemeralStorage": "int?", "named": "{int}"},
    "Container": {"name": "string", "restartPolicy": "string", "requests": "Amounts", "limits": "Amounts"},
    "Toleration": {
        "key": "string",
        "operator": "string",
        "value": "string",
        "effect": "string",
        "tolerationSeconds": "int?",
    },
    "SpreadConstraint": {"maxSkew": "int", "topologyKey": "string", "whenUnsatisfiable": "string"},
    "Pod": {
        "name": "string",
        "generateName": "string",
        "namespace": "string",
        "labels": "{string}",
        "ownerKind": "string",
        "containers": "[Container]",
        "initContainers": "[Container]",
        "requests": "Amounts",
        "limits": "Amounts",
        "schedulerName": "string",
        "nodeName": "string",
        "nodeSelector": "{string}",
        "tolerations": "[Toleration]",
        "topologySpreadConstraints": "[SpreadConstraint]",
        "priorityClassName": "string",
        "priority": "int?",
        "preemptionPolicy": "string",
        "runtimeClassName": "string",
        "schedulingGates": "[string]",
    },
}
"""The types that expressions know. cpu is in millicores, all other amounts in whole units, rounded up."""

_OWN_FIELDS = {"cpu": "cpu", "memory": "memory", "ephemeral-storage": "ephemeralStorage"}


class RuleSubject(NamedTuple):
    """What a rule reads beside the Pod's fields; `owner_kind`: "" unless a Kubernetes controller creates the Pod."""

    namespace: str
    service: str
    user: str
    owner_kind: str = ""


def list_fields(pod: Pod, subject: RuleSubject) -> dict[str, Any]:
    """Return the fields of the message Pod. ValueError: the Pod has more than rules judge, or an unreadable amount."""
    metadata, spec = pod.metadata, pod.spec
    if len(subject.user) > _TEXT_CHARACTERS_MAX:
        raise ValueError(f"the user's name has more than {_TEXT_CHARACTERS_MAX} characters")
    _bound_amounts(*(spec.containers or ()), *(spec.init_containers or ()))
    fields: dict[str, Any] = {
        "name": metadata.name,
        "generateName": metadata.generate_name,
        "namespace": subject.namespace,
        "labels": _bound("labels", metadata.labels),
        "ownerKind": subject.owner_kind,
        "containers": _list_containers(_bound("containers", spec.containers)),
        "initContainers": _list_containers(_bound("initContainers", spec.init_containers)),
        "schedulerName": spec.scheduler_name,
        "nodeName": spec.node_name,
        "nodeSelector": _bound("nodeSelector", spec.node_selector),
        "priorityClassName": spec.priority_class_name,
        "priority": spec.priority,
        "preemptionPolicy": spec.preemption_policy,
        "runtimeClassName": spec.runtime_class_name,
        **_list_resource_fields(spec.resources),
    }
    if spec.tolerations:
        fields["tolerations"] = [
            {
                "key": toleration.key,
                "operator": toleration.operator,
                "value": toleration.value,
                "effect": toleration.effect,
                "tolerationSeconds": toleration.toleration_seconds,
            }
            for toleration in _bound("tolerations", spec.tolerations)
        ]
    if spec.topology_spread_constraints:
        fields["topologySpreadConstraints"] = [
            {
                "maxSkew": constraint.max_skew,
                "topologyKey": constraint.topology_key,
                "whenUnsatisfiable": constraint.when_unsatisfiable,
            }
            for constraint in _bound("topologySpreadConstraints", spec.topology_spread_constraints)
        ]
    if spec.scheduling_gates:
        fields["schedulingGates"] = [gate.name for gate in _bound("schedulingGates", spec.scheduling_gates)]
    return fields


@lru_cache(_QUANTITIES_MAX)
def compute_quantity(text: str) -> tuple[int, int]:
    """Return a quantity in whole units and in thousandths, rounded up. ValueError: not a quantity."""
    value = parse_quantity(text)
    return min(ceil(value), _INT_MAX), min(ceil(value * 1000), _INT_MAX)


def _bound(field: str, values: Any) -> Any:
    """Return a list or map, None if it is empty. ValueError: it is longer than rules judge."""
    if values is not None and len(values) > ENTRIES_MAX:
        raise ValueError(f"the Pod has more than {ENTRIES_MAX} {field}")
    return values or None


def _bound_amounts(*containers: Container) -> None:
    """Raise ValueError if containers have more amounts together than rules judge."""
    resources = [container.resources for container in containers if container.resources is not None]
    if sum(len(one.requests or ()) + len(one.limits or ()) for one in resources) > _AMOUNTS_MAX:
        raise ValueError(f"the Pod's containers have more than {_AMOUNTS_MAX} requests and limits")


def _list_containers(containers: Iterable[Container] | None) -> list[dict[str, Any]]:
    return [
        {"name": container.name, "restartPolicy": container.restart_policy} | _list_resource_fields(container.resources)
        for container in containers or ()
    ]


def _list_resource_fields(resources: Resources | None) -> dict[str, Any]:
    if resources is None:
        return {}
    found = {"requests": resources.requests, "limits": resources.limits}
    return {name: _list_amount_fields(amounts) for name, amounts in found.items() if amounts}


def _list_amount_fields(amounts: Amounts) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    named: dict[str, int] = {}
    for resource, written in (_bound("resources", amounts) or {}).items():
        if written is None:
            continue
        value, milli_value = compute_quantity(str(written))
        if resource in _OWN_FIELDS:
            fields[_OWN_FIELDS[resource]] = milli_value if resource == "cpu" else value
        else:
            named[resource] = value
    return {**fields, "named": named} if named else fields
