"""Releases that the API server refuses: told everywhere while it lasts, and once each when the cause is gone."""

import json
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from tests.cli.command_runner import podgate
from tests.cluster.controller_fixture import ControllerFixture, controller_fixture
from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.installation import RBAC
from tests.cluster.queue_failures import CONTAINER
from tests.cluster.recording_webhook import Recorder
from tests.cluster.refunds import configuration
from webhook.core.admission.mutation import QUEUE_GATE

WAITING = ("w1", "w2", "w3")
KINDS = ("policy", "right", "webhook")
ADMISSION = "admissionregistration.k8s.io/v1"
MERGE = "application/merge-patch+json"


def policy(*, hard: int) -> str:
    services = "".join(
        f"- {{name: refused-{kind}, match: {{namespaces: [refused-{kind}]}},"
        f" quota: {{windows: [{{window: 1h, hard: {{pods: {hard}}}}}], whenExceeded: Queue, queue: {{}}}}}}\n"
        for kind in KINDS
    )
    return f"apiVersion: podgate.io/v1alpha1\nkind: Policy\nservices:\n{services}"


@pytest.fixture(scope="module")
def running(plane: ControlPlane, identities: Identities) -> Iterator[ControllerFixture]:
    with controller_fixture(plane, identities, policy(hard=1), [f"refused-{kind}" for kind in KINDS]) as running:
        yield running


def label(running: ControllerFixture, namespace: str) -> int:
    """Return the status of a change of the running Pod."""
    patch = {"metadata": {"labels": {"touched": "yes"}}}
    return running.plane.api.request("PATCH", f"/api/v1/namespaces/{namespace}/pods/fills?dryRun=All", patch, MERGE)[0]


@contextmanager
def deny_by_policy(running: ControllerFixture, namespace: str) -> Iterator[None]:
    """Deny all changes of Pods in a namespace by a ValidatingAdmissionPolicy."""
    metadata = {"name": namespace}
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["UPDATE"]}]
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": rules},
        "validations": [{"expression": "false", "message": "Pods of this namespace are frozen"}],
    }
    selector = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
    binding = {"policyName": namespace, "validationActions": ["Deny"], "matchResources": selector}
    kinds = (("ValidatingAdmissionPolicy", spec), ("ValidatingAdmissionPolicyBinding", binding))
    for kind, its in kinds:
        document = {"apiVersion": ADMISSION, "kind": kind, "metadata": metadata, "spec": its}
        running.plane.kubectl("apply", "-f", "-", input=json.dumps(document))
    running.plane.wait(lambda: label(running, namespace) == 422, "the policy to deny")
    try:
        yield
    finally:
        for kind, _ in kinds:
            running.plane.kubectl("delete", kind.lower(), namespace)


