"""Attempts of a tenant to bypass a placement or a quota on the real API server: denied, or documented.

The tenant has all rights of the built-in ClusterRole `admin` in a namespace, and no others. Tests also show the
attempts that Podgate does not prevent according to SECURITY.md.
"""

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.cluster.api import Api
from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.installation import Installation, install_podgate
from tests.cluster.placement.pods import deployment, pod, policy, service
from tests.harness.nesting import nest
from webhook.core.kubernetes.pod import MIRROR_ANNOTATION

Json = dict[str, Any]
SPACE = "ways-round"
EVICTED_AFTER_AN_HOUR: Json = {"key": "failing", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3600}
QUEUE, GROUP = "kueue.x-k8s.io/queue-name", "scheduling.k8s.io/group-name"
POLICY = policy(
    service(
        "web",
        SPACE,
        {"topology": [{"level": "Zone", "in": ["zone-a"]}]},
        resources={"container": {"max": {"cpu": "2"}}, "pod": {"max": {"cpu": "3"}}},
    ),
    service("clamped", SPACE, {}, resources={"container": {"max": {"cpu": "2"}}, "whenOutside": "Clamp"}),
    service("audited", SPACE, {"topology": [{"level": "Zone", "in": ["zone-a"]}]}, modes={"placement": "Audit"}),
    service("bearing", SPACE, {"tolerations": [EVICTED_AFTER_AN_HOUR]}),
    service("choosing", SPACE, {"labels": {QUEUE: "usual"}, "onConflict": {"labels": "Keep"}}),
    service(
        "queued",
        SPACE,
        {
            "labels": {QUEUE: {"fromNamespace": "team"}, "applicationId": {"fromPod": "app"}},
            "annotations": {GROUP: {"fromPod": "app"}},
            "allow": {
                "tolerations": [{"key": "gpu", "operator": "Exists"}],
                "nodeSelectorKeys": ["disk"],
                "priorityClassNames": [],
                "schedulerNames": [],
                "runtimeClassNames": [],
            },
        },
    ),
)
POLICY["exemptions"] = {"usernames": [f"system:serviceaccount:{SPACE}:ci"]}
UNREAD = {"deep": nest(5_000, '{"f:a":', "}").replace("1}", "{}}").encode(), "no UTF-8": b'{"f:\xff\xfe":{}}'}
PODS = f"/api/v1/namespaces/{SPACE}/pods"
_RBAC = "rbac.authorization.k8s.io"
JSON_PATCH, MERGE_PATCH = "application/json-patch+json", "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


@pytest.fixture(scope="module")
def installation(plane: ControlPlane, identities: Identities) -> Iterator[Installation]:
    with install_podgate(
        plane, identities.files, json.dumps(POLICY), [SPACE], namespace_labels={"team": "research"}
    ) as installation:
        installation.wait_for_calls()
        yield installation


pytestmark = pytest.mark.usefixtures("installation")


@pytest.fixture(scope="module")
def tenant(installation: Installation) -> Iterator[Api]:
    """Return a client of the API server for the tenant."""
    plane = installation.plane
    plane.apply(
        *(
            {
                "apiVersion": f"{_RBAC}/v1",
                "kind": "RoleBinding",
                "metadata": {"name": f"tenant-{part}", "namespace": SPACE},
                # The aggregated parts of `admin`.
                "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": f"system:aggregate-to-{part}"},
                "subjects": [{"apiGroup": _RBAC, "kind": "User", "name": "tenant"}],
            }
            for part in ("admin", "edit", "view")
        )
    )
    client = Api.create(plane.ports.apiserver, plane.authority.certificate, *plane.authority.user("tenant"))
    with closing(client):
        asked = (f"{PODS}?dryRun=All", pod("p", "web"))
        plane.wait(lambda: client.request("POST", *asked)[0] == 201, "the tenant's rights")
        yield client


def status_and_message(answer: tuple[int, Any]) -> tuple[int, str]:
    status, body = answer
    return status, str(body.get("message", ""))


