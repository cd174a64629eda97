"""Attempts of a tenant to run more live Pods than a service may have, on the real API server.

The tenant has the built-in ClusterRole `edit` in a namespace, and no other rights. Counters are in memory, so that a
restart loses them.
"""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.cluster.api import Api
from tests.cluster.controller_fixture import ControllerFixture, controller_fixture
from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from webhook.core.quota import STANDING

Json = dict[str, Any]
SPACE = "escapes"
PODS = f"/api/v1/namespaces/{SPACE}/pods"
POLICY = f"""\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: web
  match: {{namespaces: [{SPACE}], podSelector: {{matchLabels: {{app: web}}}}}}
  failureMode: Closed
  quota: {{standing: {{hard: {{pods: 3}}, surge: 0}}}}
"""
ALLOWED = 3
MERGE_PATCH = "application/merge-patch+json"
SERVICE, HASH = "podgate.io/service", "podgate.io/policy-hash"
_RBAC = "rbac.authorization.k8s.io"


@pytest.fixture(scope="module")
def running(plane: ControlPlane, identities: Identities) -> Iterator[ControllerFixture]:
    with controller_fixture(plane, identities, POLICY, [SPACE]) as fixture:
        wait_until_enforced(fixture)
        yield fixture


@pytest.fixture(scope="module")
def tenant(running: ControllerFixture) -> Iterator[Api]:
    plane = running.plane
    role = {"apiGroup": _RBAC, "kind": "ClusterRole", "name": "edit"}
    # The control plane has no controller that aggregates roles: `edit` is what these two hold.
    parts = [{**role, "name": f"system:aggregate-to-{part}"} for part in ("edit", "view")]
    for number, part in enumerate(parts):
        plane.apply(
            {
                "apiVersion": f"{_RBAC}/v1",
                "kind": "RoleBinding",
                "metadata": {"name": f"tenant-{number}", "namespace": SPACE},
                "roleRef": part,
                "subjects": [{"apiGroup": _RBAC, "kind": "User", "name": "escaping"}],
            }
        )
    client = Api.create(plane.ports.apiserver, plane.authority.certificate, *plane.authority.user("escaping"))
    with closing(client):
        plane.wait(lambda: client.request("GET", PODS)[0] == 200, "the tenant's rights")
        yield client


@pytest.fixture(autouse=True)
def empty(running: ControllerFixture) -> Iterator[None]:
    yield
    api = running.plane.api
    for pod in running.installation.pods(SPACE):
        path = f"{PODS}/{pod['metadata']['name']}"
        api.request("PATCH", path, {"metadata": {"finalizers": None}}, MERGE_PATCH)
        api.request("DELETE", f"{path}?gracePeriodSeconds=0")
    running.wait(lambda: running.count_standing("web") == 0, "no Pod to be live")


def wait_until_enforced(running: ControllerFixture) -> None:
    running.wait(lambda: running.limit("web", STANDING)["enforced"], "limits on live Pods to be enforced")


def create(tenant: Api, name: str, metadata: Json | None = None, **spec: Any) -> tuple[int, str]:
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "web"}, **(metadata or {})},
        "spec": {"containers": [{"name": "c", "image": "i"}], "schedulerName": "nobody", **spec},
    }
    status, answer = tenant.request("POST", PODS, document)
    return status, str(answer.get("message", ""))


def create_allowed(running: ControllerFixture, tenant: Api, metadata: Json | None = None, **spec: Any) -> list[str]:
    """Create as many Pods as are allowed, and wait until they count."""
    names = [f"p{number}" for number in range(ALLOWED)]
    for name in names:
        assert create(tenant, name, metadata, **spec) == (201, "")
    running.wait(lambda: running.count_standing("web") == ALLOWED, "the Pods to be live")
    return names


def is_full(tenant: Api) -> bool:
    status, message = create(tenant, "one-more")
    return (status, "live at one time: hard 3, used 3" in message) == (429, True)


def restart_server(running: ControllerFixture) -> None:
    """Replace the server, which loses all that it has counted."""
    (server,) = running.installation.servers
    running.installation.stop_server(server)
    running.start_server()
    running.wait(running.has_listed_pods, "all Pods to be listed")
    wait_until_enforced(running)


@pytest.mark.parametrize("name", ["podgate.io/other", "podgate.io/quota"])
def test_a_gate_of_podgates_is_refused(tenant: Api, name: str) -> None:
    status, message = create(tenant, "gated", schedulingGates=[{"name": name}])
    assert (status, f"spec.schedulingGates has {name}" in message) == (403, True), message


