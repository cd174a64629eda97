"""Pods of a DaemonSet: one for each node, with affinity to its name and the tolerations that all DaemonSets have.

Source: pkg/controller/daemon/util/daemonset_util.go of Kubernetes 1.36.
"""

from typing import Any

from webhook.core.kubernetes.label_constraints import UnresolvedLabel
from webhook.core.workloads.workload import (
    HASH,
    REVISION_LABEL,
    Additions,
    Json,
    WorkloadObject,
    read_items,
    read_mapping,
)

GENERATION_LABEL = "pod-template-generation"
_GENERATION_ANNOTATION = "deprecated.daemonset.template.generation"


def build_daemon_set_additions(workload: WorkloadObject) -> Additions:
    generation = read_mapping(workload.metadata.get("annotations")).get(_GENERATION_ANNOTATION)
    known = generation if workload.is_stored and isinstance(generation, str) else None
    labels = {
        REVISION_LABEL: UnresolvedLabel(f"<{REVISION_LABEL}>", HASH),
        GENERATION_LABEL: known or UnresolvedLabel(f"<{GENERATION_LABEL}>", "[1-9][0-9]*"),
    }
    spec = workload.pod_spec
    added = {"tolerations": _add_daemon_tolerations(spec), "affinity": _pin_to_node(spec)}
    return Additions(workload.name, labels, spec=added)


def _add_daemon_tolerations(spec: Json) -> list[Any]:
    """Return a template's tolerations with those that all DaemonSets have; its own for the same taint are replaced."""
    found = [*read_items(spec.get("tolerations"))]
    taints = [("not-ready", "NoExecute"), ("unreachable", "NoExecute")]
    taints += [(f"{what}-pressure", "NoSchedule") for what in ("disk", "memory", "pid")]
    taints += [("unschedulable", "NoSchedule")]
    taints += [("network-unavailable", "NoSchedule")] * (spec.get("hostNetwork") is True)
    for taint, effect in taints:
        wanted = {"key": f"node.kubernetes.io/{taint}", "operator": "Exists", "effect": effect}
        same = [place for place, known in enumerate(found) if _is_toleration(known, wanted)]
        for place in same:
            found[place] = wanted
        if not same:
            found.append(wanted)
    return found


def _is_toleration(known: Any, wanted: Json) -> bool:
    return all(
        (read_mapping(known).get(key) or "") == wanted.get(key, "") for key in ("key", "operator", "effect", "value")
    )


def _pin_to_node(spec: Json) -> dict[str, Any]:
    """Return a template's affinity as the controller changes it: one node replaces the required node terms."""
    affinity = read_mapping(spec.get("affinity"))
    node_affinity = read_mapping(affinity.get("nodeAffinity"))
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["<node>"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {**affinity, "nodeAffinity": {**node_affinity, **required}}
