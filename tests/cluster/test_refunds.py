"""Charged Pods that were never created: each is refunded once, and no existing Pod is."""

import asyncio
import json
import os
from base64 import b64encode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPSConnection
from typing import Any

import pytest

from tests.cluster.controller_fixture import ControllerFixture, controller_fixture
from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.recording_webhook import Answer, Recorder, admit
from webhook.controller import ControllerTiming
from webhook.controller.reports import NAME_TAKEN, NEVER_CREATED

pytest_plugins = ("tests.redis_servers.fixtures",)

SERVICES = ("quota", "webhook", "name", "client", "came")
POLICY = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
defaults: {failureMode: Closed, quota: {windows: [{window: 1h, hard: {pods: 1000}}], standing: {hard: {pods: 1000}}}}
services:
""" + "".join(f"- {{name: {name}, match: {{namespaces: [refunds-{name}-STORE]}}}}\n" for name in SERVICES)
UNSCHEDULED: dict[str, Any] = {"schedulerName": "nobody"}
IS_SOAK = os.environ.get("PODGATE_TEST_REFUNDS") == "soak"
WORKLOADS, PODS_OF_ONE = 5 if IS_SOAK else 1, {"Deployment": 50, "Job": 20}
CREATED, DELETED_AT_ONCE = (150, 50) if IS_SOAK else (60, 20)
"""Single Pods; with the Pods of workloads there are 500, or 200."""
LOST, LOST_EACH = CREATED // 10, 2
"""Charged Pods that are not created: in the test of many Pods, and in each other test."""
_ANOTHER = "zz-another"
"""Mutating configurations are called in the order of their names: after Podgate's."""


@pytest.fixture(scope="module")
def running(plane: ControlPlane, identities: Identities, store: str, store_url: str) -> Iterator[ControllerFixture]:
    namespaces = [f"refunds-{name}-{store}" for name in SERVICES]
    with controller_fixture(plane, identities, POLICY.replace("STORE", store), namespaces, store_url) as fixture:
        yield fixture


def check_refunds(running: ControllerFixture, service: str, cause: str, lose: Callable[[], None]) -> None:
    """Lose some Pods, and check that each charge is refunded; a later test checks again."""
    used, standing = running.used(service), running.standing(service)
    for _ in range(LOST_EACH):
        lose()
    running.wait(lambda: running.refunded(service) >= LOST_EACH, f"{service}'s refunds")
    assert running.refunded(service) == running.refunded(service, cause) == LOST_EACH
    assert (running.used(service), running.standing(service)) == (used, standing)
    assert (running.unproven(service), running.charged_afterwards(service)) == (0, 0)


def test_pod_rejected_by_resource_quota_is_refunded(running: ControllerFixture, store: str) -> None:
    namespace = f"refunds-quota-{store}"
    limit = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "full", "namespace": namespace}}
    running.plane.apply({**limit, "spec": {"hard": {"pods": "0"}}})
    path = f"/api/v1/namespaces/{namespace}/resourcequotas/full"
    running.plane.wait(lambda: "hard" in running.plane.api.get(path).get("status", {}), "the ResourceQuota")

    def lose() -> None:
        status, response = running.installation.create_pod(namespace)
        assert (status, "exceeded quota: full" in response["message"]) == (403, True), response

    check_refunds(running, "quota", NEVER_CREATED, lose)


def test_pod_denied_by_another_webhook_is_refunded(running: ControllerFixture, store: str) -> None:
    namespace = f"refunds-webhook-{store}"

    async def deny(_: str, body: bytes) -> bytes:
        review = json.loads(await admit("", body))
        review["response"]["allowed"] = json.loads(body)["request"]["dryRun"]
        return json.dumps(review).encode()

    def lose() -> None:
        status, response = running.installation.create_pod(namespace)
        assert (status, 'webhook "another.example.com" denied' in response["message"]) == (400, True), response

    with another_webhook(running, namespace, deny):
        check_refunds(running, "webhook", NEVER_CREATED, lose)


def test_pod_with_an_existing_name_is_refunded(running: ControllerFixture, store: str) -> None:
    namespace = f"refunds-name-{store}"
    running.installation.create_pod(namespace, "taken", **UNSCHEDULED)
    check_refunds(running, "name", NAME_TAKEN, lambda: running.lose(namespace))