def create(tenant: Api, name: str, app: str = "web", **spec: Any) -> str:
    """Create a Pod as the tenant; return its path."""
    status, message = status_and_message(tenant.request("POST", PODS, pod(name, app, **spec)))
    assert status == 201, message
    return f"{PODS}/{name}"


def run_pod(plane: ControlPlane, tenant: Api, name: str, app: str = "web", **spec: Any) -> str:
    path = create(tenant, name, app, **spec)
    plane.wait(lambda: plane.api.get(path)["status"].get("phase") == "Running", f"{name} to run")
    return path


# --- spec.nodeName ---

DAEMON_SET: Json = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "ds", "uid": "u-1", "controller": True}
FORGERIES: dict[str, Json] = {
    "nothing else": {},
    "the word of a mirror Pod": {"annotations": {MIRROR_ANNOTATION: "x"}},
    "an owner that never made it": {"ownerReferences": [DAEMON_SET]},
}


@pytest.mark.parametrize("metadata", FORGERIES.values(), ids=FORGERIES.keys())
def test_tenant_cannot_set_the_node_name_of_a_pod(tenant: Api, metadata: Json) -> None:
    forged = pod("named", "web", nodeName="node-b1")
    forged["metadata"] |= metadata
    status, message = status_and_message(tenant.request("POST", PODS, forged))
    assert status == 403
    assert "NodeNameSet: service web: spec.nodeName is 'node-b1', which bypasses the scheduler" in message


@pytest.mark.parametrize("app", ["web", "audited"])
@pytest.mark.parametrize("unread", UNREAD.values(), ids=UNREAD.keys())
def test_fields_that_cannot_be_decoded_keep_no_pod_from_its_review(tenant: Api, unread: bytes, app: str) -> None:
    """The API server stores them as they are, and a review that is no answer would admit the Pod where failures do."""
    path = f"{PODS}?dryRun=All"
    made = pod("unread", app)
    made["metadata"]["managedFields"] = [
        {
            "manager": "anybody",
            "operation": "Update",
            "apiVersion": "v1",
            "time": "2026-01-01T00:00:00Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": "<fields>",
        }
    ]
    status, stored = tenant.request("POST", path, json.dumps(made).encode().replace(b'"<fields>"', unread))
    assert status == 201, stored
    assert isinstance(stored, str), "the API server dropped them"
    assert f'"podgate.io/service":"{app}"' in stored
    made["spec"]["nodeName"] = "node-b1"
    status, denied = tenant.request("POST", path, json.dumps(made).encode().replace(b'"<fields>"', unread))
    assert (status, "NodeNameSet" in str(denied)) == ((403, True) if app == "web" else (201, False)), denied


def test_controller_cannot_set_a_node_name_for_a_tenant(plane: ControlPlane, tenant: Api) -> None:
    deployment_with_node_name = deployment("named", "web", nodeName="node-b1")
    assert tenant.request("POST", f"/apis/apps/v1/namespaces/{SPACE}/deployments", deployment_with_node_name)[0] == 201

    def is_reported() -> bool:
        replica_sets = plane.api.get(f"/apis/apps/v1/namespaces/{SPACE}/replicasets")["items"]
        conditions = [condition for item in replica_sets for condition in item["status"].get("conditions", [])]
        return any("NodeNameSet" in condition.get("message", "") for condition in conditions)

    plane.wait(is_reported, "the ReplicaSet to report the denial")


def test_scheduled_pod_can_still_be_updated(plane: ControlPlane, tenant: Api) -> None:
    path = run_pod(plane, tenant, "placed")
    assert plane.api.get(path)["spec"]["nodeName"] in {"node-a1", "node-a2"}
    label = {"metadata": {"labels": {"version": "v2"}}}
    assert status_and_message(tenant.request("PATCH", path, label, MERGE_PATCH)) == (200, "")


# --- labels and annotations of other schedulers, and what a tenant may bring ---

