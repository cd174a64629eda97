"""Objects that the scenario of the recordings creates: Pods, workloads, and a policy."""

from typing import Any

from tests.cluster.recording.environment import NODE, SPACE
from webhook.core.document.configmap import KEY, NAME, NAMESPACE

ZONE = "topology.kubernetes.io/zone"
HOLD = "example.com/hold"
"""A finalizer."""


def pod(name: str, *, app: str = "payment-api", cpu: str = "100m", **spec: Any) -> dict[str, Any]:
    """Return a Pod; a name that ends in "-" becomes its `generateName`."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName" if name.endswith("-") else "name": name,
            "namespace": SPACE,
            "labels": {"app": app},
        },
        "spec": {"containers": [_container(cpu)], **spec},
    }


def set_metadata(document: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {**document, "metadata": {**document["metadata"], **metadata}}


def workload(api_version: str, kind: str, *, selects: bool = True, **pod_spec: Any) -> dict[str, Any]:
    """Return a workload of one Pod, named after its kind in lower case."""
    # Without its own label a DaemonSet would adopt and delete the Pods of the others.
    own_label = {"made-by": kind.lower()}
    labels = {"app": "payment-api", **own_label}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [_container("100m")], **pod_spec}}
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": kind.lower(), "namespace": SPACE},
        "spec": {**({"selector": {"matchLabels": own_label}} if selects else {}), "template": template},
    }


def _container(cpu: str) -> dict[str, Any]:
    return {
        "name": "main",
        "image": "registry.example/payment-api:1.4.2",
        "ports": [{"containerPort": 8080}],
        "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}, "limits": {"memory": "64Mi"}},
    }


def policy(text: str) -> dict[str, Any]:
    metadata = {"name": NAME, "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {KEY: text}}


def make_resize(cpu: str) -> dict[str, Any]:
    """Return the patch of a resize."""
    return {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]}}


GATED: dict[str, Any] = {"schedulingGates": [{"name": "example.com/capacity"}]}
MIRRORED = {"kubernetes.io/config.mirror": "9c1d", "kubernetes.io/config.source": "file"}
DEBUGGED = {
    "spec": {
        "ephemeralContainers": [{"name": "debug", "image": "registry.example/debug:1", "targetContainerName": "main"}]
    }
}
CHECKED = {"status": {"conditions": [{"type": "example.com/Checked", "status": "True"}]}}

CONFLICTING: dict[str, Any] = {
    "schedulerName": "volcano",
    "nodeSelector": {"disk-type": "hdd", "kubernetes.io/os": "linux"},
}
ON_OUR_NODE: dict[str, Any] = {
    "nodeSelector": {"kubernetes.io/hostname": NODE},
    "tolerations": [{"key": "dedicated", "operator": "Exists"}],
}
_ON_OUR_NODE_ALONE = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [NODE]}]}
_NEIGHBOURS = {"labelSelector": {"matchLabels": {"app": "payment-api"}}, "topologyKey": "kubernetes.io/hostname"}
WITH_AFFINITY: dict[str, Any] = {
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "accelerator", "operator": "Exists"}]},
                    {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["cn-hangzhou-b"]}]},
                    _ON_OUR_NODE_ALONE,
                ]
            },
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "preference": {"matchExpressions": [{"key": "spot", "operator": "DoesNotExist"}]}}
            ],
        },
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": _NEIGHBOURS}]
        },
    }
}

# Forgeries by a tenant: of another service's Pod, of a DaemonSet's Pod, of a mirror Pod.
FORGED_FIELDS = set_metadata(
    pod("forged-fields"),
    labels={"app": "payment-api", "podgate.io/service": "ledger"},
    annotations={"podgate.io/policy-hash": "ffffffffffffffff"},
)
_OWNER = {
    "apiVersion": "apps/v1",
    "kind": "DaemonSet",
    "name": "agent",
    "uid": "0d9f0f2e-55d3-4c0e-8a1e-0c4a5a1d7a11",
    "controller": True,
}
_REQUIRED = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [_ON_OUR_NODE_ALONE]}}
FORGED_OWNER = set_metadata(pod("forged-owner", affinity={"nodeAffinity": _REQUIRED}), ownerReferences=[_OWNER])
FORGED_MIRROR = set_metadata(pod("forged-mirror", nodeName=NODE), annotations=MIRRORED)

POLICY = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: web
  match: {namespaces: [web]}
  placement: {nodeSelector: {disk-type: ssd}}
"""
CHANGED_POLICY = POLICY.replace("ssd", "nvme")
BROKEN_POLICY = POLICY.replace("[web]", "[Web_1]")
