"""Attempts of a tenant to bypass a placement or a quota on the real API server: denied, or documented.

The tenant has all rights of the built-in ClusterRole `admin` in a namespace, and no others. What SECURITY.md says that
Podgate does not hold back is shown here, too: where it changes, the page has to.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.api import Api
from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.installation import Installation, installed
from tests.cluster.placement.pods import deployment, pod, policy, service
from webhook.core.kubernetes.pod import MIRROR_ANNOTATION

Json = dict[str, Any]
SPACE = "ways-round"
EVICTED_LATE: Json = {"key": "failing", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3600}
POLICY = policy(
    service(
        "web",
        SPACE,
        {"topology": [{"level": "Zone", "in": ["zone-a"]}]},
        resources={"container": {"max": {"cpu": "2"}}, "pod": {"max": {"cpu": "3"}}},
    ),
    service("clamped", SPACE, {}, resources={"container": {"max": {"cpu": "2"}}, "whenOutside": "Clamp"}),
    service("bearing", SPACE, {"tolerations": [EVICTED_LATE]}),
)
POLICY["exemptions"] = {"usernames": [f"system:serviceaccount:{SPACE}:ci"]}
PODS = f"/api/v1/namespaces/{SPACE}/pods"
_RBAC = "rbac.authorization.k8s.io"
JSON_PATCH, MERGE_PATCH = "application/json-patch+json", "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


@pytest.fixture(scope="module")
def installation(plane: ControlPlane, identities: Identities) -> Iterator[Installation]:
    with installed(plane, identities.files, json.dumps(POLICY), [SPACE]) as found:
        found.wait_for_calls()
        yield found


pytestmark = pytest.mark.usefixtures("installation")


@pytest.fixture(scope="module")
def tenant(installation: Installation) -> Api:
    """Return the API server as the tenant sees it."""
    plane = installation.plane
    plane.apply(
        *(
            {
                "apiVersion": f"{_RBAC}/v1",
                "kind": "RoleBinding",
                "metadata": {"name": f"tenant-{part}", "namespace": SPACE},
                # The parts of which `admin` is put together.
                "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": f"system:aggregate-to-{part}"},
                "subjects": [{"apiGroup": _RBAC, "kind": "User", "name": "tenant"}],
            }
            for part in ("admin", "edit", "view")
        )
    )
    found = Api.create(plane.ports.apiserver, plane.authority.certificate, *plane.authority.user("tenant"))
    plane.wait(lambda: found.request("POST", f"{PODS}?dryRun=All", pod("p", "web"))[0] == 201, "the tenant's rights")
    return found


def status_and_message(answer: tuple[int, Any]) -> tuple[int, str]:
    status, body = answer
    return status, str(body.get("message", ""))


def created(tenant: Api, name: str, app: str = "web", **spec: Any) -> str:
    """Create a Pod as the tenant; return its path."""
    status, message = status_and_message(tenant.request("POST", PODS, pod(name, app, **spec)))
    assert status == 201, message
    return f"{PODS}/{name}"


def running(plane: ControlPlane, tenant: Api, name: str, app: str = "web", **spec: Any) -> str:
    path = created(tenant, name, app, **spec)
    plane.wait(lambda: plane.api.get(path)["status"].get("phase") == "Running", f"{name} to run")
    return path


# --- a node by name ---

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


def test_controller_cannot_set_a_node_name_for_a_tenant(plane: ControlPlane, tenant: Api) -> None:
    made = deployment("named", "web", nodeName="node-b1")
    assert tenant.request("POST", f"/apis/apps/v1/namespaces/{SPACE}/deployments", made)[0] == 201

    def refused() -> bool:
        found = plane.api.get(f"/apis/apps/v1/namespaces/{SPACE}/replicasets")["items"]
        conditions = [one for item in found for one in item["status"].get("conditions", [])]
        return any("NodeNameSet" in one.get("message", "") for one in conditions)

    plane.wait(refused, "the ReplicaSet to be told")


def test_scheduled_pod_can_still_be_updated(plane: ControlPlane, tenant: Api) -> None:
    path = running(plane, tenant, "placed")
    assert plane.api.get(path)["spec"]["nodeName"] in {"node-a1", "node-a2"}
    label = {"metadata": {"labels": {"version": "v2"}}}
    assert status_and_message(tenant.request("PATCH", path, label, MERGE_PATCH)) == (200, "")


# --- rights that no tenant has ---

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
        created(tenant, "waiting", schedulerName="nobody")
    status, message = status_and_message(
        tenant.request(method, path, body, MERGE_PATCH if method == "PATCH" else "application/json")
    )
    assert status == 403
    assert "is forbidden: " in message


def test_bindings_and_status_updates_are_not_evaluated(plane: ControlPlane, tenant: Api) -> None:
    """Those are the rights of schedulers and kubelets; SECURITY.md says what they can do."""
    path = created(tenant, "handed", schedulerName="nobody")
    forged = {"labels": {"podgate.io/service": "forged"}, "annotations": {"podgate.io/policy-hash": "forged"}}
    assert plane.api.request("PATCH", f"{path}/status", {"metadata": forged}, MERGE_PATCH)[0] == 200
    found = plane.api.get(path)["metadata"]
    assert (found["labels"]["podgate.io/service"], found["annotations"]["podgate.io/policy-hash"]) == ("forged",) * 2
    assert plane.api.request("POST", f"{path}/binding", {**BINDING, "metadata": {"name": "handed"}})[0] == 201
    assert plane.api.get(path)["spec"]["nodeName"] == "node-b1"


@pytest.mark.usefixtures("tenant")
def test_tenant_can_act_as_every_service_account_of_its_namespace(plane: ControlPlane) -> None:
    """So that an exempt one there exempts the tenant: SECURITY.md says where exempt ones belong."""
    mine = plane.kubeconfig_for("tenant")
    named = json.dumps(pod("by-ci", "web", nodeName="node-b1"))
    arguments = ("create", "-n", SPACE, "-f", "-", "--dry-run=server")
    whose = f"--as=system:serviceaccount:{SPACE}:"
    for account, status in (("default", 1), ("ci", 0)):
        bindings = {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": f"{account}-edits", "namespace": SPACE},
            "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": "system:aggregate-to-edit"},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": SPACE}],
        }
        plane.apply(bindings)

        def answered(account: str = account) -> str | None:
            done = plane.kubectl(*arguments, whose + account, input=named, check=False, kubeconfig=mine)
            return None if "cannot create" in done.stderr else f"{done.returncode} {done.stderr}"

        found = plane.wait(answered, f"the rights of {account}")
        assert found is not None
        assert found.startswith(str(status)), found
        assert ("NodeNameSet" in found) is bool(status)


# --- what the API server refuses by itself ---

REFUSED: dict[str, tuple[Json, str]] = {
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
def heavy(plane: ControlPlane) -> Iterator[None]:
    """Have a RuntimeClass with an overhead."""
    made = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "heavy"}, "handler": "h"}
    plane.apply({**made, "overhead": {"podFixed": {"cpu": "100m"}}})
    yield
    plane.kubectl("delete", "runtimeclass", "heavy")


@pytest.mark.usefixtures("heavy")
@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED.keys())
def test_fields_computed_by_admission_plugins_cannot_be_set(tenant: Api, case: tuple[Json, str]) -> None:
    spec, words = case
    status, message = status_and_message(tenant.request("POST", PODS, pod("computed", "web", **spec)))
    assert status in {403, 422}
    assert words in message
    assert "podgate.io" not in message


LATER: dict[str, Json] = {
    "a node": {"op": "add", "path": "/spec/nodeName", "value": "node-b1"},
    "a scheduler": {"op": "replace", "path": "/spec/schedulerName", "value": "other"},
    "another priority": {"op": "replace", "path": "/spec/priority", "value": 1000},
    "more than it asked for": {"op": "replace", "path": "/spec/containers/0/resources/requests/cpu", "value": "1"},
}


@pytest.mark.parametrize("change", LATER.values(), ids=LATER.keys())
@pytest.mark.parametrize("gated", [False, True], ids=["waiting", "gated"])
def test_later_updates_of_a_pod_do_not_change_its_placement(
    tenant: Api, plane: ControlPlane, change: Json, *, gated: bool
) -> None:
    name = "late-gated" if gated else "late"
    gates = {"schedulingGates": [{"name": "example.com/wait"}]} if gated else {"schedulerName": "nobody"}
    if plane.api.get(f"{PODS}/{name}") is None:
        created(tenant, name, **gates)
    status, message = status_and_message(tenant.request("PATCH", f"{PODS}/{name}", [change], JSON_PATCH))
    assert (status, "podgate.io" in message) == (422, False), message


def test_tolerations_of_an_ungated_pod_may_be_added_by_its_user(plane: ControlPlane, tenant: Api) -> None:
    """A shorter toleration in front of the policy's makes this Pod, and no other, leave a failing node earlier."""
    path = created(tenant, "bearing", "bearing", schedulerName="nobody")
    sooner = {"op": "add", "path": "/spec/tolerations/0", "value": {**EVICTED_LATE, "tolerationSeconds": 1}}
    assert status_and_message(tenant.request("PATCH", path, [sooner], JSON_PATCH)) == (200, "")
    assert EVICTED_LATE in plane.api.get(path)["spec"]["tolerations"], "none can be taken away"