OTHERS: dict[str, Json] = {
    "another queue": {"labels": {QUEUE: "mine"}},
    "no queue": {"labels": {QUEUE: None}},
    "another group": {"annotations": {GROUP: "mine"}},
    "no group": {"annotations": {GROUP: None}},
}


def test_queue_of_the_namespace_is_written_and_cannot_be_changed(plane: ControlPlane, tenant: Api) -> None:
    path = run_pod(plane, tenant, "queued", "queued")
    metadata = plane.api.get(path)["metadata"]
    assert metadata["labels"] | {QUEUE: "research", "applicationId": "queued"} == metadata["labels"]
    assert metadata["annotations"][GROUP] == "queued"
    for name, changed in OTHERS.items():
        status, message = status_and_message(tenant.request("PATCH", path, {"metadata": changed}, MERGE_PATCH))
        assert status == 403, name
        assert "PlacementConflict: service queued: metadata." in message
        assert "is set by the policy and cannot be changed" in message
    harmless = {"metadata": {"labels": {"version": "v2"}, "annotations": {"note": "mine"}}}
    assert status_and_message(tenant.request("PATCH", path, harmless, MERGE_PATCH)) == (200, "")
    status, message = status_and_message(tenant.request("POST", PODS, pod("other", "queued", labels={QUEUE: "mine"})))
    assert (status, "PlacementConflict" in message) == (403, True)


@pytest.mark.parametrize(("gates", "expected"), [([], 403), ([{"name": "example.com/wait"}], 200)])
def test_queue_of_ones_own_can_be_changed_until_the_pod_is_scheduled(
    tenant: Api, gates: list[Json], expected: int
) -> None:
    path = create(tenant, f"choosing-{expected}", "choosing", labels={QUEUE: "mine"}, schedulingGates=gates)
    other = {"metadata": {"labels": {QUEUE: "other"}}}
    status, message = status_and_message(tenant.request("PATCH", path, other, MERGE_PATCH))
    assert (status, "cannot be changed (was 'mine'" in message) == (expected, expected == 403), message


GPU: Json = {"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}
ANY_TAINT: Json = {"operator": "Exists"}


def test_tenant_brings_only_what_is_allowed(plane: ControlPlane, tenant: Api) -> None:
    path = run_pod(plane, tenant, "bringing", "queued", tolerations=[GPU])
    own = plane.api.get(path)["spec"]["tolerations"]
    assert len(own) == 3, "with those of DefaultTolerationSeconds"
    for added, expected in ((ANY_TAINT, 403), ({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}, 200)):
        patch = [{"op": "add", "path": "/spec/tolerations/-", "value": added}]
        status, message = status_and_message(tenant.request("PATCH", path, patch, JSON_PATCH))
        assert status == expected, message
        assert ("PlacementNotAllowed" in message) is (expected == 403)
    outside: dict[str, Json] = {
        "spec.tolerations": {"tolerations": [ANY_TAINT]},
        "spec.nodeSelector": {"nodeSelector": {"disk": "ssd", "zone": "a"}},
        "spec.schedulerName": {"schedulerName": "mine"},
        "spec.priorityClassName": {"priorityClassName": "system-node-critical"},
    }
    for field, spec in outside.items():
        status, message = status_and_message(tenant.request("POST", f"{PODS}?dryRun=All", pod("o", "queued", **spec)))
        assert status == 403, field
        assert f"PlacementNotAllowed: service queued: {field} " in message
    status, message = status_and_message(
        tenant.request("POST", f"{PODS}?dryRun=All", pod("o", "queued", nodeSelector={"disk": "ssd"}))
    )
    assert status == 201, message


# --- missing rights of tenants ---

BINDING = {
    "apiVersion": "v1",
    "kind": "Binding",
    "metadata": {"name": "waiting"},
    "target": {"apiVersion": "v1", "kind": "Node", "name": "node-b1"},
}
RIGHTS: dict[str, tuple[str, str, Json]] = {
    "bind a Pod": ("POST", f"{PODS}/waiting/binding", BINDING),
    "bind by the older resource": ("POST", f"/api/v1/namespaces/{SPACE}/bindings", BINDING),
    "write a status": ("PATCH", f"{PODS}/waiting/status", {"status": {"nominatedNodeName": "node-b1"}}),
    "change the namespace's labels": (
        "PATCH",
        f"/api/v1/namespaces/{SPACE}",
        {"metadata": {"labels": {"tier": "free"}}},
    ),
    "give itself such a right": (
        "POST",
        f"/apis/{_RBAC}/v1/namespaces/{SPACE}/roles",
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "Role",
            "metadata": {"name": "binder"},
            "rules": [{"apiGroups": [""], "resources": ["pods/binding"], "verbs": ["create"]}],
        },
    ),
}


