"""Waiting Pods on a real control plane while something fails or changes: none is lost, and none waits unseen."""

import asyncio
import json
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.controller_fixture import ControllerFixture, controller_fixture
from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.queue_failures import CONTAINER
from tests.cluster.recording_webhook import admit
from tests.cluster.refunds import another_webhook
from tests.redis_servers import RedisServer, names, program
from webhook.core.admission.mutation import QUEUE_GATE

QUEUE = "{window: 1h, hard: {pods: 1, requests.cpu: 1}}], whenExceeded: Queue, queue: "
RULES = {
    "lost": "{}",
    "deleted": "{}",
    "edited": "{}",
    "beside": "{}",
    "ungated": "{}",
    "stopped": "{}",
    "removed": "{}",
    "expires": "{maxWait: 5s}",
    "kept": "{maxWait: 5s, whenExpired: Keep}",
}
UNFILLED = {"raced": "{}", "scaled": "{}", "crowded": "{maxPods: 1}"}
"""Services without Pods."""
WAITING = ("w1", "w2", "w3")
HEAD = "apiVersion: podgate.io/v1alpha1\nkind: Policy\nservices:\n"
SERVICES = {
    name: f"- {{name: {name}, match: {{namespaces: [qf-{name}]}}, quota: {{windows: [{QUEUE}{rules}}}}}\n"
    for name, rules in (RULES | UNFILLED).items()
}
SERVICES["scaled"] = SERVICES["scaled"].replace("pods: 1", "pods: 2")
JSON_PATCH, MERGE, STRATEGIC = (
    f"application/{kind}+json" for kind in ("json-patch", "merge-patch", "strategic-merge-patch")
)
UNGATE = [{"op": "remove", "path": "/spec/schedulingGates"}]


def policy(**changed: str) -> str:
    return HEAD + "".join({**SERVICES, **changed}.values())


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    folder: Path = tmp_path_factory.mktemp("queue") / "redis"
    with RedisServer(program(names()[0]), folder) as server:
        yield server


@pytest.fixture(scope="module")
def running(plane: ControlPlane, identities: Identities, redis: RedisServer) -> Iterator[ControllerFixture]:
    """Install Podgate; of each service one Pod fills the quota, and three wait."""
    namespaces = [f"qf-{name}" for name in SERVICES]
    with controller_fixture(plane, identities, policy(), namespaces, redis.url) as running:
        for name in RULES:
            for pod in ("fills", *WAITING):
                create(running, name, pod)
            assert list_gated(running, name) <= {*WAITING}
        yield running


def create(running: ControllerFixture, service: str, name: str) -> None:
    status, response = running.installation.create_pod(f"qf-{service}", name, containers=[CONTAINER])
    assert status == 201, response


def list_gated(running: ControllerFixture, service: str) -> set[str]:
    pods = running.installation.pods(f"qf-{service}")
    return {
        pod["metadata"]["name"]
        for pod in pods
        if any(gate["name"] == QUEUE_GATE for gate in pod["spec"].get("schedulingGates", ()))
    }


def count_waiting(running: ControllerFixture, service: str) -> float:
    """Return how many Pods wait, as the leader counts them."""
    leader = running.leader()
    return -1 if leader is None else leader.total("podgate_queue_pods", f'service="{service}"')


def edit(running: ControllerFixture, service: str, pod: str, patch: Any, kind: str) -> tuple[int, Any]:
    return running.plane.api.request("PATCH", f"/api/v1/namespaces/qf-{service}/pods/{pod}", patch, kind)


def test_expired_pods_are_deleted_or_wait_on(running: ControllerFixture) -> None:
    """A Job counts one that is deleted as failed."""
    plane = running.plane
    template = {"spec": {"containers": [CONTAINER], "restartPolicy": "Never"}}
    metadata = {"name": "job", "namespace": "qf-expires"}
    spec = {"backoffLimit": 0, "template": template}
    plane.apply({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})
    job = "/apis/batch/v1/namespaces/qf-expires/jobs/job"

    def has_failed() -> bool:
        status = plane.api.get(job)["status"]
        reasons = [condition["reason"] for condition in status.get("conditions", ())]
        return "BackoffLimitExceeded" in reasons and status.get("failed") == 1  # which is counted last

    plane.wait(has_failed, "the Job to fail with one Pod")
    running.plane.wait(lambda: len(running.installation.pods("qf-expires")) == 1, "the expired Pods to be deleted")
    [leader] = running.installation.controllers
    expired = "podgate_queue_expired_total"
    running.plane.wait(lambda: leader.total(expired, 'service="kept"') == 3, "Pods to expire")
    assert (list_gated(running, "kept"), count_waiting(running, "kept")) == ({*WAITING}, 3)
    assert leader.total(expired, 'service="expires"') == 4