def test_status_of_a_new_pod_is_dropped(plane: ControlPlane, tenant: Api) -> None:
    """Nobody is counted as ended, or is nominated for a node, by its own word."""
    made = {
        **pod("with-status", "web", schedulerName="nobody"),
        "status": {"phase": "Succeeded", "nominatedNodeName": "b"},
    }
    assert tenant.request("POST", PODS, made)[0] == 201
    status = plane.api.get(f"{PODS}/with-status")["status"]
    assert (status["phase"], status.get("nominatedNodeName")) == ("Pending", None)


# --- resources ---


def test_ephemeral_container_cannot_request_resources(plane: ControlPlane, tenant: Api) -> None:
    path = running(plane, tenant, "debugged")
    debug = {"name": "d", "image": "i", "resources": {"requests": {"cpu": "40"}}}
    answer = plane.api.request(
        "PATCH", f"{path}/ephemeralcontainers", {"spec": {"ephemeralContainers": [debug]}}, STRATEGIC
    )
    status, message = status_and_message(answer)
    assert status == 422
    assert "resources: Forbidden: cannot be set for an Ephemeral Container" in message


def test_pod_level_resources_are_checked_against_the_range_of_pods(tenant: Api) -> None:
    whole = {"requests": {"cpu": "10"}, "limits": {"cpu": "10"}}
    status, message = status_and_message(tenant.request("POST", PODS, pod("whole", "web", resources=whole)))
    assert status == 403
    assert "ResourcesOutside: service web: the Pod as a whole: limits[cpu] is '10'" in message


