"""Rendered webhook configurations in force: calls of the API server, and its behavior during an outage of Podgate."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.installation import lengthen_timeouts
from tests.cluster.recorded_cluster import RecordedCluster
from tests.cluster.recording_webhook import Recorder
from webhook.core.admission.exemptions import DAEMON_SET_CONTROLLER
from webhook.core.document import Purpose, load
from webhook.core.kubernetes.pod import MIRROR_ANNOTATION
from webhook.core.placement import SERVICE_LABEL
from webhook.core.webhook_configurations import ClientConfig, ServiceReference, render_configurations

ODD_USER = "o'neil\\ || true || \" é"
POLICY = f"""\
apiVersion: podgate.io/v1alpha1
kind: Policy
exemptions:
  namespaces: [asked-exempt, "asked-old-*", "*-old-asked"]
  usernames: [{json.dumps(ODD_USER)}]
  runtimeClasses: [spared]
services:
- {{name: named, failureMode: Closed, match: {{namespaces: [asked-exact, "asked-pre-*"]}}}}
- name: selected
  match:
    namespaceSelector:
      matchLabels: {{asked: "yes"}}
      matchExpressions: [{{key: asked-stage, operator: NotIn, values: [dev, test]}}]
- name: crossing
  failureMode: Closed
  match: {{namespaces: ["asked-x*"], namespaceSelector: {{matchLabels: {{asked: "yes"}}}}}}
- {{name: ending, match: {{namespaces: ["*-asked", "*-asked-too"]}}}}
"""
CLOSED, OPEN, NO_WEBHOOK = "validate-closed", "validate-open", ""
NAMESPACES = [
    ("asked-exact", {}, CLOSED),
    ("asked-exactly", {}, NO_WEBHOOK),
    ("asked-pre-a", {}, CLOSED),
    ("asked-pre", {}, NO_WEBHOOK),
    ("asked-both-pre", {"asked": "yes"}, OPEN),
    ("asked-pre-both", {"asked": "yes"}, CLOSED),
    ("asked-staged", {"asked": "yes", "asked-stage": "live"}, OPEN),
    ("asked-dev", {"asked": "yes", "asked-stage": "dev"}, NO_WEBHOOK),
    ("asked-no", {"asked": "no"}, NO_WEBHOOK),
    ("asked-x1", {"asked": "yes"}, CLOSED),
    ("asked-x2", {"asked": "yes", "asked-stage": "test"}, CLOSED),
    ("asked-x3", {}, NO_WEBHOOK),
    ("asked-exempt", {"asked": "yes"}, NO_WEBHOOK),
    ("asked-old-1", {"asked": "yes"}, NO_WEBHOOK),
    ("asked-older", {"asked": "yes"}, OPEN),
    ("team-asked", {}, OPEN),
    ("team-asked-too", {}, OPEN),
    ("team-asked-not", {}, NO_WEBHOOK),
    ("asked-pre-asked", {}, CLOSED),
    ("team-old-asked", {}, NO_WEBHOOK),
]
BOTH = [("mutate", "CREATE"), ("validate", "CREATE")]


def render(policy: str, client: ClientConfig) -> tuple[dict[str, Any], ...]:
    return lengthen_timeouts(render_configurations(load(policy.encode(), Purpose.SERVE).policy.policy, client))


@pytest.fixture(scope="module")
def recorded(plane: ControlPlane, identities: Identities) -> Iterator[RecordedCluster]:
    """Render POLICY's configurations, and wait until they are in force."""
    load_balancer = plane.load_balancers["good"]
    bundle = (identities.files.folder / "ca.crt").read_bytes()
    client = ClientConfig(ServiceReference(port=load_balancer.port), bundle)
    for name, labels, _ in NAMESPACES:
        plane.create_namespace(name, **labels)
    plane.apply(
        *(
            {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}, "handler": "h"}
            for name in ("spared", "asked")
        )
    )
    with Recorder(identities.files.pki.paths) as recorder:
        recorded = RecordedCluster(plane, recorder, load_balancer, client)
        recorded.start_podgate()
        plane.apply(*render(POLICY, client))

        def is_in_force() -> bool:
            recorded.create("asked-exact")
            return recorded.calls == BOTH

        plane.wait(is_in_force, "the webhooks to be in force", "kube-apiserver")
        yield recorded
        recorded.stop_podgate()
        plane.kubectl("delete", "mutatingwebhookconfiguration", "podgate")
        plane.kubectl("delete", "validatingwebhookconfiguration", "podgate", "podgate-policy")
        plane.kubectl("delete", "runtimeclass", "spared", "asked")
        plane.kubectl("delete", "namespace", *(name for name, *_ in NAMESPACES), "--wait=false")


