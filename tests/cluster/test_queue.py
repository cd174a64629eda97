"""Waiting Pods on a real control plane: released gold first, never above the limit, and all of them in the end."""

import json
import os
import re
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tests.cli.command_runner import Done, podgate
from tests.cluster import pod_starts
from tests.cluster.controller_fixture import ControllerFixture, controller_fixture
from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.processes import ComponentError
from tests.cluster.queue import is_gated
from tests.timeouts import HANG_SECONDS

pytest_plugins = ("tests.redis_servers.fixtures",)

CLASSES = ("gold", "silver", "bronze")
IS_SOAK = os.environ.get("PODGATE_TEST_QUEUE") == "soak"
HARD, WINDOW, PODS_OF_ONE, KILLS, SECONDS = (50, "10s", 334, 20, 900) if IS_SOAK else (6, "4s", 6, 0, HANG_SECONDS)
"""`make soak` waits for 1,002 Pods, and kills the controller twenty times."""
POLICY = f"""\
apiVersion: podgate.io/v1alpha1
kind: Policy
pools:
- name: shared
  windows: [{{window: {WINDOW}, hard: {{pods: {HARD}}}}}, {{window: 24h, hard: {{pods: 5000}}}}]
  whenExceeded: Queue
defaults: {{quota: {{whenExceeded: Queue, queue: {{maxPods: 500}}}}}}
services:
""" + "".join(
    f"- {{name: {name}, match: {{namespaces: [queue-{name}-STORE]}}, pool: shared, slaClass: {name}}}\n"
    for name in CLASSES
)
OTHERS = {
    "expiring": "quota: {windows: [{window: 1h, hard: {pods: 1}}], queue: {maxWait: 3s}}",
    "living": "quota: {standing: {hard: {pods: 1}, surge: 0}}",
    "opened": "quota: null, breaker: {quotaExceeded: {count: 9, within: 1m}, whenOpen: Queue}",
}
"""Services of one namespace whose Pods wait for other reasons than the pool's."""
HELD = {"held": "quota: {windows: [{window: 1h, hard: {pods: 0}}], whenExceeded: Deny}"}
"""A service whose Pods are denied."""
POLICY += "".join(
    f"- {{name: {name}, match: {{namespaces: [queue-others-STORE], podSelector: {{matchLabels: {{app: {name}}}}}}},"
    f" {terms}}}\n"
    for name, terms in (HELD | OTHERS).items()
)


@pytest.fixture(scope="module")
def running(plane: ControlPlane, identities: Identities, store: str, store_url: str) -> Iterator[ControllerFixture]:
    namespaces = [f"queue-{name}-{store}" for name in (*CLASSES, "others")]
    with controller_fixture(plane, identities, POLICY.replace("STORE", store), namespaces, store_url) as fixture:
        yield fixture


def deploy(plane: ControlPlane, namespace: str, replicas: int) -> None:
    labels = {"app": "waits"}
    spec = {"containers": [{"name": "c", "image": "i"}], "terminationGracePeriodSeconds": 0}
    body = {"replicas": replicas, "selector": {"matchLabels": labels}}
    template = {"metadata": {"labels": labels}, "spec": spec}
    metadata = {"name": "waits", "namespace": namespace}
    plane.apply(
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": {**body, "template": template}}
    )


def find_overtaken(lists: Sequence[dict[str, str]]) -> list[str]:
    """Return which classes were released between the first two of three lists before a higher one that waits in all.

    Lists are the classes of the waiting Pods, by uid. A gate that is being removed may still be in the second one.
    """
    first, second, third = lists
    left = {pod_class for uid, pod_class in first.items() if uid not in second}
    stayed = {pod_class for uid, pod_class in first.items() if uid in second and uid in third}
    return [
        f"{lower} before {higher}"
        for lower in left
        for higher in stayed
        if CLASSES.index(higher) < CLASSES.index(lower)
    ]