@pytest.mark.parametrize("right", RIGHTS.values(), ids=RIGHTS.keys())
def test_tenant_roles_have_no_right_that_bypasses_the_policy(
    plane: ControlPlane, tenant: Api, right: tuple[str, str, Json]
) -> None:
    method, path, body = right
    if plane.api.get(f"{PODS}/waiting") is None:
        create(tenant, "waiting", schedulerName="nobody")
    status, message = status_and_message(
        tenant.request(method, path, body, MERGE_PATCH if method == "PATCH" else "application/json")
    )
    assert status == 403
    assert "is forbidden: " in message


def test_bindings_and_status_updates_are_not_evaluated(plane: ControlPlane, tenant: Api) -> None:
    """They are for schedulers and kubelets; SECURITY.md describes their rights."""
    path = create(tenant, "handed", schedulerName="nobody")
    forged = {"labels": {"podgate.io/service": "forged"}, "annotations": {"podgate.io/policy-hash": "forged"}}
    assert plane.api.request("PATCH", f"{path}/status", {"metadata": forged}, MERGE_PATCH)[0] == 200
    metadata = plane.api.get(path)["metadata"]
    assert (metadata["labels"]["podgate.io/service"], metadata["annotations"]["podgate.io/policy-hash"]) == (
        "forged",
    ) * 2
    assert plane.api.request("POST", f"{path}/binding", {**BINDING, "metadata": {"name": "handed"}})[0] == 201
    assert plane.api.get(path)["spec"]["nodeName"] == "node-b1"


@pytest.mark.usefixtures("tenant")
def test_tenant_can_act_as_every_service_account_of_its_namespace(plane: ControlPlane) -> None:
    """An exempt account in its namespace would exempt the tenant; SECURITY.md therefore requires another namespace."""
    kubeconfig = plane.write_kubeconfig("tenant")
    pod_of_ci = json.dumps(pod("by-ci", "web", nodeName="node-b1"))
    arguments = ("create", "-n", SPACE, "-f", "-", "--dry-run=server")
    as_flag = f"--as=system:serviceaccount:{SPACE}:"
    for account, status in (("default", 1), ("ci", 0)):
        bindings = {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": f"{account}-edits", "namespace": SPACE},
            "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": "system:aggregate-to-edit"},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": SPACE}],
        }
        plane.apply(bindings)

        def result_with_rights(account: str = account) -> str | None:
            done = plane.kubectl(*arguments, as_flag + account, input=pod_of_ci, check=False, kubeconfig=kubeconfig)
            return None if "cannot create" in done.stderr else f"{done.returncode} {done.stderr}"

        response = plane.wait(result_with_rights, f"the rights of {account}")
        assert response is not None
        assert response.startswith(str(status)), response
        assert ("NodeNameSet" in response) is bool(status)


# --- rejections by the API server itself ---

REJECTED: dict[str, tuple[Json, str]] = {
    "a priority": ({"priority": 1000}, "the integer value of priority"),
    "a preemption policy": ({"preemptionPolicy": "Never"}, "the string value of PreemptionPolicy"),
    "an overhead": ({"overhead": {"cpu": "1m"}}, "Pod Overhead set without corresponding RuntimeClass"),
    "another overhead than the class's": (
        {"runtimeClassName": "heavy", "overhead": {"cpu": "1m"}},
        "Overhead doesn't match RuntimeClass's",
    ),
    "an ephemeral container": ({"ephemeralContainers": [{"name": "d", "image": "i"}]}, "cannot be set on create"),
}


