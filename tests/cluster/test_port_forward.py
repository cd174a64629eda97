"""The decision port of a server Pod through a real API server: the right to port-forward decides who reads it."""

import asyncio
import json
from pathlib import Path

from tests.cli.command_runner import podgate
from tests.cluster.controlplane import ControlPlane
from tests.cluster.kubelet_ports import kubelet_ports
from tests.harness.server_process import Files, pod, serving
from webhook.offline.simulator import Ask

NAMESPACE = "podgate-system"
UID = "6f6b9a8e-1c1e-4a52-9a7e-000000000001"
POLICY = "apiVersion: podgate.io/v1alpha1\nkind: Policy\nservices: [{name: web, match: {namespaces: [shop]}}]\n"
LISTS = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}
FORWARDS = {"apiGroups": [""], "resources": ["pods/portforward"], "verbs": ["get", "create"]}


def grant(plane: ControlPlane, user: str, *rules: dict[str, list[str]]) -> Path:
    """Give rights in podgate-system to a user; return its kubeconfig."""
    kind = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": user, "namespace": NAMESPACE}}
    subject = {"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}
    role = {"kind": "Role", "name": user, "apiGroup": "rbac.authorization.k8s.io"}
    plane.apply(
        {**kind, "kind": "Role", "rules": list(rules)},
        {**kind, "kind": "RoleBinding", "roleRef": role, "subjects": [subject]},
    )
    return plane.kubeconfig_for(user)


def run_server_pod(plane: ControlPlane, kubelet_port: int) -> None:
    """Create a ready server Pod on a Node whose kubelet is at that port."""
    metadata = {"name": "podgate-0", "namespace": NAMESPACE, "labels": {"app.kubernetes.io/name": "podgate"}}
    container = {"name": "podgate", "image": "podgate"}
    plane.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "here"}},
    )
    address = {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}]}
    endpoint = {"daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet_port}}}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": NAMESPACE}}
    patch = "application/merge-patch+json"
    plane.api.request("PATCH", "/api/v1/nodes/here/status", {"status": {**address, **endpoint}}, patch)
    plane.apply(
        account,
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": {"nodeName": "here", "containers": [container]},
        },
    )
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    plane.api.request("PATCH", f"/api/v1/namespaces/{NAMESPACE}/pods/podgate-0/status", {"status": ready}, patch)


async def test_right_to_port_forward_decides_who_reads_decisions(api_alone: ControlPlane, tmp_path: Path) -> None:
    pki = api_alone.folder / "pki"
    async with serving(Files.create(tmp_path, POLICY)) as server:
        await server.create(Ask(pod(), "shop", UID, "alice"))
        with kubelet_ports(pki / "apiserver.crt", pki / "apiserver.key", {8082: server.decisions}) as port:
            run_server_pod(api_alone, port)
            operator = grant(api_alone, "operator", LISTS, FORWARDS)
            decided = await asyncio.to_thread(podgate, "decisions", "--kubeconfig", str(operator), "-o", "json")
            explained = await asyncio.to_thread(podgate, "explain", UID, "--kubeconfig", str(operator))
            reader = grant(api_alone, "reader", LISTS)
            refused = await asyncio.to_thread(podgate, "decisions", "--kubeconfig", str(reader), "-o", "json")
    assert [one["half"] for one in json.loads(decided.out)] == ["mutate", "validate"], decided.err
    assert (explained.code, explained.out.partition(":")[0]) == (0, "Admitted"), explained.err
    assert UID in decided.out
    assert UID not in refused.out
    # Another test's server may listen on port 8082 of this machine, which is tried last.
    found_another = "http://127.0.0.1:8082" in refused.err
    assert found_another or "grant the right to create pods/portforward in podgate-system" in refused.err