@pytest.mark.parametrize(("namespace", "entry"), [(name, entry) for name, _, entry in NAMESPACES])
def test_pods_are_reviewed_once_in_namespaces_of_services_only(
    recorded: RecordedCluster, namespace: str, entry: str
) -> None:
    assert recorded.create(namespace)[0] == 201
    assert recorded.calls == (BOTH if entry else [])


@pytest.mark.parametrize(("namespace", "entry"), [(name, entry) for name, _, entry in NAMESPACES])
def test_during_an_outage_pods_are_denied_only_where_a_closed_service_may_own_them(
    recorded: RecordedCluster, namespace: str, entry: str
) -> None:
    recorded.stop_podgate()
    try:
        status, response = recorded.create(namespace)
    finally:
        recorded.start_podgate()
    assert status == (500 if entry == CLOSED else 201)
    assert ('failed calling webhook "validate-closed' in response) is (entry == CLOSED)


EXEMPT = [
    ("an exempt user", {"user": ODD_USER}, True),
    ("another user", {"user": "o'neil"}, False),
    ("the DaemonSet controller", {"user": DAEMON_SET_CONTROLLER}, True),
    ("another controller", {"user": "system:serviceaccount:kube-system:replicaset-controller"}, False),
    (
        "a kubelet's mirror Pod",
        {"user": "system:node:node-a1", "nodeName": "node-a1", "metadata": {"annotations": {MIRROR_ANNOTATION: "x"}}},
        True,
    ),
    ("another Pod of a kubelet", {"user": "system:node:node-a1", "nodeName": "node-a1"}, False),
    (
        "a tenant's mirror Pod",
        {"user": "tenant", "nodeName": "node-a1", "metadata": {"annotations": {MIRROR_ANNOTATION: "x"}}},
        False,
    ),
    ("a Pod of an exempt runtime class", {"runtimeClassName": "spared"}, True),
    ("a Pod of another runtime class", {"runtimeClassName": "asked"}, False),
]


@pytest.mark.parametrize(
    ("pod", "exempt"), [(pod, exempt) for _, pod, exempt in EXEMPT], ids=[row[0] for row in EXEMPT]
)
def test_exempt_requests_pass_and_no_others(recorded: RecordedCluster, pod: dict[str, Any], *, exempt: bool) -> None:
    status, response = recorded.create("asked-exact", **dict(pod))
    assert status == 201, response
    assert recorded.calls == ([] if exempt else BOTH)
    recorded.stop_podgate()
    try:
        status, response = recorded.create("asked-exact", **dict(pod))
    finally:
        recorded.start_podgate()
    assert status == (201 if exempt else 500), response


def test_daemon_set_pods_start_during_an_outage(recorded: RecordedCluster) -> None:
    labels = {"app": "agent"}
    spec = {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}}}
    spec["template"]["spec"] = {"containers": [{"name": "c", "image": "i"}]}
    recorded.stop_podgate()
    try:
        metadata = {"name": "agent", "namespace": "asked-exact"}
        recorded.plane.apply({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata, "spec": spec})
        path = "/apis/apps/v1/namespaces/asked-exact/daemonsets/agent"
        recorded.plane.wait(
            lambda: recorded.plane.api.get(path)["status"].get("numberReady") == 4, "4 Pods to be ready"
        )
    finally:
        recorded.start_podgate()
        recorded.plane.kubectl("delete", "daemonset", "agent", "-n", "asked-exact")


