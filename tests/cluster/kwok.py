"""Simulated Nodes, and the permissions of kwok, which keeps them Ready."""

from collections.abc import Iterable
from typing import Any

ZONE = "topology.kubernetes.io/zone"

_ALL = ["get", "list", "watch", "create", "update", "patch", "delete"]
_RULES = [
    {"apiGroups": [""], "resources": ["events"], "verbs": _ALL},
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": [""], "resources": ["nodes/status", "pods/status"], "verbs": ["update", "patch"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "update", "patch", "delete"]},
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": _ALL},
]
_RBAC = "rbac.authorization.k8s.io"
KWOK_OBJECTS: tuple[dict[str, Any], ...] = (
    {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "kwok-controller"},
        "rules": _RULES,
    },
    {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "kwok-controller"},
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": "kwok-controller"},
        "subjects": [{"apiGroup": _RBAC, "kind": "User", "name": "kwok-controller"}],
    },
)


def node(name: str, taints: Iterable[dict[str, str]] = (), **labels: str) -> dict[str, Any]:
    """Return a large Node. `zone=` sets the well-known label; other labels have their own names."""
    zone = labels.pop("zone", None)
    well_known = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", **({ZONE: zone} if zone else {})}
    capacity = {"cpu": "64", "memory": "256Gi", "pods": "500"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {**well_known, **labels}},
        "spec": {"taints": list(taints)},
        "status": {"allocatable": capacity, "capacity": capacity},
    }


NODES = tuple(node(f"node-{zone}{number}", zone=f"zone-{zone}") for zone in "ab" for number in (1, 2))


def is_usable(document: dict[str, Any] | None) -> bool:
    """Whether the scheduler can use a Node: it is Ready, and the taint of new Nodes is removed."""
    if document is None:
        return False
    conditions = document.get("status", {}).get("conditions", [])
    ready = any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)
    taints = {taint["key"] for taint in document["spec"].get("taints", [])}
    return ready and "node.kubernetes.io/not-ready" not in taints
