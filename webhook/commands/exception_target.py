"""Targets of exceptions as people write them: deployments/web, and label selectors as kubectl reads them."""

import re
from typing import Any

from webhook.commands.explain_target import parse_target
from webhook.errors import UserError

_PARTS = re.compile(r",(?![^(]*\))")
_KEY = r"(?P<key>[\w./-]+)"
_EQUAL = re.compile(rf"{_KEY}\s*==?\s*(?P<value>[\w.-]*)", re.ASCII)
_UNEQUAL = re.compile(rf"{_KEY}\s*!=\s*(?P<values>[\w.-]*)", re.ASCII)
_AMONG = re.compile(rf"{_KEY}\s+(?P<operator>in|notin)\s*\((?P<values>[\w.,\s-]*)\)", re.ASCII)
_PRESENT = re.compile(rf"(?P<absent>!?)\s*{_KEY}", re.ASCII)


def parse_exception_target(workload: str | None, pods: str | None, namespace: str | None) -> dict[str, Any]:
    """Return the fields that make an entry an exception; empty for the whole service. UserError: not understood."""
    if workload is None and pods is None:
        if namespace is not None:
            raise UserError("--namespace: without --workload or --pods", "name the workload, or leave -n out")
        return {}
    if workload is not None and pods is not None:
        raise UserError("--workload and --pods exclude each other", "give one of the two")
    if namespace is None:
        raise UserError("--namespace: missing", "give the namespace of the Pods, such as -n shop")
    if pods is not None:
        return {"pods": {"namespace": namespace, "selector": parse_selector(pods)}}
    found = parse_target((workload or "",), namespace)
    if found.kind is None:
        remedy = "write deployments/NAME, statefulsets/NAME, jobs/NAME or the like, or select Pods with --pods"
        raise UserError(f"--workload: {workload!r}: not a workload whose Pods Kubernetes creates", remedy)
    return {"workload": {"namespace": found.namespace, "kind": found.kind.kind, "name": found.name}}


def parse_selector(text: str) -> dict[str, Any]:
    """Return a label selector as the policy writes it. UserError: not understood."""
    labels: dict[str, str] = {}
    expressions: list[dict[str, Any]] = []
    for part in filter(None, (part.strip() for part in _PARTS.split(text))):
        if found := _EQUAL.fullmatch(part):
            if labels.setdefault(found["key"], found["value"]) != found["value"]:
                raise UserError(f"--pods: {found['key']} is given two values", "keep one of the two")
        elif found := _UNEQUAL.fullmatch(part):
            expressions.append({"key": found["key"], "operator": "NotIn", "values": [found["values"]]})
        elif found := _AMONG.fullmatch(part):
            values = [value.strip() for value in found["values"].split(",")]
            operator = "In" if found["operator"] == "in" else "NotIn"
            expressions.append({"key": found["key"], "operator": operator, "values": values})
        elif found := _PRESENT.fullmatch(part):
            expressions.append({"key": found["key"], "operator": "DoesNotExist" if found["absent"] else "Exists"})
        else:
            remedy = "write it as for kubectl, such as app=web or 'app=web,tier in (a,b)'"
            raise UserError(f"--pods: {part!r} is no label selector", remedy)
    return {
        **({"matchLabels": labels} if labels else {}),
        **({"matchExpressions": expressions} if expressions else {}),
    }
