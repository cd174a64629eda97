"""Filters of `podgate simulate` held against the real kube-scheduler: which nodes each of these Pods may use."""

import json
from typing import Any

import msgspec

from tests.scheduling.conftest import NODES, RACK
from tests.scheduling.extender_server import ExtendedScheduler
from webhook.core.kubernetes.pod import Pod
from webhook.replay.scheduling.default_scheduler import DefaultScheduler
from webhook.replay.scheduling.nodes import read_nodes

ZONE = "topology.kubernetes.io/zone"
TAINTS = {
    "cool": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}],
    "warm-1": [{"key": "level", "value": "7", "effect": "NoExecute"}],
    "warm-2": [{"key": "slow", "effect": "PreferNoSchedule"}],
}


def require_terms(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


TOLERATES_ALL = [{"operator": "Exists"}]
SPECS: dict[str, dict[str, Any]] = {
    "plain": {},
    "tolerant": {"tolerations": TOLERATES_ALL},
    "equal": {"tolerations": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]},
    "other-value": {"tolerations": [{"key": "gpu", "value": "no"}, {"key": "level", "operator": "Exists"}]},
    "selected": {"tolerations": TOLERATES_ALL, "nodeSelector": {ZONE: "a"}},
    "ored": {
        "tolerations": TOLERATES_ALL,
        "nodeSelector": {ZONE: "a"},
        "affinity": require_terms(
            {"matchExpressions": [expression(RACK, "In", "b1", "a2")]},
            {"matchExpressions": [expression(RACK, "Exists"), expression("disk", "Exists")], "matchFields": []},
            {},
        ),
    },
    "not-in": {
        "tolerations": TOLERATES_ALL,
        "affinity": require_terms({"matchExpressions": [expression(RACK, "NotIn", "a1")]}),
    },
    "large": {
        "tolerations": TOLERATES_ALL,
        "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "65"}}}],
    },
}


def restrict_to_node(spec: dict[str, Any], node: str) -> dict[str, Any]:
    """Return a spec for one node only: its terms, each with the node's name."""
    affinity = spec.get("affinity") or require_terms({})
    terms = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    is_own = "affinity" in spec
    named = [term | {"matchFields": [expression("metadata.name", "In", node)]} for term in terms if term or not is_own]
    return spec | {"affinity": require_terms(*named)}


def test_nodes_of_the_simulation_are_those_of_the_real_scheduler(scheduler: ExtendedScheduler) -> None:
    plane, merge = scheduler.plane, "application/merge-patch+json"
    for node, taints in TAINTS.items():
        plane.api.request("PATCH", f"/api/v1/nodes/{node}", {"spec": {"taints": taints}}, merge)
    try:
        path = plane.folder / "simulated-nodes.json"
        path.write_text(json.dumps(plane.api.get("/api/v1/nodes")))
        model = DefaultScheduler(read_nodes(path))
        names = {(kind, node): f"{kind}-{node}" for kind in SPECS for node in NODES}
        for (kind, node), name in names.items():
            scheduler.create(name, "none", **restrict_to_node(SPECS[kind], node))
        real = {kind: {node for node in NODES if takes(scheduler, names[kind, node])} for kind in SPECS}
        simulated = {}
        for kind, terms in SPECS.items():
            pod = plane.api.get(f"/api/v1/namespaces/shop/pods/{kind}-hot")
            spec = {"containers": pod["spec"]["containers"]} | terms
            simulated[kind] = {*model.find_feasible(msgspec.convert({"metadata": {}, "spec": spec}, Pod))[0]}
        assert simulated == real
        assert {len(found) for found in real.values()} == {0, 1, 2, 3, 4}, "the cases differ"
    finally:
        for node in TAINTS:
            plane.api.request("PATCH", f"/api/v1/nodes/{node}", {"spec": {"taints": None}}, merge)
        scheduler.delete_all()


def takes(scheduler: ExtendedScheduler, name: str) -> bool:
    """Wait until a Pod is bound or refused."""

    def find_outcome() -> str:
        pod = scheduler.plane.api.get(f"/api/v1/namespaces/shop/pods/{name}") or {}
        conditions = pod["status"].get("conditions", [])
        refused = any(condition.get("reason") == "Unschedulable" for condition in conditions)
        return "bound" if pod["spec"].get("nodeName") else "refused" if refused else ""

    return bool(scheduler.plane.wait(find_outcome, f"{name} to be tried") == "bound")