def pool(running: ControllerFixture) -> dict[str, int]:
    """Return how many Pods each window of the pool counts."""
    rows = running.installation.servers[0].status()["pools"][0]["windows"]
    return {row["window"]: row["used"] for row in rows}


def test_deployments_are_released_by_class_and_become_whole(running: ControllerFixture, store: str) -> None:
    """Watch the Pods of three Deployments that are created at once, more than the pool admits in a window."""
    plane, spaces = running.plane, {f"queue-{name}-{store}": name for name in CLASSES}
    for namespace in spaces:
        deploy(plane, namespace, PODS_OF_ONE)
    lists: list[dict[str, str]] = []
    kills = KILLS if running.installation.controllers else 0

    def have_all_run() -> bool:
        nonlocal kills
        found = plane.api.get("/api/v1/pods")["items"]  # one list: those of several namespaces differ in time
        pods = [pod for pod in found if pod["metadata"]["namespace"] in spaces]
        lists.append({pod["metadata"]["uid"]: spaces[pod["metadata"]["namespace"]] for pod in pods if is_gated(pod)})
        assert pool(running)[WINDOW] <= HARD
        if kills and len(lists) > 1 and lists[-2].keys() - lists[-1].keys():
            kills -= 1
            running.installation.stop_controller(running.installation.controllers[0], kill=True)
            running.start_controller()
        phases = [pod["status"]["phase"] for pod in pods]
        return phases == ["Running"] * (PODS_OF_ONE * len(CLASSES))

    plane.wait(have_all_run, "all Pods to run", timeout_seconds=SECONDS)
    assert kills == 0
    assert [found for three in zip(lists, lists[1:], lists[2:], strict=False) for found in find_overtaken(three)] == []
    waited = {uid: name for seen in lists for uid, name in seen.items()}
    assert "bronze" in waited.values()
    assert pool(running)["24h"] == PODS_OF_ONE * len(CLASSES), "each is charged once"
    if not IS_SOAK:  # a killed controller has taken its counters along
        assert sum(process.total("podgate_queue_released_total") for process in running.controllers) >= len(waited)


def show(running: ControllerFixture, *arguments: str) -> Done:
    leader = running.plane.wait(running.leader, "a leader")
    return podgate("queue", *arguments, "--server", f"http://{leader.plain}")


def explain(running: ControllerFixture, pod: str) -> str:
    """Return what the cluster and the leader tell of a Pod, without records."""
    where = ("--kubeconfig", running.plane.kubeconfig, "--leader", f"http://{running.controllers[0].plain}")
    return podgate("explain", "pod", pod, *where, "--server", "http://127.0.0.1:1").out


def test_operators_see_the_order_the_cause_and_the_moment(running: ControllerFixture, store: str) -> None:
    plane, spaces = running.plane, {name: f"queue-{name}-{store}" for name in CLASSES}
    for name in reversed(CLASSES):
        for number in range(2 * HARD if name == "bronze" else HARD):  # the first ones fill the window
            status, _ = running.installation.create_pod(spaces[name], f"shown-{number}")
            assert status == 201

    def some_wait() -> dict[str, Any] | None:
        document: dict[str, Any] = json.loads(show(running, "-o", "json").out)
        return document if {pod["class"] for pod in document["pods"]} == {*CLASSES} else None

    document = plane.wait(some_wait, "Pods of two classes to wait")
    rows = document["pods"]
    last = rows[-1]["name"]
    assert [row["place"] for row in rows] == list(range(1, len(rows) + 1))
    assert [row["class"] for row in rows] == sorted((row["class"] for row in rows), key=CLASSES.index)
    assert {(row["queue"], row["lifted"]) for row in rows} == {("shared", False)}
    assert {row["cause"] for row in rows} <= {"QuotaExceeded", "Behind"}
    assert rows[0]["expectedAt"] <= rows[-1]["expectedAt"] < rows[-1]["expiresAt"]
    page = explain(running, f"{spaces['bronze']}/{last}")
    assert re.match(r"WaitingForQuota: \d+(st|nd|rd|th) of \d+ in bronze; may go from \d\d:\d\d:\d\dZ\n", page), page
    headings, *lines = show(running, "silver", "-o", "wide").out.splitlines()[1:]
    assert re.split(r" {2,}", headings) == [
        *("QUEUE", "PLACE", "CLASS", "SERVICE", "POD", "AGE", "EXPECTED", "LIFTED", "OWNER", "EXPIRES", "UID", "WHY")
    ]
    assert {line.split()[3] for line in lines} <= {"silver"}, lines
    assert (show(running, "none").code, show(running, "gold", "--help").code) == (4, 0)
    [server] = running.installation.servers
    elsewhere = podgate("queue", "--server", f"http://{server.plain}")
    if running.installation.controllers:
        assert (elsewhere.code, "podgate-leader" in elsewhere.error) == (2, True)


