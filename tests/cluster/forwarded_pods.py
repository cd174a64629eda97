"""Ready Pods of Podgate whose processes run on this machine, and users who may forward ports to them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.controlplane import ControlPlane

NAMESPACE = "podgate-system"
NODE = "here"
LISTS = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}
FORWARDS = {"apiGroups": [""], "resources": ["pods/portforward"], "verbs": ["get", "create"]}
_RBAC = "rbac.authorization.k8s.io"


def grant(plane: ControlPlane, user: str, *rules: dict[str, list[str]], everywhere: bool = False) -> Path:
    """Give rights in podgate-system, or in the whole cluster, to a user; return its kubeconfig."""
    prefix, inside = ("Cluster", {}) if everywhere else ("", {"namespace": NAMESPACE})
    kind = {"apiVersion": f"{_RBAC}/v1", "metadata": {"name": user, **inside}}
    subject = {"kind": "User", "name": user, "apiGroup": _RBAC}
    role = {"kind": f"{prefix}Role", "name": user, "apiGroup": _RBAC}
    plane.apply(
        {**kind, "kind": f"{prefix}Role", "rules": list(rules)},
        {**kind, "kind": f"{prefix}RoleBinding", "roleRef": role, "subjects": [subject]},
    )
    return plane.write_kubeconfig(user)


@contextmanager
def run_pods(plane: ControlPlane, app: str, names: list[str], kubelet_port: int) -> Iterator[None]:
    """Create ready Pods on a Node of their own, whose kubelet is at that port; delete Pods and Node at the end.

    Nothing may be left for the next module on the cluster: the status of a Node that exists, and so its port, is not
    applied with the Node.
    """
    kinds = ("InternalIP", "Hostname")  # without one of them kwok replaces both, and the name is not resolved
    status = {
        "addresses": [{"type": kind, "address": "127.0.0.1"} for kind in kinds],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet_port}},
    }
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": NAMESPACE}}
    plane.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": NODE},
            "spec": {"unschedulable": True},
            "status": status,
        },
        account,
    )
    paths = [f"/api/v1/namespaces/{NAMESPACE}/pods/{name}" for name in names]
    for name, path in zip(names, paths, strict=True):
        metadata = {"name": name, "namespace": NAMESPACE, "labels": {"app.kubernetes.io/name": app}}
        spec = {"nodeName": NODE, "containers": [{"name": "podgate", "image": "podgate"}]}
        plane.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        code, answer = plane.api.request("PATCH", f"{path}/status", {"status": ready}, "application/merge-patch+json")
        assert code == 200, answer
    try:
        yield
    finally:
        plane.delete(*(f"{path}?gracePeriodSeconds=0" for path in paths), f"/api/v1/nodes/{NODE}")