@contextmanager
def deny_by_webhook(running: ControllerFixture, namespace: str) -> Iterator[None]:
    async def deny(_: str, body: bytes) -> bytes:
        uid = json.loads(body)["request"]["uid"]
        response = {"uid": uid, "allowed": False, "status": {"code": 503, "message": "frozen by another webhook"}}
        return json.dumps(
            {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
        ).encode()

    files = running.installation.files
    with Recorder(files.pki.paths, deny) as recorder:
        bundle = b64encode((files.folder / "ca.crt").read_bytes()).decode()
        document = configuration(f"https://{recorder.address}/frozen", bundle, namespace, "Validating")
        document["metadata"]["name"] = namespace
        document["webhooks"][0]["rules"][0]["operations"] = ["UPDATE"]
        running.plane.apply(document)
        running.plane.wait(lambda: label(running, namespace) == 503, "the other webhook to deny")
        try:
            yield
        finally:
            running.plane.kubectl("delete", "validatingwebhookconfiguration", namespace)


@contextmanager
def remove_right(running: ControllerFixture, _: str) -> Iterator[None]:
    """Take the right to change Pods from the account that releases them."""
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/podgate-pods"
    role = running.plane.api.get(path)
    rules = [
        {**rule, "verbs": [verb for verb in rule["verbs"] if verb != "patch"]} if "pods" in rule["resources"] else rule
        for rule in role["rules"]
    ]
    assert rules != role["rules"]
    status, answer = running.plane.api.request("PATCH", path, {"rules": rules}, MERGE)
    assert status == 200, answer
    try:
        yield
    finally:
        running.plane.apply_file(RBAC)


@pytest.mark.parametrize(
    ("kind", "refusal", "reason", "words"),
    [
        ("policy", deny_by_policy, "admission", "denied request: Pods of this namespace are frozen"),
        ("right", remove_right, "forbidden", "grant the right to patch pods in all namespaces"),
        ("webhook", deny_by_webhook, "admission", "denied the request: frozen by another webhook"),
    ],
)
def test_refused_releases_are_told_while_they_last_and_made_once_afterwards(
    running: ControllerFixture,
    kind: str,
    refusal: Callable[[ControllerFixture, str], AbstractContextManager[None]],
    reason: str,
    words: str,
) -> None:
    plane, namespace = running.plane, f"refused-{kind}"
    running.installation.change_policy(policy(hard=1))
    for name in ("fills", *WAITING):
        status, answer = running.installation.create_pod(namespace, name, containers=[CONTAINER])
        assert status == 201, answer
    assert list_gated(running, namespace) == {*WAITING}
    leader = plane.wait(running.leader, "a leader")
    labels = f'service="{namespace}"'
    released = leader.total("podgate_queue_released_total", labels)

    def queue(*arguments: str) -> str:
        return podgate("queue", namespace, *arguments, "--server", f"http://{leader.plain}").out

    def count_failing() -> float:
        return leader.total("podgate_queue_failing_pods", labels, f'reason="{reason}"')

    with refusal(running, namespace):
        running.installation.change_policy(policy(hard=9))
        plane.wait(lambda: count_failing() == 3, "all releases to be refused", leader.name)
        plane.wait(
            lambda: len(json.loads(queue("-o", "json"))["pods"]) == 3, "their places, which are kept for a second"
        )
        rows: list[dict[str, Any]] = json.loads(queue("-o", "json"))["pods"]
        assert {(row["name"], row["cause"]) for row in rows} == {(name, "ReleaseFails") for name in WAITING}
        assert all(words in row["why"] for row in rows), rows
        assert f"3 Pods of {namespace} cannot be released ({reason})" in queue("-o", "wide")
        assert leader.total("podgate_queue_pods", labels) == 3
        [shown] = [service for service in leader.status()["queues"]["services"] if service["service"] == namespace]
        assert (shown["waiting"], shown["failing"][0]["pods"]) == (3, 3)
        where = ("--kubeconfig", plane.kubeconfig, "--leader", f"http://{leader.plain}")
        first = podgate("explain", "pod", "w1", "-n", namespace, *where, "--server", "http://127.0.0.1:1").out
        assert first.startswith("ReleaseFails: cannot release: HTTP "), first
        assert words in first
        log = running.installation.log(leader)
        assert log.count("waiting Pods cannot be released") >= 1
        assert "its gates changed" not in log
        plane.wait(lambda: running.count_used(namespace) == 1, "no charge to be left behind by a release", leader.name)
        assert list_gated(running, namespace) == {*WAITING}
    plane.wait(lambda: not list_gated(running, namespace), "the Pods to be released", leader.name)
    plane.wait(lambda: leader.total("podgate_queue_pods", labels) == 0, "the queue to be empty")
    plane.wait(lambda: count_failing() == 0, "nothing to fail any more")
    assert running.count_used(namespace) == 4
    assert leader.total("podgate_queue_released_total", labels) - released == 3


def list_gated(running: ControllerFixture, namespace: str) -> set[str]:
    return {
        pod["metadata"]["name"]
        for pod in running.installation.pods(namespace)
        if any(gate["name"] == QUEUE_GATE for gate in pod["spec"].get("schedulingGates", ()))
    }
