"""Waiting Pods on a real control plane: released gold first, never above the limit, and all of them in the end."""

import json
import os
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

import pytest

from tests.cli.command_runner import Done, podgate
from tests.cluster import pod_starts
from tests.cluster.controller_fixture import ControllerFixture, controller_fixture
from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.processes import ComponentError
from tests.cluster.queue import is_gated
from tests.scheduling.extender_server import WAKE_REQUESTS
from tests.timeouts import HANG_SECONDS

pytest_plugins = ("tests.redis_servers.fixtures",)

CLASSES = ("gold", "silver", "bronze")
IS_SOAK = os.environ.get("PODGATE_TEST_QUEUE") == "soak"
HARD, WINDOW, PODS_OF_ONE, KILLS, SECONDS = (50, "10s", 334, 20, 900) if IS_SOAK else (6, "4s", 6, 0, HANG_SECONDS)
"""`make soak` waits for 1,002 Pods, and kills the controller twenty times."""
SETTLED_SECONDS = 2.0
"""A Pod that is overtaken waits for a whole window of the pool, which is twice as long. Where a call takes more than a
second, others go on meanwhile."""
POLICY = f"""\
apiVersion: podgate.io/v1alpha1
kind: Policy
pools:
- name: shared
  windows: [{{window: {WINDOW}, hard: {{pods: {HARD}}}}}, {{window: 24h, hard: {{pods: 5000}}}}]
  whenExceeded: Queue
- {{name: aged, windows: [{{window: 1h, hard: {{pods: 1}}}}], whenExceeded: Queue}}
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
URGENT = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "urgent"},
    "value": 1000,
}
AGED = {
    "old": "slaClass: bronze, pool: aged, quota: {queue: {ageing: 2s, liftedShare: 100%}}",
    "new": "slaClass: gold, pool: aged, quota: {queue: {ageing: 2s, liftedShare: 100%}}",
    "sized": "quota: {standing: {hard: {cpu: 4}, surge: 0}, queue: {ageing: 8s}}",
}
"""Services whose Pods rise soon; those of the last one after a busy machine has created the next Pod."""
HELD = {"held": "quota: {windows: [{window: 1h, hard: {pods: 0}}], whenExceeded: Deny}"}
"""A service whose Pods are denied."""
POLICY += "".join(
    f"- {{name: {name}, match: {{namespaces: [queue-others-STORE], podSelector: {{matchLabels: {{app: {name}}}}}}},"
    f" {terms}}}\n"
    for name, terms in (HELD | AGED | OTHERS).items()
)


@pytest.fixture(scope="module")
def running(plane: ControlPlane, identities: Identities, store: str, store_url: str) -> Iterator[ControllerFixture]:
    namespaces = [f"queue-{name}-{store}" for name in (*CLASSES, "others")]
    with controller_fixture(plane, identities, POLICY.replace("STORE", store), namespaces, store_url) as fixture:
        yield fixture


def deploy(plane: ControlPlane, namespace: str, replicas: int, **classes: str) -> None:
    labels = {"app": "waits"}
    spec = {**classes, "containers": [{"name": "c", "image": "i"}], "terminationGracePeriodSeconds": 0}
    body = {"replicas": replicas, "selector": {"matchLabels": labels}}
    template = {"metadata": {"labels": labels}, "spec": spec}
    metadata = {"name": "waits", "namespace": namespace}
    plane.apply(
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": {**body, "template": template}}
    )


@dataclass(frozen=True)
class Waiting:
    """The classes of the Pods that one list shows as waiting, by uid."""

    seen_at_seconds: float
    classes: dict[str, str]


def find_overtaken(lists: Sequence[Waiting]) -> list[str]:
    """Return which classes were released before a higher one that had waited, and went on to wait, for a while.

    A watch tells the controller of a Pod later than a list tells the test, and gates are removed side by side.
    """
    overtaken = []
    for before, after in pairwise(lists):
        released = {before.classes[uid] for uid in before.classes.keys() - after.classes.keys()}
        earlier = [seen for seen in lists if seen.seen_at_seconds <= before.seen_at_seconds - SETTLED_SECONDS]
        later = [seen for seen in lists if seen.seen_at_seconds >= after.seen_at_seconds + SETTLED_SECONDS]
        if earlier and later:
            stayed = {pod_class for uid, pod_class in earlier[-1].classes.items() if uid in later[0].classes}
            pairs = product(sorted(released), sorted(stayed))
            overtaken += [f"{low} before {high}" for low, high in pairs if CLASSES.index(high) < CLASSES.index(low)]
    return overtaken


def pool(running: ControllerFixture) -> dict[str, int]:
    """Return how many Pods each window of the pool counts."""
    rows = running.installation.servers[0].status()["pools"][0]["windows"]
    return {row["window"]: row["used"] for row in rows}


def test_deployments_are_released_by_class_and_become_whole(running: ControllerFixture, store: str) -> None:
    """Watch the Pods of three Deployments that are created at once, more than the pool admits in a window.

    Those of the lowest class have the highest priority, which orders kube-scheduler's queue alone.
    """
    plane, spaces = running.plane, {f"queue-{name}-{store}": name for name in CLASSES}
    plane.apply(URGENT)
    for namespace, name in spaces.items():
        deploy(plane, namespace, PODS_OF_ONE, **({"priorityClassName": "urgent"} if name == "bronze" else {}))
    lists: list[Waiting] = []
    kills = KILLS if running.installation.controllers else 0

    def have_all_run() -> bool:
        nonlocal kills
        found = plane.api.get("/api/v1/pods")["items"]  # one list: those of several namespaces differ in time
        pods = [pod for pod in found if pod["metadata"]["namespace"] in spaces]
        classes = {pod["metadata"]["uid"]: spaces[pod["metadata"]["namespace"]] for pod in pods if is_gated(pod)}
        lists.append(Waiting(time.monotonic(), classes))
        assert pool(running)[WINDOW] <= HARD
        if kills and len(lists) > 1 and lists[-2].classes.keys() - lists[-1].classes.keys():
            kills -= 1
            running.installation.stop_controller(running.installation.controllers[0], kill=True)
            running.start_controller()
        phases = [pod["status"]["phase"] for pod in pods]
        return phases == ["Running"] * (PODS_OF_ONE * len(CLASSES))

    plane.wait(have_all_run, "all Pods to run", timeout_seconds=SECONDS)
    assert kills == 0
    assert find_overtaken(lists) == []
    waited = {uid: name for seen in lists for uid, name in seen.classes.items()}
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
        """Return the queue with Pods of all classes; add some of those that were released before this look."""
        document: dict[str, Any] = json.loads(show(running, "-o", "json").out)
        missing = {*CLASSES} - {pod["class"] for pod in document["pods"]}
        for name in sorted(missing) * HARD:
            assert running.installation.create_pod(spaces[name])[0] == 201
        return None if missing else document

    document = plane.wait(some_wait, "Pods of all classes to wait")
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


def list_waiting(running: ControllerFixture, *services: str) -> list[dict[str, Any]]:
    """Return the rows of the Pods of services that wait, in the order of their release."""
    rows = json.loads(show(running, "-o", "json").out)["pods"]
    return [row for row in rows if row["service"] in services]


def create(running: ControllerFixture, namespace: str, name: str, service: str, cpu: str = "1") -> None:
    containers = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]
    status, answer = running.installation.create_pod(namespace, name, labels={"app": service}, containers=containers)
    assert status == 201, answer


def test_a_pod_that_has_waited_for_an_ageing_rises_by_a_class(running: ControllerFixture, store: str) -> None:
    """By two after two: then it stands before a new Pod of the highest class."""
    namespace = f"queue-others-{store}"
    for name in ("fills", "waits"):
        create(running, namespace, f"aged-{name}", "old")

    def rises() -> bool:
        return [row["lifted"] for row in list_waiting(running, "old")] == [True]

    running.plane.wait(rises, "the Pod to rise")
    create(running, namespace, "aged-new", "new")

    def is_first() -> bool:
        return [row["name"] for row in list_waiting(running, "old", "new")] == ["aged-waits", "aged-new"]

    running.plane.wait(is_first, "the Pod to stand before one of the highest class")


def test_a_large_pod_is_passed_by_smaller_ones_until_room_is_kept_for_it(
    running: ControllerFixture, store: str
) -> None:
    plane, namespace = running.plane, f"queue-others-{store}"

    def list_names() -> list[str]:
        return [row["name"] for row in list_waiting(running, "sized")]

    create(running, namespace, "sized-running", "sized", "2")
    create(running, namespace, "sized-large", "sized", "4")
    plane.wait(lambda: list_names() == ["sized-large"], "the large Pod to wait")
    create(running, namespace, "sized-small", "sized")
    plane.wait(lambda: list_names() == ["sized-large"], "the small one to pass it")
    plane.wait(lambda: list_waiting(running, "sized")[0]["waitingSeconds"] > 8, "an ageing period to pass")
    create(running, namespace, "sized-late", "sized")
    [late] = plane.wait(lambda: list_waiting(running, "sized")[1:], "the next small one to wait")
    assert late["cause"] == "Behind"
    for name in ("running", "small"):
        plane.delete(f"/api/v1/namespaces/{namespace}/pods/sized-{name}?gracePeriodSeconds=0")
    plane.wait(lambda: list_names() == ["sized-late"], "the large Pod to be released first")


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


def test_leader_wakes_the_pods_that_an_extender_lists(running: ControllerFixture) -> None:
    """Whichever process leads, it has the rights to this."""
    plane = running.plane
    plane.apply(WAKE_REQUESTS)
    code, pod = running.installation.create_pod("default", "woken", **pod_starts.UNSCHEDULED)
    assert code == 201, pod
    path = "/api/v1/namespaces/default/pods/woken"
    asked = {"namespace": "default", "name": "woken", "uid": pod["metadata"]["uid"]}

    def is_woken() -> bool:
        request = json.dumps({"at": str(time.time_ns()), "pods": [asked]})
        place = "/api/v1/namespaces/podgate-system/configmaps/podgate-wake"
        plane.api.request("PATCH", place, {"data": {"pods": request}}, "application/merge-patch+json")
        return "podgate.io/woken-at" in (plane.api.get(path)["metadata"].get("annotations") or {})

    plane.wait(is_woken, "the leader to annotate the Pod")
    totals = [process.total("podgate_pods_woken_total", 'result="annotated"') for process in running.controllers]
    assert sum(totals) >= 1
    plane.delete(f"{path}?gracePeriodSeconds=0")