def test_deleted_pods_leave_the_queue_and_delay_no_namespace(running: ControllerFixture, redis: RedisServer) -> None:
    plane = running.plane
    plane.api.request("DELETE", "/api/v1/namespaces/qf-deleted/pods/w1")
    plane.wait(lambda: count_waiting(running, "deleted") == 2, "the deleted Pod to leave")
    plane.api.request("DELETE", "/api/v1/namespaces/qf-deleted")
    plane.wait(lambda: plane.api.get("/api/v1/namespaces/qf-deleted") is None, "the namespace to be gone")
    plane.wait(lambda: count_waiting(running, "deleted") == 0, "its Pods to leave")
    plane.wait(lambda: not count_indexed(redis, "deleted"), "the index to forget them")
    assert running.count_used("deleted") == 1, "who never was released is never charged"


def count_indexed(redis: RedisServer, service: str) -> int:
    return int(redis.cli("ZCARD", f"podgate:{{{service}}}:v1:default:q:{service}"))


def test_edited_pods_are_charged_and_ordered_as_they_are(running: ControllerFixture) -> None:
    """The first asks for more than there is room, then for less; the third gets ahead of the second."""
    assert edit(running, "edited", "w3", {"metadata": {"annotations": {"podgate.io/priority": "9"}}}, MERGE)[0] == 200
    assert edit(running, "edited", "w3", {"spec": {"nodeSelector": {"zone": "a"}}}, STRATEGIC)[0] == 200
    smaller = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "10m"}}}]}}
    status, response = edit(running, "edited", "w3/resize", smaller, STRATEGIC)
    assert status == 200, response
    status, response = edit(running, "edited", "w3", {"metadata": {"labels": {"podgate.io/service": "kept"}}}, MERGE)
    assert (status, "PodgateFieldImmutable" in response["message"]) == (403, True), response
    running.installation.change_policy(policy(edited=SERVICES["edited"].replace("pods: 1", "pods: 2")))
    running.plane.wait(lambda: list_gated(running, "edited") == {"w1", "w2"}, "the Pod of priority to be released")
    assert running.limit("edited", "1h", "requests.cpu")["used"] == "110m"


def test_a_gate_that_is_removed_without_podgate_ends_the_waiting(running: ControllerFixture) -> None:
    """While no server runs and the failure mode is Open, anybody may: the Pod is counted afterwards."""
    [server] = running.installation.servers
    running.installation.stop_server(server)
    assert edit(running, "ungated", "w2", UNGATE, JSON_PATCH)[0] == 200
    running.start_server()
    running.plane.wait(lambda: count_waiting(running, "ungated") == 2, "the Pod to leave the queue")
    running.wait(lambda: running.count_used("ungated") == 2, "the Pod to be charged")
    assert list_gated(running, "ungated") == {"w1", "w3"}
    status, response = edit(running, "ungated", "w1", UNGATE, JSON_PATCH)
    assert (status, "PodgateFieldImmutable" in response["message"]) == (403, True), response


def test_pods_of_services_that_stop_queueing_or_are_removed_are_released(running: ControllerFixture) -> None:
    denies = "- {name: stopped, match: {namespaces: [qf-stopped]}, quota: {windows: [{window: 1h, hard: {pods: 3}}]}}\n"
    running.installation.change_policy(policy(stopped=denies, removed=""))
    running.plane.wait(lambda: len(list_gated(running, "stopped")) == 1, "Pods to be released at the service's rate")
    log = running.installation.log(running.installation.controllers[0])
    assert list_gated(running, "stopped") == {"w3"} or "cannot be released" in log, f"others pass a refused Pod\n{log}"
    running.plane.wait(lambda: not list_gated(running, "removed"), "the Pods of no service to be released")
    assert running.count_used("stopped") == 3
    assert running.installation.create_pod("qf-stopped", "denied")[0] == 429