@pytest.fixture(scope="module")
def heavy_runtime_class(plane: ControlPlane) -> Iterator[None]:
    """Create a RuntimeClass with an overhead."""
    runtime_class = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": "heavy"},
        "handler": "h",
    }
    plane.apply({**runtime_class, "overhead": {"podFixed": {"cpu": "100m"}}})
    yield
    plane.kubectl("delete", "runtimeclass", "heavy")


@pytest.mark.usefixtures("heavy_runtime_class")
@pytest.mark.parametrize("case", REJECTED.values(), ids=REJECTED.keys())
def test_fields_computed_by_admission_plugins_cannot_be_set(tenant: Api, case: tuple[Json, str]) -> None:
    spec, expected_message = case
    status, message = status_and_message(tenant.request("POST", PODS, pod("computed", "web", **spec)))
    assert status in {403, 422}
    assert expected_message in message
    assert "podgate.io" not in message


UPDATES: dict[str, Json] = {
    "a node": {"op": "add", "path": "/spec/nodeName", "value": "node-b1"},
    "a scheduler": {"op": "replace", "path": "/spec/schedulerName", "value": "other"},
    "another priority": {"op": "replace", "path": "/spec/priority", "value": 1000},
    "more than it asked for": {"op": "replace", "path": "/spec/containers/0/resources/requests/cpu", "value": "1"},
}


@pytest.mark.parametrize("change", UPDATES.values(), ids=UPDATES.keys())
@pytest.mark.parametrize("gated", [False, True], ids=["waiting", "gated"])
def test_later_updates_of_a_pod_do_not_change_its_placement(
    tenant: Api, plane: ControlPlane, change: Json, *, gated: bool
) -> None:
    name = "late-gated" if gated else "late"
    gates = {"schedulingGates": [{"name": "example.com/wait"}]} if gated else {"schedulerName": "nobody"}
    if plane.api.get(f"{PODS}/{name}") is None:
        create(tenant, name, **gates)
    status, message = status_and_message(tenant.request("PATCH", f"{PODS}/{name}", [change], JSON_PATCH))
    assert (status, "podgate.io" in message) == (422, False), message


def test_tolerations_of_an_ungated_pod_may_be_added_by_its_user(plane: ControlPlane, tenant: Api) -> None:
    """A shorter toleration before the policy's evicts only this Pod earlier from a failing node."""
    path = create(tenant, "bearing", "bearing", schedulerName="nobody")
    operation = {"op": "add", "path": "/spec/tolerations/0", "value": {**EVICTED_AFTER_AN_HOUR, "tolerationSeconds": 1}}
    assert status_and_message(tenant.request("PATCH", path, [operation], JSON_PATCH)) == (200, "")
    assert EVICTED_AFTER_AN_HOUR in plane.api.get(path)["spec"]["tolerations"], "tolerations cannot be removed"


def test_status_of_a_new_pod_is_dropped(plane: ControlPlane, tenant: Api) -> None:
    """A user cannot create a Pod as finished or nominated for a node."""
    pod_with_status = {
        **pod("with-status", "web", schedulerName="nobody"),
        "status": {"phase": "Succeeded", "nominatedNodeName": "b"},
    }
    assert tenant.request("POST", PODS, pod_with_status)[0] == 201
    status = plane.api.get(f"{PODS}/with-status")["status"]
    assert (status["phase"], status.get("nominatedNodeName")) == ("Pending", None)


# --- resources ---