TOLERATION = [{"op": "add", "path": "/spec/tolerations/-", "value": {"key": "k", "operator": "Exists"}}]
HASH = "podgate.io/policy-hash"
UPDATES = [
    ("another annotation", {"metadata": {"annotations": {"a": "1"}}}, "", False),
    ("our annotation", {"metadata": {"annotations": {HASH: "1"}}}, "", True),
    ("our annotation taken away", {"metadata": {"annotations": {HASH: None}}}, "", True),
    ("a label", {"metadata": {"labels": {"a": "1"}}}, "", False),
    ("our label", {"metadata": {"labels": {SERVICE_LABEL: "1"}}}, "", True),
    ("our label taken away", {"metadata": {"labels": {SERVICE_LABEL: None}}}, "", True),
    ("a finalizer", {"metadata": {"finalizers": ["example.com/f"]}}, "", False),
    ("the finalizer taken away", {"metadata": {"finalizers": None}}, "", False),
    ("an image", [{"op": "replace", "path": "/spec/containers/0/image", "value": "j"}], "", False),
    ("a toleration", TOLERATION, "", False),
    ("the status", {"status": {"message": "m"}}, "status", False),
]


@pytest.fixture(scope="module")
def running(recorded: RecordedCluster) -> str:
    """Create a running Pod with resources; return its path."""
    resources = {"requests": {"cpu": "100m"}}
    assert (
        recorded.create("asked-exact", "run", containers=[{"name": "c", "image": "i", "resources": resources}])[0]
        == 201
    )
    path = "/api/v1/namespaces/asked-exact/pods/run"
    recorded.plane.wait(lambda: recorded.plane.api.get(path)["status"]["phase"] == "Running", "the Pod to run")
    return "asked-exact/pods/run"


@pytest.mark.parametrize(
    ("patch", "sub_resource", "is_reviewed"), [row[1:] for row in UPDATES], ids=[row[0] for row in UPDATES]
)
def test_update_is_reviewed_only_if_it_could_be_denied(
    recorded: RecordedCluster, running: str, patch: Any, sub_resource: str, *, is_reviewed: bool
) -> None:
    status, response = recorded.patch(running, patch, sub_resource=sub_resource)
    assert status == 200, response
    assert recorded.distinct_calls == ({("validate", "UPDATE")} if is_reviewed else set())


def test_resize_is_reviewed_and_a_debug_container_is_not(recorded: RecordedCluster, running: str) -> None:
    resized = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "200m"}}}]}}
    path = f"/api/v1/namespaces/{running}"
    strategic = "application/strategic-merge-patch+json"
    status, response = recorded.request("PATCH", f"{path}/resize", resized, strategic)
    assert status == 200, response
    calls = {(call.path, call.operation, call.sub_resource, call.name) for call in recorded.recorder.take_calls()}
    assert calls == {("validate", "UPDATE", "resize", "run")}  # once more for each conflict
    debug = {"spec": {"ephemeralContainers": [{"name": "d", "image": "i"}]}}
    status, response = recorded.request("PATCH", f"{path}/ephemeralcontainers", debug, strategic)
    assert (status, recorded.calls) == (200, []), response


GATES = [{"name": "example.com/a"}, {"name": "example.com/b"}]
REQUIRED = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "operator": "Exists"}]}]}
AFFINITY = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": REQUIRED}}
GATED_UPDATES = [
    ("another annotation", {"metadata": {"annotations": {"a": "1"}}}, False),
    ("a node selector", {"spec": {"nodeSelector": {"a": "1"}}}, True),
    ("an affinity", {"spec": {"affinity": AFFINITY}}, True),
    ("a toleration", TOLERATION, True),
    ("one gate of two", [{"op": "remove", "path": "/spec/schedulingGates/0"}], True),
    ("the last gate", [{"op": "remove", "path": "/spec/schedulingGates"}], True),
    ("a toleration once the gates are gone", TOLERATION, False),
]


def test_changes_of_gates_and_scheduling_fields_of_a_gated_pod_are_reviewed(recorded: RecordedCluster) -> None:
    assert recorded.create("asked-staged", "gated", schedulingGates=GATES)[0] == 201
    for change, patch, is_reviewed in GATED_UPDATES:
        status, response = recorded.update("asked-staged/pods/gated", patch)
        assert status == 200, response
        assert recorded.distinct_calls == ({("validate", "UPDATE")} if is_reviewed else set()), change


def test_terminating_pod_is_not_reviewed(recorded: RecordedCluster) -> None:
    path = "asked-exact/pods/leaving"
    assert recorded.create("asked-exact", "leaving", metadata={"finalizers": ["example.com/f"]})[0] == 201
    status, _ = recorded.request("DELETE", f"/api/v1/namespaces/{path}?gracePeriodSeconds=0", None)
    assert (status, recorded.calls) == (200, [])
    for patch in ({"metadata": {"labels": {"a": "1"}}}, {"metadata": {"finalizers": None}}):
        status, response = recorded.update(path, patch)
        assert (status, recorded.calls) == (200, []), response