def test_objects_beside_gated_pods_see_pods_that_are_pending(running: ControllerFixture) -> None:
    plane, metadata = running.plane, {"name": "beside", "namespace": "qf-beside"}
    labels = {"app": "web"}  # of the waiting Pods as well
    spec = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "10m"}}}]}
    of_job = {"template": {"spec": {**spec, "restartPolicy": "Never"}}, "activeDeadlineSeconds": 2}
    template = {
        "selector": {"matchLabels": {"app": "own"}},
        "template": {"metadata": {"labels": {"app": "own"}}, "spec": spec},
    }
    documents: dict[str, tuple[str, Any]] = {
        "ResourceQuota": ("v1", {"hard": {"pods": 20}}),
        "PodDisruptionBudget": ("policy/v1", {"minAvailable": 1, "selector": {"matchLabels": labels}}),
        "Job": ("batch/v1", of_job),
        "Deployment": ("apps/v1", {**template, "progressDeadlineSeconds": 2}),
        "StatefulSet": ("apps/v1", {**template, "replicas": 2, "serviceName": "none"}),
    }
    plane.apply(
        *(
            {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}
            for kind, (version, spec) in documents.items()
        )
    )

    def status(path: str) -> dict[str, Any]:
        return dict((plane.api.get(f"{path}/beside") or {}).get("status") or {})

    def reasons(path: str) -> list[str]:
        return [condition.get("reason", "") for condition in status(path).get("conditions", ())]

    deployments = "/apis/apps/v1/namespaces/qf-beside/deployments"
    plane.wait(lambda: "DeadlineExceeded" in reasons("/apis/batch/v1/namespaces/qf-beside/jobs"), "the Job to fail")
    plane.wait(lambda: "ProgressDeadlineExceeded" in reasons(deployments), "the Deployment to report")
    plane.wait(lambda: len(list_gated(running, "beside")) == 5, "the Pod of the Job to be deleted")
    assert {"w1", "w2", "w3", "beside-0"} < list_gated(running, "beside"), "a StatefulSet waits for its first Pod"
    quotas = "/api/v1/namespaces/qf-beside/resourcequotas"
    plane.wait(lambda: status(quotas).get("used") == {"pods": "6"}, "the ResourceQuota to count waiting Pods")
    budgets = "/apis/policy/v1/namespaces/qf-beside/poddisruptionbudgets"
    plane.wait(lambda: status(budgets).get("expectedPods") == 4, "the budget to expect waiting Pods")
    assert status(budgets)["currentHealthy"] <= 1


def test_a_pod_that_lost_the_race_is_denied(running: ControllerFixture) -> None:
    """Another webhook delays two Pods between both calls: the first of them sees room for both."""
    goes_on = False

    async def hold(_: str, body: bytes) -> bytes:
        while not (goes_on or json.loads(body)["request"]["dryRun"]):  # noqa: ASYNC110  another thread ends it
            await asyncio.sleep(0.05)
        return await admit("", body)

    with another_webhook(running, "qf-raced", hold, "Mutating") as holding, ThreadPoolExecutor(2) as pool:

        def start_creation(name: str, calls: int) -> Future[tuple[int, Any]]:
            future = pool.submit(running.installation.create_pod, "qf-raced", name, containers=[CONTAINER])
            running.plane.wait(lambda: len(holding.calls) == calls, f"{name} to be held")
            return future

        holding.take_calls()
        creation = start_creation("one", 1)
        time.sleep(0.3)  # the server expects a Pod that it did not gate for 250 ms
        other = start_creation("other", 2)
        goes_on = True
        answers = sorted((creation.result(), other.result()), key=lambda answer: answer[0])
    assert [status for status, _ in answers] == [201, 429]
    assert "QuotaExceeded" in answers[1][1]["message"]
    assert (running.count_used("raced"), list_gated(running, "raced")) == (1, set())
    create(running, "raced", "late")
    assert list_gated(running, "raced") == {"late"}


def test_pods_beyond_max_pods_are_denied(running: ControllerFixture) -> None:
    for name in ("fills", "waits"):
        create(running, "crowded", name)
    status, response = running.installation.create_pod("qf-crowded", "third", containers=[CONTAINER])
    assert (status, "QueueFull" in response["message"]) == (429, True), response
    assert (running.count_used("crowded"), list_gated(running, "crowded")) == (1, {"waits"})


METRICS = "metrics.k8s.io"


