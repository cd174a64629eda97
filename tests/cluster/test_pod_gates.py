"""Gates of waiting Pods on the real API server: removed by Podgate, and by nobody else."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec
import pytest
from kubernetes_asyncio.client import ApiClient

from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.installation import Installation, install_podgate
from tests.cluster.placement.pods import pod
from tests.cluster.processes import find_free_ports
from webhook.adapters.kubernetes import PodGates, connect
from webhook.core.admission.mutation import QUEUE_GATE, is_gate_written
from webhook.core.kubernetes.pod import PodMetadata
from webhook.errors import GateError

Json = dict[str, Any]
SPACE = "gates"
PODS = f"/api/v1/namespaces/{SPACE}/pods"
POLICY = f"""\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: waiting
  failureMode: Closed
  match: {{namespaces: [{SPACE}]}}
  quota:
    windows: [{{window: 1h, hard: {{pods: 1, requests.cpu: "100"}}}}]
    whenExceeded: Queue
    queue: {{}}
"""
WITHOUT_DRAIN = ("--drain", "0s")
OTHER = "example.com/other"
JSON_PATCH, STRATEGIC = "application/json-patch+json", "application/strategic-merge-patch+json"
SELF_REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
SELF_REVIEW = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
UNGATE = [{"op": "remove", "path": "/spec/schedulingGates"}]


@pytest.fixture(scope="module")
def installation(plane: ControlPlane, identities: Identities) -> Iterator[Installation]:
    """Install Podgate, and fill the quota: its own release loop leaves the gates of the tests' Pods."""
    with install_podgate(plane, identities.files, POLICY, [SPACE], arguments=WITHOUT_DRAIN) as installation:
        installation.wait_for_calls()
        status, answer = plane.api.request("POST", PODS, pod("fills", "web"))
        assert (status, gates_of(plane, "fills")) == (201, []), answer
        yield installation


@pytest.fixture
async def client(installation: Installation) -> AsyncIterator[ApiClient]:
    """Return a client with the rights that the manifests give to a server with counters in memory."""
    async with await connect(installation.kubeconfig()) as client:
        yield client


def create_gated(plane: ControlPlane, name: str, *gates: str) -> Json:
    """Create a Pod with gates."""
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    asked = pod(name, "web", containers=[container], schedulingGates=[{"name": gate} for gate in gates])
    status, created = plane.api.request("POST", PODS, asked)
    assert status == 201, created
    return dict(created)


def gates_of(plane: ControlPlane, name: str) -> list[str]:
    return [gate["name"] for gate in plane.api.get(f"{PODS}/{name}")["spec"].get("schedulingGates", [])]


@pytest.mark.parametrize(
    ("name", "gates", "left"),
    [
        ("first", [QUEUE_GATE], []),
        ("second", [OTHER, QUEUE_GATE], [OTHER]),
        ("without", [OTHER], [OTHER]),
    ],
)
async def test_podgate_removes_its_own_gate_of_a_pod(
    plane: ControlPlane, client: ApiClient, name: str, gates: list[str], left: list[str]
) -> None:
    uid = create_gated(plane, name, *gates)["metadata"]["uid"]
    assert await PodGates(client).remove(SPACE, name, uid)
    assert gates_of(plane, name) == left
    assert await PodGates(client).remove(SPACE, name, uid), "the gate stays removed"


async def test_pod_that_is_gone_or_has_another_uid_keeps_its_gate(plane: ControlPlane, client: ApiClient) -> None:
    create_gated(plane, "recreated", QUEUE_GATE)
    assert not await PodGates(client).remove(SPACE, "recreated", "former-uid")
    assert gates_of(plane, "recreated") == [QUEUE_GATE]
    assert not await PodGates(client).remove(SPACE, "absent", "some-uid")


async def test_expired_pod_is_deleted_only_under_its_uid(plane: ControlPlane, client: ApiClient) -> None:
    uid = create_gated(plane, "expired", QUEUE_GATE)["metadata"]["uid"]
    assert not await PodGates(client).delete(SPACE, "expired", "former-uid")
    assert await PodGates(client).delete(SPACE, "expired", uid)
    plane.wait(lambda: plane.api.get(f"{PODS}/expired") is None, "the Pod to be deleted")
    assert not await PodGates(client).delete(SPACE, "expired", uid)


async def test_missing_rights_are_reported_with_the_right(plane: ControlPlane, installation: Installation) -> None:
    uid = create_gated(plane, "kept", QUEUE_GATE)["metadata"]["uid"]
    async with await connect(installation.kubeconfig(account="kube-apiserver-caller")) as client:
        with pytest.raises(GateError, match=rf"pod {SPACE}/kept: cannot release: .*grant the right to patch pods"):
            await PodGates(client).remove(SPACE, "kept", uid)
        with pytest.raises(GateError, match=rf"pod {SPACE}/kept: cannot delete: .*grant the right to delete pods"):
            await PodGates(client).delete(SPACE, "kept", uid)