def test_ephemeral_container_cannot_request_resources(plane: ControlPlane, tenant: Api) -> None:
    path = run_pod(plane, tenant, "debugged")
    debug = {"name": "d", "image": "i", "resources": {"requests": {"cpu": "40"}}}
    answer = plane.api.request(
        "PATCH", f"{path}/ephemeralcontainers", {"spec": {"ephemeralContainers": [debug]}}, STRATEGIC
    )
    status, message = status_and_message(answer)
    assert status == 422
    assert "resources: Forbidden: cannot be set for an Ephemeral Container" in message


def test_pod_level_resources_are_checked_against_the_range_of_pods(tenant: Api) -> None:
    pod_resources = {"requests": {"cpu": "10"}, "limits": {"cpu": "10"}}
    status, message = status_and_message(tenant.request("POST", PODS, pod("whole", "web", resources=pod_resources)))
    assert status == 403
    assert "ResourcesOutside: service web: the Pod as a whole: limits[cpu] is '10'" in message


@pytest.mark.parametrize("app", ["web", "clamped"])
def test_resize_outside_the_range_is_denied_and_not_clamped(plane: ControlPlane, tenant: Api, app: str) -> None:
    resources = {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}
    path = run_pod(
        plane, tenant, f"resized-{app}", app, containers=[{"name": "c", "image": "i", "resources": resources}]
    )
    for cpu, expected_status in (("2", 200), ("5", 403)):
        resize = {"name": "c", "resources": {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}}
        answer = plane.api.request("PATCH", f"{path}/resize", {"spec": {"containers": [resize]}}, STRATEGIC)
        status, message = status_and_message(answer)
        assert status == expected_status, message
        assert ("Resources" in message) is (expected_status == 403)


def test_pod_level_resize_is_checked_against_the_range_of_pods(plane: ControlPlane, tenant: Api) -> None:
    pod_resources = {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}
    path = run_pod(plane, tenant, "resized-whole", resources=pod_resources)
    resize = {"spec": {"resources": {"requests": {"cpu": "5"}, "limits": {"cpu": "5"}}}}
    status, message = status_and_message(plane.api.request("PATCH", f"{path}/resize", resize, STRATEGIC))
    assert status in {403, 422}, message
    assert plane.api.get(path)["spec"]["resources"] == pod_resources


def test_resource_claims_are_not_counted(tenant: Api) -> None:
    """SECURITY.md names the quota that counts them."""
    create(tenant, "claims", resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}])


# --- exemptions ---


def test_pods_of_a_tenants_daemon_set_are_exempt_unless_the_policy_says_otherwise(
    plane: ControlPlane, tenant: Api, installation: Installation
) -> None:
    def pods_of(name: str) -> list[Json]:
        found_pods: list[Json] = plane.api.get(f"{PODS}?labelSelector=deployment%3D{name}")["items"]
        return found_pods

    sets = f"/apis/apps/v1/namespaces/{SPACE}/daemonsets"
    assert tenant.request("POST", sets, {**deployment("exempt", "web"), "kind": "DaemonSet"})[0] == 201
    plane.wait(lambda: len(pods_of("exempt")) == 4, "a Pod on every node")
    assert not any("podgate.io/service" in pod["metadata"]["labels"] for pod in pods_of("exempt"))
    reviewing_policy = {**POLICY, "exemptions": {"daemonSets": False}}
    installation.change_policy(json.dumps(reviewing_policy))
    installation.configure(json.dumps(reviewing_policy))
    try:

        def is_reviewed() -> bool:
            tenant.request("DELETE", f"{sets}/judged")
            plane.wait(lambda: not pods_of("judged"), "the previous Pods to be deleted")
            assert tenant.request("POST", sets, {**deployment("judged", "web"), "kind": "DaemonSet"})[0] == 201
            found_pods = plane.wait(lambda: pods_of("judged"), "its Pods")
            return all(pod["metadata"]["labels"].get("podgate.io/service") == "web" for pod in found_pods)

        plane.wait(is_reviewed, "the DaemonSet's Pods to be reviewed")
    finally:
        tenant.request("DELETE", f"{sets}/judged")
        installation.change_policy(json.dumps(POLICY))
        installation.configure()
