"""The control plane itself: behavior, persistence, and concurrent starts."""

import base64
import json
import socket
from pathlib import Path

import pytest

from tests.cluster import controlplane
from tests.cluster.controlplane import API_ALONE, ControlPlane
from tests.cluster.processes import find_free_ports, reserve_port

REPLICASETS_ONLY = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "ValidatingAdmissionPolicy",
    "metadata": {"name": "replicasets-only"},
    "spec": {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "namespaceSelector": {"matchLabels": {"replicasets": "only"}},
            "resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
            ],
        },
        "validations": [
            {"expression": "request.userInfo.username == 'system:serviceaccount:kube-system:replicaset-controller'"}
        ],
    },
}
BINDING = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "ValidatingAdmissionPolicyBinding",
    "metadata": {"name": "replicasets-only"},
    "spec": {"policyName": "replicasets-only", "validationActions": ["Deny"]},
}


def deploy(plane: ControlPlane, namespace: str, replicas: int) -> None:
    namespace_flag = f"--namespace={namespace}"
    plane.kubectl("create", "deployment", "web", "--image=web", f"--replicas={replicas}", namespace_flag)
    plane.kubectl("rollout", "status", "deployment/web", namespace_flag, "--timeout=300s")


def test_twenty_replicas_become_ready_on_the_nodes_of_kwok(plane: ControlPlane) -> None:
    plane.create_namespace("twenty")
    deploy(plane, "twenty", 20)
    pods = plane.api.get("/api/v1/namespaces/twenty/pods")["items"]
    assert [pod["status"]["phase"] for pod in pods] == ["Running"] * 20
    assert {pod["spec"]["nodeName"] for pod in pods} <= {"node-a1", "node-a2", "node-b1", "node-b2"}


def test_both_schedulers_place_pods(plane: ControlPlane) -> None:
    plane.create_namespace("schedulers")
    for name in ("default-scheduler", "podgate-scheduler"):
        overrides = json.dumps({"spec": {"schedulerName": name}})
        plane.kubectl("run", name, "--image=web", f"--overrides={overrides}", "--namespace=schedulers")
        plane.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--namespace=schedulers", "--timeout=300s")


def test_pods_are_requested_by_the_service_account_of_their_controller(plane: ControlPlane) -> None:
    plane.create_namespace("controllers", replicasets="only")
    plane.apply(REPLICASETS_ONLY, BINDING)
    user_command = ("run", "mine", "--image=web", "--namespace=controllers", "--dry-run=server")
    plane.wait(lambda: plane.kubectl(*user_command, check=False).returncode, "a user's Pod to be denied")
    deploy(plane, "controllers", 1)


def test_running_pod_is_resized(plane: ControlPlane) -> None:
    plane.create_namespace("resizing")
    namespace_flag = "--namespace=resizing"

    def make_patch(quantity: str) -> str:
        container = {"name": "web", "image": "web", "resources": {"requests": {"cpu": quantity}}}
        return json.dumps({"spec": {"containers": [container]}})

    plane.kubectl("run", "web", "--image=web", f"--overrides={make_patch('100m')}", namespace_flag)
    plane.kubectl("wait", "--for=condition=Ready", "pod/web", namespace_flag, "--timeout=300s")
    plane.kubectl("patch", "pod", "web", "--subresource=resize", "--patch", make_patch("200m"), namespace_flag)

    def is_resized() -> bool:
        status = plane.api.get("/api/v1/namespaces/resizing/pods/web")["status"]
        return bool(status["containerStatuses"][0]["resources"] == {"requests": {"cpu": "200m"}})

    plane.wait(is_resized, "the new resources in the Pod's status", "kwok")


def test_service_account_token_has_the_requested_audience(plane: ControlPlane) -> None:
    token = plane.kubectl("create", "token", "default", "--audience=podgate").stdout
    payload = token.split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    assert claims["aud"] == ["podgate"]
    assert claims["sub"] == "system:serviceaccount:default:default"


def test_user_without_a_role_has_no_rights(plane: ControlPlane) -> None:
    kubeconfig = plane.write_kubeconfig("nobody")
    assert "Forbidden" in plane.kubectl("get", "pods", kubeconfig=kubeconfig, check=False).stderr
    admin_kubeconfig = plane.write_kubeconfig("nobody", "system:masters")
    assert plane.kubectl("get", "pods", kubeconfig=admin_kubeconfig).returncode == 0


def test_objects_survive_a_restart_of_the_api_server_and_a_crash_of_etcd(own_plane: ControlPlane) -> None:
    """Each ends in one of both ways: `test_watches.py` has the others."""
    deploy(own_plane, "default", 2)
    own_plane.restart("kube-apiserver")
    own_plane.restart("etcd", kill=True)
    own_plane.wait_ready()
    own_plane.kubectl("scale", "deployment/web", "--replicas=3")
    own_plane.kubectl("rollout", "status", "deployment/web", "--timeout=300s")


def test_free_port_is_given_to_one_test_process() -> None:
    """A component listens on its port a moment after it was found, and again after a restart."""
    [port] = find_free_ports(1)
    with pytest.raises(OSError, match="in use"):
        reserve_port(port)


@pytest.mark.parametrize("which", [0, 2], ids=["etcd", "kube-apiserver"])
def test_start_is_repeated_if_its_port_was_taken(monkeypatch: pytest.MonkeyPatch, which: int) -> None:
    with socket.socket() as used_port:
        used_port.bind(("127.0.0.1", 0))
        ports = find_free_ports(3)
        ports[which] = used_port.getsockname()[1]
        first_ports = iter([ports])
        monkeypatch.setattr(
            controlplane, "find_free_ports", lambda count: next(first_ports, None) or find_free_ports(count)
        )
        with ControlPlane(components=API_ALONE) as plane:
            assert plane.ports.apiserver != ports[2]


def test_ended_component_is_reported_with_its_output(tmp_path: Path) -> None:
    invalid = tmp_path / "admission.json"
    invalid.write_text("{}")
    with pytest.raises(AssertionError, match=r"(?s)kube-apiserver ended with 1:.*admission"):
        ControlPlane(admission=invalid).start()
