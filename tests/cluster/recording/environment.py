"""Environment of the recorded scenario: a namespace, a dedicated node, and the users."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster.controlplane import ControlPlane
from tests.cluster.kwok import node

SPACE = "recorded"
NODE = "node-recorded"
ADMIN, ALICE, KUBELET, CAPACITY = "admin", "alice", f"system:node:{NODE}", "capacity"
"""The administrator; a developer; the node's kubelet; a service account that lifts gates."""

_RBAC = "rbac.authorization.k8s.io"


@dataclass(frozen=True)
class Scene:
    """A cluster as the steps use it."""

    plane: ControlPlane
    users: dict[str, Path]
    """A kubeconfig for each."""

    def kubectl(
        self, user: str, *arguments: str, document: dict[str, Any] | None = None, refused: bool = False
    ) -> None:
        """Do something as somebody, who is `refused` where that is what the step is about."""
        sent = None if document is None else json.dumps(document)
        done = self.plane.kubectl(*arguments, input=sent, check=False, kubeconfig=self.users[user])
        assert (done.returncode != 0) == refused, f"kubectl {' '.join(arguments)}: {done.stderr}{done.stdout}"

    def await_running(self, name: str) -> None:
        def running() -> bool:
            found = self.plane.api.get(f"/api/v1/namespaces/{SPACE}/pods/{name}")
            return bool(found["status"]["phase"] == "Running")

        self.plane.wait(running, f"Pod {name} to run", "kube-scheduler", "kwok")


@contextmanager
def staged(plane: ControlPlane) -> Iterator[Scene]:
    """Set the scene; take it away again."""
    plane.create_namespace(SPACE)
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": CAPACITY, "namespace": SPACE}}
    plane.apply(account, _rights())
    taint = {"key": "dedicated", "value": "payments", "effect": "NoSchedule"}
    place = {"disk-type": "ssd", "topology.kubernetes.io/region": "cn-hangzhou", "zone": "cn-hangzhou-b"}
    plane.add_nodes(node(NODE, [taint], **place))
    token = plane.kubectl("create", "token", CAPACITY, "-n", SPACE).stdout.strip()
    try:
        yield Scene(
            plane,
            {
                ADMIN: plane.kubeconfig,
                ALICE: plane.kubeconfig_for(ALICE, "developers"),
                KUBELET: plane.kubeconfig_for(KUBELET, "system:nodes"),
                CAPACITY: plane.kubeconfig_for(CAPACITY, token=token),
            },
        )
    finally:
        plane.kubectl("delete", "namespace", SPACE, "--wait=false")
        plane.kubectl("delete", "node", NODE)


def _rights() -> dict[str, Any]:
    """Let everybody do everything in the namespace: what they may do shows in no review."""
    users = [{"kind": "User", "apiGroup": _RBAC, "name": name} for name in (ALICE, KUBELET)]
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "everything", "namespace": SPACE},
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [*users, {"kind": "ServiceAccount", "name": CAPACITY, "namespace": SPACE}],
    }