async def test_api_server_is_reachable_for_each_account_and_not_behind_another_port(
    installation: Installation, client: ApiClient
) -> None:
    assert await PodGates(client).is_reachable()
    async with await connect(installation.kubeconfig(account="kube-apiserver-caller")) as other:
        assert await PodGates(other).is_reachable(), "whatever it answers"
        other.configuration.host = f"https://127.0.0.1:{find_free_ports(1)[0]}"
        assert not await PodGates(other).is_reachable()


def test_nobody_else_removes_the_gate_not_even_an_administrator(
    plane: ControlPlane, installation: Installation
) -> None:
    del installation
    create_gated(plane, "guarded", OTHER, QUEUE_GATE)
    status, answer = plane.api.request("PATCH", f"{PODS}/guarded", UNGATE, JSON_PATCH)
    assert (status, gates_of(plane, "guarded")) == (403, [OTHER, QUEUE_GATE])
    assert "PodgateFieldImmutable: service waiting: spec.schedulingGates had podgate.io/quota" in answer["message"]
    other = [{"op": "remove", "path": "/spec/schedulingGates/0"}]
    assert plane.api.request("PATCH", f"{PODS}/guarded", other, JSON_PATCH)[0] == 200
    assert gates_of(plane, "guarded") == [QUEUE_GATE]


def test_terminating_pod_keeps_its_gate_and_its_size(plane: ControlPlane, installation: Installation) -> None:
    del installation
    create_gated(plane, "ending", QUEUE_GATE)
    path = f"{PODS}/ending"
    assert plane.api.request("PATCH", path, {"metadata": {"finalizers": ["example.com/held"]}}, STRATEGIC)[0] == 200
    assert plane.api.request("DELETE", path)[0] == 200
    larger = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}}
    for asked in ((path, UNGATE, JSON_PATCH), (f"{path}/resize", larger, STRATEGIC)):
        status, answer = plane.api.request("PATCH", *asked)
        assert (status, "PodgateFieldImmutable" in answer["message"]) == (403, True), answer
    assert plane.api.request("PATCH", path, [{"op": "remove", "path": "/metadata/finalizers"}], JSON_PATCH)[0] == 200
    assert plane.api.request("GET", path)[0] == 404


@pytest.mark.parametrize(("name", "sent", "is_written"), [("by-us", [], True), ("by-user", [QUEUE_GATE], False)])
def test_managed_fields_tell_who_wrote_the_gate(
    plane: ControlPlane, installation: Installation, name: str, sent: list[str], *, is_written: bool
) -> None:
    del installation
    create_gated(plane, name, *sent)
    stored = plane.api.get(f"{PODS}/{name}")
    metadata = msgspec.json.decode(msgspec.json.encode(stored["metadata"]), type=PodMetadata)
    assert (gates_of(plane, name), is_gate_written(metadata)) == ([QUEUE_GATE], is_written)


@pytest.mark.parametrize(("cpu", "expected_status"), [("500m", 200), ("2", 403)])
def test_waiting_pod_may_become_smaller_but_not_larger(
    plane: ControlPlane, installation: Installation, cpu: str, expected_status: int
) -> None:
    del installation
    name = f"resized-{expected_status}"
    create_gated(plane, name, QUEUE_GATE)
    resize = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}}
    status, answer = plane.api.request("PATCH", f"{PODS}/{name}/resize", resize, STRATEGIC)
    assert status == expected_status, answer


async def test_podgate_releases_pods_while_no_server_runs(
    plane: ControlPlane, installation: Installation, client: ApiClient
) -> None:
    """The webhook fails closed, and leaves out the call for Podgate's own removal."""
    uid = create_gated(plane, "outage", QUEUE_GATE)["metadata"]["uid"]
    [server] = installation.servers
    installation.stop_server(server)
    status, answer = plane.api.request("PATCH", f"{PODS}/outage", UNGATE, JSON_PATCH)
    assert (status, gates_of(plane, "outage")) == (500, [QUEUE_GATE]), answer
    assert await PodGates(client).remove(SPACE, "outage", uid)
    assert gates_of(plane, "outage") == []


@pytest.mark.parametrize("is_setting", [False, True])
def test_user_that_releases_pods_outside_the_cluster_is_the_servers_own_or_a_setting(
    plane: ControlPlane, installation: Installation, *, is_setting: bool
) -> None:
    """Such a user is judged until the server knows it: so this waits for a removal that is admitted."""
    admin = plane.api.request("POST", SELF_REVIEWS, SELF_REVIEW)[1]["status"]["userInfo"]["username"]
    for server in tuple(installation.servers):
        installation.stop_server(server)
    if is_setting:
        installation.start_server(*WITHOUT_DRAIN, "--controller-user", admin)
    else:
        installation.start_server(*WITHOUT_DRAIN, kubeconfig=plane.kubeconfig)
    name = f"outside-{'setting' if is_setting else 'own'}"
    plane.wait(lambda: plane.api.request("POST", f"{PODS}?dryRun=All", pod(name, "web"))[0] == 201, "the server")
    create_gated(plane, name, QUEUE_GATE)
    plane.wait(lambda: plane.api.request("PATCH", f"{PODS}/{name}", UNGATE, JSON_PATCH)[0] == 200, "the removal")