def serve_metrics(plane: ControlPlane, pods: Iterable[dict[str, Any]]) -> None:
    """Serve the metrics API from a definition: these Pods use 100 millicores each."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    approved = {"api-approved.kubernetes.io": "unapproved, for a test"}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"pods.{METRICS}", "annotations": approved},
        "spec": {
            "group": METRICS,
            "scope": "Namespaced",
            "names": {"plural": "pods", "kind": "PodMetrics", "listKind": "PodMetricsList"},
            "versions": [{"name": "v1beta1", "served": True, "storage": True, "schema": schema}],
        },
    }
    plane.apply(definition)
    plane.wait(lambda: plane.api.get(f"/apis/{METRICS}/v1beta1") is not None, "the metrics API")
    at = f"{datetime.now(UTC) + timedelta(minutes=1):%Y-%m-%dT%H:%M:%SZ}"
    for pod in pods:
        names = {name: pod["metadata"][name] for name in ("name", "namespace", "labels")}
        used = [{"name": "c", "usage": {"cpu": "100m", "memory": "1Mi"}}]
        plane.apply(
            {
                "apiVersion": f"{METRICS}/v1beta1",
                "kind": "PodMetrics",
                "metadata": names,
                "timestamp": at,
                "window": "1s",
                "containers": used,
            }
        )


def test_an_autoscaler_counts_waiting_pods_and_asks_for_no_more(running: ControllerFixture) -> None:
    """Two Pods run at twice the target, so that two more are wanted: these wait, and count as idle."""
    plane, metadata = running.plane, {"name": "scaled", "namespace": "qf-scaled"}
    labels = {"app": "scaled"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [CONTAINER], "terminationGracePeriodSeconds": 0}}
    deployment = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    plane.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": deployment})

    def run() -> list[dict[str, Any]]:
        pods = running.installation.pods("qf-scaled")
        return [pod for pod in pods if pod["status"]["phase"] == "Running"]

    plane.wait(lambda: len(run()) == 2, "two Pods to run")
    serve_metrics(plane, run())
    target = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "scaled"},
        "maxReplicas": 9,
        "metrics": [{"type": "Resource", "resource": target}],
    }
    plane.apply({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": metadata, "spec": spec})
    path = "/apis/autoscaling/v2/namespaces/qf-scaled/horizontalpodautoscalers/scaled"

    def status() -> dict[str, Any]:
        return dict(plane.api.get(path).get("status") or {})

    plane.wait(lambda: len(list_gated(running, "scaled")) == 2, "the autoscaler to ask for two more")
    plane.wait(lambda: status().get("currentReplicas") == 4, "the autoscaler to see them")
    time.sleep(4)  # the autoscaler decides each second
    assert (status()["desiredReplicas"], len(running.installation.pods("qf-scaled"))) == (4, 4)
    running.installation.change_policy(policy(scaled=SERVICES["scaled"].replace("pods: 2, requests.cpu: 1", "pods: 9")))
    plane.wait(lambda: len(run()) == 4, "the waiting Pods to run")
    plane.delete(path, f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/pods.{METRICS}")


def test_no_pod_is_lost_with_redis_or_with_a_leader(running: ControllerFixture, redis: RedisServer) -> None:
    """Each loss of the counters may release one Pod more: that was charged more than a minute ago."""
    installation, plane = running.installation, running.plane
    for name in ("w4", "w5"):
        create(running, "lost", name)

    def is_restored() -> bool:
        return 0 < count_indexed(redis, "lost") == len(list_gated(running, "lost"))

    lost_at = time.monotonic()
    redis.cli("FLUSHALL")
    installation.change_policy(policy(kept=SERVICES["kept"].replace("pods: 1", "pods: 9")))
    plane.wait(is_restored, "the leader to restore the index")
    plane.wait(lambda: len(list_gated(running, "kept")) < len(WAITING), "releases after the loss")
    assert time.monotonic() - lost_at >= 10, "servers submit their charges of the last minute again before"
    redis.kill()
    assert plane.api.request("DELETE", "/api/v1/namespaces/qf-lost/pods/w5")[0] == 200
    redis.start()
    plane.wait(is_restored, "the leader to restore the index of an empty Redis")
    [first] = installation.controllers
    second = running.start_controller()
    installation.stop_controller(first, kill=True)
    left = len(list_gated(running, "lost"))
    plane.wait(lambda: running.leader() is second and count_waiting(running, "lost") == left, "the second to lead")
    create(running, "lost", "late")
    assert "late" in list_gated(running, "lost"), "it waits behind the others"
    installation.change_policy(policy(lost=SERVICES["lost"].replace("pods: 1", "pods: 9")))
    plane.wait(lambda: not list_gated(running, "lost"), "all Pods to be released")
    assert second.total("podgate_queue_released_total", 'service="lost"') == left + 1