def test_pod_of_a_disconnected_client_is_refunded(running: ControllerFixture, store: str) -> None:
    namespace = f"refunds-client-{store}"

    async def hang(_: str, body: bytes) -> bytes:
        if json.loads(body)["request"]["dryRun"]:
            return await admit("", body)
        await asyncio.Event().wait()
        raise AssertionError

    with another_webhook(running, namespace, hang) as hanging:

        def lose() -> None:
            hanging.take_calls()
            before = running.used("client")
            connection = HTTPSConnection("127.0.0.1", running.plane.ports.apiserver, context=running.plane.api.context)
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "gone"}}
            body = json.dumps({**pod, "spec": {"containers": [{"name": "c", "image": "i"}]}})
            headers = {"Content-Type": "application/json"}
            connection.request("POST", f"/api/v1/namespaces/{namespace}/pods", body, headers)
            running.plane.wait(lambda: hanging.calls and running.used("client") > before, "the Pod to be charged")
            connection.close()

        check_refunds(running, "client", NEVER_CREATED, lose)


def test_no_created_pod_of_many_is_refunded(running: ControllerFixture, store: str) -> None:
    namespace = f"refunds-came-{store}"
    path = f"/api/v1/namespaces/{namespace}/pods"
    running.installation.create_pod(namespace, "taken", **UNSCHEDULED)
    running.plane.kubectl("apply", "-f", "-", "-n", namespace, input=json.dumps(workloads()))

    def create(number: int) -> None:
        name = f"single-{number}"
        status, response = running.installation.create_pod(namespace, name, **UNSCHEDULED)
        assert status == 201, response
        if number < DELETED_AT_ONCE:
            assert running.plane.api.request("DELETE", f"{path}/{name}")[0] == 200
        if number % (CREATED // LOST) == 0:
            running.lose(namespace)

    with ThreadPoolExecutor(8) as callers:
        assert [*callers.map(create, range(CREATED))] == [None] * CREATED
    workload_pods = WORKLOADS * sum(PODS_OF_ONE.values())
    remaining = workload_pods + CREATED - DELETED_AT_ONCE + 1
    running.plane.wait(lambda: len(running.installation.pods(namespace)) == remaining, f"{remaining} Pods")
    running.settle("came", namespace, LOST)
    assert running.refunded("came") == running.refunded("came", NAME_TAKEN) == LOST + 1
    assert running.used("came") == workload_pods + CREATED + 1
    running.wait(lambda: running.standing("came") == remaining, "deleted Pods to be removed from the live Pods")
    assert (running.unproven("came"), running.charged_afterwards("came")) == (0, 0)


def test_nothing_was_refunded_twice(running: ControllerFixture) -> None:
    for service in set(SERVICES) - {"came"}:
        assert running.refunded(service) in {0, LOST_EACH}, "0 if the test of the service has not run"
        assert running.used(service) == running.standing(service)


def test_default_wait_before_a_refund_is_one_minute() -> None:
    assert ControllerTiming().overdue_seconds == 60


def workloads() -> dict[str, Any]:
    """Return Deployments and Jobs."""
    items = []
    for number in range(WORKLOADS):
        for kind, pods in PODS_OF_ONE.items():
            labels = {"app": f"{kind.lower()}-{number}"}
            spec = {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never", **UNSCHEDULED}
            body: dict[str, Any] = {"template": {"metadata": {"labels": labels}, "spec": spec}}
            if kind == "Deployment":
                spec["restartPolicy"] = "Always"
                body |= {"replicas": pods, "selector": {"matchLabels": labels}}
            else:
                body |= {"completions": pods, "parallelism": pods}
            version = {"Deployment": "apps/v1", "Job": "batch/v1"}[kind]
            items.append({"apiVersion": version, "kind": kind, "metadata": {"name": labels["app"]}, "spec": body})
    return {"apiVersion": "v1", "kind": "List", "items": items}


@contextmanager
def another_webhook(
    running: ControllerFixture, namespace: str, answer: Answer, half: str = "Validating"
) -> Iterator[Recorder]:
    """Register another webhook for the Pods of a namespace; wait until it is called."""
    files = running.installation.files
    with Recorder(files.pki.paths, answer) as recorder:
        bundle = b64encode((files.folder / "ca.crt").read_bytes()).decode()
        running.plane.apply(configuration(f"https://{recorder.address}/another", bundle, namespace, half))
        try:

            def is_called() -> bool:
                running.installation.create_pod(namespace, dry_run=True)
                return bool(recorder.take_calls())

            running.plane.wait(is_called, "the other webhook to be called", "kube-apiserver")
            yield recorder
        finally:
            running.plane.kubectl("delete", f"{half.lower()}webhookconfiguration", _ANOTHER)


def configuration(url: str, bundle: str, namespace: str, half: str) -> dict[str, Any]:
    webhook = {
        "name": "another.example.com",
        "clientConfig": {"url": url, "caBundle": bundle},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}],
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": 30,
    }
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": f"{half}WebhookConfiguration"}
    return {**kind, "metadata": {"name": _ANOTHER}, "webhooks": [webhook]}
