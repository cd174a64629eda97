"""Charged Pods that were never created: each is refunded once, and no existing Pod is."""

import asyncio
import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPSConnection
from typing import Any

from tests.cluster.controller_fixture import ControllerFixture
from tests.cluster.recording_webhook import admit
from tests.cluster.refunds import SERVICES, another_webhook, running
from webhook.controller import ControllerTiming
from webhook.controller.reports import NAME_TAKEN, NEVER_CREATED

__all__ = ["running"]

pytest_plugins = ("tests.redis_servers.fixtures",)

UNSCHEDULED: dict[str, Any] = {"schedulerName": "nobody"}
IS_SOAK = os.environ.get("PODGATE_TEST_REFUNDS") == "soak"
WORKLOADS, PODS_OF_ONE = 5 if IS_SOAK else 1, {"Deployment": 50, "Job": 20}
CREATED, DELETED_AT_ONCE = (150, 50) if IS_SOAK else (60, 20)
"""Single Pods; with the Pods of workloads there are 500, or 200."""
LOST, LOST_EACH = CREATED // 10, 2
"""Charged Pods that are not created: in the test of many Pods, and in each other test."""


def check_refunds(running: ControllerFixture, service: str, cause: str, lose: Callable[[], None]) -> None:
    """Lose some Pods, and check that each charge is refunded; a later test checks again."""
    used, standing = running.count_used(service), running.count_standing(service)
    for _ in range(LOST_EACH):
        lose()
    running.wait(lambda: running.count_refunded(service) >= LOST_EACH, f"{service}'s refunds")
    assert running.count_refunded(service) == running.count_refunded(service, cause) == LOST_EACH
    assert (running.count_used(service), running.count_standing(service)) == (used, standing)
    assert (running.count_unproven(service), running.count_charged_afterwards(service)) == (0, 0)


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
            before = running.count_used("client")
            connection = HTTPSConnection("127.0.0.1", running.plane.ports.apiserver, context=running.plane.api.context)
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "gone"}}
            body = json.dumps({**pod, "spec": {"containers": [{"name": "c", "image": "i"}]}})
            headers = {"Content-Type": "application/json"}
            connection.request("POST", f"/api/v1/namespaces/{namespace}/pods", body, headers)
            running.plane.wait(lambda: hanging.calls and running.count_used("client") > before, "the Pod to be charged")
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
    assert running.count_refunded("came") == running.count_refunded("came", NAME_TAKEN) == LOST + 1
    assert running.count_used("came") == workload_pods + CREATED + 1
    running.wait(lambda: running.count_standing("came") == remaining, "deleted Pods to be removed from the live Pods")
    assert (running.count_unproven("came"), running.count_charged_afterwards("came")) == (0, 0)


def test_nothing_was_refunded_twice(running: ControllerFixture) -> None:
    for service in set(SERVICES) - {"came"}:
        assert running.count_refunded(service) in {0, LOST_EACH}, "0 if the test of the service has not run"
        assert running.count_used(service) == running.count_standing(service)


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