@pytest.mark.parametrize("app", ["web", "clamped"])
def test_resize_outside_the_range_is_denied_and_not_clamped(plane: ControlPlane, tenant: Api, app: str) -> None:
    resources = {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}
    path = running(
        plane, tenant, f"resized-{app}", app, containers=[{"name": "c", "image": "i", "resources": resources}]
    )
    for cpu, wanted in (("2", 200), ("5", 403)):
        grown = {"name": "c", "resources": {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}}
        answer = plane.api.request("PATCH", f"{path}/resize", {"spec": {"containers": [grown]}}, STRATEGIC)
        status, message = status_and_message(answer)
        assert status == wanted, message
        assert ("Resources" in message) is (wanted == 403)


def test_pod_level_resize_is_checked_against_the_range_of_pods(plane: ControlPlane, tenant: Api) -> None:
    whole = {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}
    path = running(plane, tenant, "resized-whole", resources=whole)
    grown = {"spec": {"resources": {"requests": {"cpu": "5"}, "limits": {"cpu": "5"}}}}
    status, message = status_and_message(plane.api.request("PATCH", f"{path}/resize", grown, STRATEGIC))
    assert status in {403, 422}, message
    assert plane.api.get(path)["spec"]["resources"] == whole


def test_resource_claims_are_not_counted(tenant: Api) -> None:
    """SECURITY.md names what counts it."""
    created(tenant, "claims", resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}])


# --- who is exempt ---


def test_pods_of_a_tenants_daemon_set_are_exempt_unless_the_policy_says_otherwise(
    plane: ControlPlane, tenant: Api, installation: Installation
) -> None:
    def made(name: str) -> list[Json]:
        found: list[Json] = plane.api.get(f"{PODS}?labelSelector=deployment%3D{name}")["items"]
        return found

    sets = f"/apis/apps/v1/namespaces/{SPACE}/daemonsets"
    assert tenant.request("POST", sets, {**deployment("exempt", "web"), "kind": "DaemonSet"})[0] == 201
    plane.wait(lambda: len(made("exempt")) == 4, "a Pod on every node")
    assert not any("podgate.io/service" in one["metadata"]["labels"] for one in made("exempt"))
    judging = {**POLICY, "exemptions": {"daemonSets": False}}
    installation.change_policy(json.dumps(judging))
    installation.configure(json.dumps(judging))
    try:

        def judged() -> bool:
            tenant.request("DELETE", f"{sets}/judged")
            plane.wait(lambda: not made("judged"), "the former Pods to go")
            assert tenant.request("POST", sets, {**deployment("judged", "web"), "kind": "DaemonSet"})[0] == 201
            found = plane.wait(lambda: made("judged"), "its Pods")
            return all(one["metadata"]["labels"].get("podgate.io/service") == "web" for one in found)

        plane.wait(judged, "the DaemonSet's Pods to be judged")
    finally:
        tenant.request("DELETE", f"{sets}/judged")
        installation.change_policy(json.dumps(POLICY))
        installation.configure()