def test_requests_that_no_policy_denies_pass_during_an_outage(recorded: RecordedCluster, running: str) -> None:
    label = {"metadata": {"labels": {"b": "1"}}}
    assert recorded.create("asked-staged", "labelled")[0] == 201
    recorded.stop_podgate()
    try:
        assert recorded.patch(running, {"metadata": {"annotations": {"b": "1"}}})[0] == 200
        assert recorded.patch(running, {"status": {"message": "n"}}, sub_resource="status")[0] == 200
        assert recorded.patch(running, label)[0] == 200
        assert recorded.patch(running, {"metadata": {"labels": {SERVICE_LABEL: "1"}}})[0] == 500
        assert recorded.patch("asked-staged/pods/labelled", label)[0] == 200
        assert recorded.request("DELETE", f"/api/v1/namespaces/{running}-none", None)[0] == 404
    finally:
        recorded.start_podgate()


def test_dry_run_is_sent_as_a_dry_run(recorded: RecordedCluster) -> None:
    recorded.create("asked-exact")
    assert [call.request["dryRun"] for call in recorded.recorder.take_calls()] == [True, True]


@pytest.mark.parametrize(
    ("namespace", "name", "is_reviewed"),
    [
        ("podgate-system", "podgate-policy", True),
        ("podgate-system", "other", False),
        ("asked-exact", "podgate-policy", False),
    ],
)
def test_only_the_policy_config_map_is_reviewed(
    recorded: RecordedCluster, namespace: str, name: str, *, is_reviewed: bool
) -> None:
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}}
    status, response = recorded.request("POST", f"/api/v1/namespaces/{namespace}/configmaps?dryRun=All", config_map)
    assert status == 201, response
    assert recorded.calls == ([("validate-policy", "CREATE")] if is_reviewed else [])


def test_thousands_of_names_and_odd_users_are_within_the_api_servers_limits(recorded: RecordedCluster) -> None:
    """One expression can contain about a thousand long names, so several are rendered."""
    names = [f"{'asked' * 9}-{number:04}" for number in range(4000)]
    document = {
        "apiVersion": "podgate.io/v1alpha1",
        "kind": "Policy",
        "exemptions": {"usernames": ["é\u2028" * 20 + str(number) for number in range(500)]},
        "services": [
            {"name": f"exact-{start}", "match": {"namespaces": names[start : start + 1000]}}
            for start in range(0, 4000, 1000)
        ]
        + [
            {
                "name": "prefixes",
                "failureMode": "Closed",
                "match": {"namespaces": [f"asked-{n}-*" for n in range(1000)]},
            }
        ],
    }
    mutating, validating, _ = render(json.dumps(document), recorded.client)
    for configuration in (mutating, validating):
        configuration["metadata"]["name"] = "podgate-many"
    for name in (names[-1], "asked-999-x"):
        recorded.plane.create_namespace(name)
    recorded.plane.apply(mutating, validating)
    try:
        for name in (names[-1], "asked-999-x"):
            recorded.plane.wait(
                lambda name=name: recorded.create(name) and recorded.calls == BOTH,
                f"the webhooks to be called for {name}",
            )
        recorded.create("asked-no")
        assert recorded.calls == []
    finally:
        kinds = "mutatingwebhookconfiguration,validatingwebhookconfiguration"
        recorded.plane.kubectl("delete", kinds, "podgate-many")
        recorded.plane.kubectl("delete", "namespace", names[-1], "asked-999-x", "--wait=false")


def test_no_match_condition_failed(recorded: RecordedCluster) -> None:
    """The API server counts expressions that fail, for which failurePolicy applies."""
    metrics = recorded.plane.kubectl("get", "--raw", "/metrics").stdout
    assert "apiserver_admission_match_condition_evaluation_seconds_count" in metrics
    errors = [
        line
        for line in metrics.splitlines()
        if line.startswith("apiserver_admission_match_condition_evaluation_errors")
    ]
    assert [line for line in errors if "podgate.io" in line] == []
