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
"""The administrator; a developer; the node's kubelet; a service account that removes scheduling gates."""

_RBAC = "rbac.authorization.k8s.io"


@dataclass(frozen=True)
class Environment:
    """The cluster and the users of the steps."""

    plane: ControlPlane
    users: dict[str, Path]
    """Kubeconfig of each user."""

    def kubectl(
        self, user: str, *arguments: str, document: dict[str, Any] | None = None, refused: bool = False
    ) -> None:
        """Run kubectl as a user; it must fail if `refused`."""
        input_text = None if document is None else json.dumps(document)
        done = self.plane.kubectl(*arguments, input=input_text, check=False, kubeconfig=self.users[user])
        assert (done.returncode != 0) == refused, f"kubectl {' '.join(arguments)}: {done.stderr}{done.stdout}"

    def await_running(self, name: str) -> None:
        def is_running() -> bool:
            pod = self.plane.api.get(f"/api/v1/namespaces/{SPACE}/pods/{name}")
            return bool(pod["status"]["phase"] == "Running")

        self.plane.wait(is_running, f"Pod {name} to run", "kube-scheduler", "kwok")


@contextmanager
def create_environment(plane: ControlPlane) -> Iterator[Environment]:
    """Create the namespace, node and users, and delete them at the end."""
    plane.create_namespace(SPACE)
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": CAPACITY, "namespace": SPACE}}
    plane.apply(account, _rights())
    taint = {"key": "dedicated", "value": "payments", "effect": "NoSchedule"}
    labels = {"disk-type": "ssd", "topology.kubernetes.io/region": "cn-hangzhou", "zone": "cn-hangzhou-b"}
    plane.add_nodes(node(NODE, [taint], **labels))
    token = plane.kubectl("create", "token", CAPACITY, "-n", SPACE).stdout.strip()
    try:
        yield Environment(
            plane,
            {
                ADMIN: plane.kubeconfig,
                ALICE: plane.write_kubeconfig(ALICE, "developers"),
                KUBELET: plane.write_kubeconfig(KUBELET, "system:nodes"),
                CAPACITY: plane.write_kubeconfig(CAPACITY, token=token),
            },
        )
    finally:
        plane.kubectl("delete", "namespace", SPACE, "--wait=false")
        plane.kubectl("delete", "node", NODE)


def _rights() -> dict[str, Any]:
    """Grant all rights in the namespace to all users: rights do not appear in reviews."""
    users = [{"kind": "User", "apiGroup": _RBAC, "name": name} for name in (ALICE, KUBELET)]
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "everything", "namespace": SPACE},
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [*users, {"kind": "ServiceAccount", "name": CAPACITY, "namespace": SPACE}],
    }