def test_a_pod_with_a_gate_of_others_counts(running: ControllerFixture, tenant: Api) -> None:
    create_allowed(running, tenant, schedulingGates=[{"name": "example.com/wait"}])
    assert is_full(tenant)


def test_a_terminating_pod_keeps_its_label_and_counts(running: ControllerFixture, tenant: Api) -> None:
    metadata = {"finalizers": ["example.com/held"]}
    names = create_allowed(running, tenant, metadata, terminationGracePeriodSeconds=86400)
    for name in names:  # a Pod without a node has no grace period, and no kubelet ends one on an absent node
        binding = {"target": {"apiVersion": "v1", "kind": "Node", "name": "absent"}, "metadata": {"name": name}}
        assert running.plane.api.request("POST", f"{PODS}/{name}/binding", binding)[0] == 201
    for name in names:
        assert tenant.request("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 86400})[0] == 200
        for changed in ({"labels": {"app": "other", SERVICE: None}}, {"annotations": {HASH: None}}):
            status, answer = tenant.request("PATCH", f"{PODS}/{name}", {"metadata": changed}, MERGE_PATCH)
            assert (status, "is Podgate's and cannot be changed" in answer["message"]) == (403, True), answer
        assert tenant.request("PATCH", f"{PODS}/{name}", {"metadata": {"labels": {"role": "x"}}}, MERGE_PATCH)[0] == 200
    assert is_full(tenant)


def test_updates_of_a_terminating_pod_pass_while_no_server_runs(running: ControllerFixture, tenant: Api) -> None:
    name, *_ = create_allowed(running, tenant, {"finalizers": ["example.com/held"]})
    live = "p1"
    (server,) = running.installation.servers
    running.installation.stop_server(server)
    try:
        assert tenant.request("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0})[0] == 200
        for path in (f"{PODS}/{live}", f"{PODS}/{name}"):
            role = {"metadata": {"labels": {"role": "primary"}, "annotations": {"note": "x"}}}
            assert tenant.request("PATCH", path, role, MERGE_PATCH)[0] == 200, "labels that nobody guards"
            status = {"status": {"message": "x"}}
            assert running.plane.api.request("PATCH", f"{path}/status", status, MERGE_PATCH)[0] == 200
            guarded = {"metadata": {"labels": {SERVICE: None}}}
            assert tenant.request("PATCH", path, guarded, MERGE_PATCH)[0] == 500, "Closed: nobody can judge it"
        finished = {"metadata": {"finalizers": None}}
        assert tenant.request("PATCH", f"{PODS}/{name}", finished, MERGE_PATCH)[0] == 200
        assert tenant.request("GET", f"{PODS}/{name}")[0] == 404
    finally:
        running.start_server()
        running.wait(running.has_listed_pods, "all Pods to be listed")
        wait_until_enforced(running)


def test_pods_with_a_forged_owner_count_after_a_restart(running: ControllerFixture, tenant: Api) -> None:
    # The garbage collector deletes Pods of a DaemonSet in apps that does not exist.
    owner = {"apiVersion": "x.example/v1", "kind": "DaemonSet", "name": "d", "uid": "u", "controller": True}
    create_allowed(running, tenant, {"ownerReferences": [owner]})
    assert is_full(tenant)
    restart_server(running)
    assert is_full(tenant)


def test_relabelled_pods_count_after_a_restart(running: ControllerFixture, tenant: Api) -> None:
    for name in create_allowed(running, tenant):
        other = {"metadata": {"labels": {"app": "other"}}}
        assert tenant.request("PATCH", f"{PODS}/{name}", other, MERGE_PATCH)[0] == 200
    assert is_full(tenant)
    restart_server(running)
    assert is_full(tenant)


def test_a_copied_hash_chooses_no_former_policy(running: ControllerFixture, tenant: Api) -> None:
    assert create(tenant, "older") == (201, "")
    older = tenant.request("GET", f"{PODS}/older")[1]["metadata"]
    installation = running.installation
    former, tightened = installation.policy, installation.policy.replace("hard: {pods: 3}", "hard: {pods: 1}")
    installation.change_policy(tightened)
    try:
        running.wait(lambda: running.limit("web", STANDING)["hard"] == 1, "the tightened limit")
        wait_until_enforced(running)
        copied = {"annotations": {HASH: older["annotations"][HASH]}, "labels": older["labels"]}
        manager = {"manager": "x", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {}}
        for forged in (copied, {**copied, "managedFields": [manager]}):
            status, message = create(tenant, "copied", forged)
            assert (status, "live at one time: hard 1, used 1" in message) == (429, True), message
    finally:
        installation.change_policy(former)
        running.wait(lambda: running.limit("web", STANDING)["hard"] == ALLOWED, "the former limit")