def test_operators_pause_a_queue_and_release_or_drop_one_pod(running: ControllerFixture, store: str) -> None:
    plane, namespace = running.plane, f"queue-bronze-{store}"
    terms = ("--reason", "INC-1", "--kubeconfig", plane.kubeconfig)

    def command(*words: str) -> str:
        done = podgate("queue", *words, *terms)
        assert done.code == 0, done.err
        return done.out

    def is_paused() -> bool:
        document: dict[str, Any] = json.loads(show(running, "bronze", "-o", "json").out)
        known = [service["override"] for service in running.installation.servers[0].status()["services"]]
        return bool(document["services"][0]["paused"]) and "Paused" in [
            override["queue"] for override in known if override
        ]

    def list_gated() -> set[str]:
        return {pod["metadata"]["name"] for pod in running.installation.pods(namespace) if is_gated(pod)}

    assert "queue: Paused until 20" in command("pause", "bronze")
    plane.wait(is_paused, "the queue to be paused")
    mine = {"kept", "released", "dropped"}
    for name in mine:
        status, _ = running.installation.create_pod(namespace, name)
        assert status == 201
    plane.wait(lambda: list_gated() >= mine, "new Pods of a paused queue to wait")

    def why() -> set[str]:
        document = json.loads(show(running, "bronze", "-o", "json").out)
        return {pod["why"].partition(" 20")[0] for pod in document["pods"] if pod["name"] in mine}

    plane.wait(lambda: why() == {"the queue is paused until"}, "the cause to be shown")
    assert f"releasePods: [{{namespace: {namespace}, name: released, uid:" in command(
        "release", f"{namespace}/released"
    )
    plane.wait(lambda: "released" not in list_gated(), "one Pod to be released")
    assert "would be deleted" in command("drop", f"{namespace}/dropped", "--dry-run")
    assert "of bronze: deleted" in command("drop", f"{namespace}/dropped")
    plane.wait(lambda: list_gated() & mine == {"kept"}, "one Pod to be deleted")
    assert "released: does not wait" in podgate("queue", "drop", f"{namespace}/released", *terms).error

    def notes(reason: str) -> list[str]:
        events = plane.api.get(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")["items"]
        return [event["note"] for event in events if event["reason"] == reason]

    assert notes("DroppedFromQueue") == ["dropped from the queue of bronze: INC-1"]
    plane.wait(lambda: any("in bronze" in note for note in notes("WaitingForQuota")), "an Event with the Pod's place")
    command("resume", "bronze")
    plane.wait(lambda: "kept" not in list_gated(), "the Pod to be released after the pause")
    plane.kubectl("delete", "configmap", "podgate-overrides", "-n", "podgate-system")


def test_a_tenant_cannot_remove_the_gate(running: ControllerFixture, store: str) -> None:
    namespace = f"queue-gold-{store}"
    plane = running.plane

    def remove_gate() -> tuple[int, Any] | None:
        """Return the answer to a patch of a gated Pod; 422: it was released in between."""
        status, _ = running.installation.create_pod(namespace, f"tenant-{time.monotonic_ns()}")
        assert status == 201
        gated = next((pod for pod in running.installation.pods(namespace) if is_gated(pod)), None)
        if gated is None:
            return None
        path = f"/api/v1/namespaces/{namespace}/pods/{gated['metadata']['name']}"
        patch = [{"op": "remove", "path": "/spec/schedulingGates/0"}]
        found = plane.api.request("PATCH", path, patch, "application/json-patch+json")
        return None if found[0] == 422 else found

    status, response = plane.wait(remove_gate, "a Pod to wait")
    assert (status, "podgate.io/quota" in response["message"]) == (403, True), response


def test_pods_that_wait_for_other_reasons_are_explained(running: ControllerFixture, store: str) -> None:
    """A limit on live Pods, an open breaker, and the end of `maxWait`, by whose Event a deleted Pod is known."""
    plane, namespace = running.plane, f"queue-others-{store}"
    terms = ("--for", "1h", "--reason", "INC-1", "--kubeconfig", plane.kubeconfig)
    assert podgate("breaker", "open", "opened", *terms).code == 0
    states = running.installation.servers[0].status
    plane.wait(lambda: states()["services"][-1]["breaker"]["state"] == "FORCED_OPEN", "the breaker to be forced open")
    for name in OTHERS:
        for number in range(2):
            status, answer = running.installation.create_pod(namespace, f"{name}-{number}", labels={"app": name})
            assert status == 201, answer
    kept = "; it waits as 2nd of 2 in bronze"
    expected = {
        "expiring-1": r"Expired: it has waited longer than queue.maxWait, 3 s, and queue.whenExpired is Delete; "
        r"deleted at 20\S+Z\n",
        "living-1": r"WaitingForLivePods: the limit on live Pods of living is reached; it waits as 1st of 1 in bronze",
        "opened-1": rf"BreakerOpen: the breaker is FORCED_OPEN until 20\S+Z{kept}; expires at \S+Z, before its turn\n",
    }
    for pod, line in expected.items():
        seen: list[str] = []

        def matches(pod: str = pod, line: str = line, seen: list[str] = seen) -> bool:
            seen.append(explain(running, f"{namespace}/{pod}"))
            return re.match(line, seen[-1]) is not None

        try:
            plane.wait(matches, f"{pod} to be explained", timeout_seconds=HANG_SECONDS)
        except ComponentError as error:
            raise AssertionError(f"{seen[-1]}\ndoes not match {line}") from error
    plane.kubectl("delete", "configmap", "podgate-overrides", "-n", "podgate-system")


def test_a_held_controller_is_woken_when_there_is_room(running: ControllerFixture, store: str) -> None:
    """A server with counters in memory does it itself."""
    plane, namespace = running.plane, f"queue-others-{store}"
    pod_starts.deploy(plane, namespace, "held", 2)

    def total(name: str, *labels: str) -> float:
        return sum(process.total(f"podgate_{name}", 'service="held"', *labels) for process in running.controllers)

    plane.wait(lambda: total("held_controllers") == 1, "the ReplicaSet to be held")
    text = POLICY.replace("STORE", store).replace("pods: 0", "pods: 9")
    running.installation.change_policy(text)
    plane.wait(lambda: total("controllers_woken_total", 'result="created"'), "the ReplicaSet to be woken")
    [held] = plane.api.get(f"/apis/apps/v1/namespaces/{namespace}/replicasets")["items"]
    assert "podgate.io/retry-at" in held["metadata"]["annotations"]
    plane.wait(lambda: count_held_pods(running, namespace) == 2, "its Pods")


def count_held_pods(running: ControllerFixture, namespace: str) -> int:
    return sum(pod["metadata"]["labels"]["app"] == "held" for pod in running.installation.pods(namespace))
