"""Failures of the extender on a real kube-scheduler: replicas that hang, end and restart, certificates, and the API."""

import contextlib
import os
import random
import secrets
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from tests.cluster.kwok import is_usable
from tests.scheduling.extender_server import EXTENDER, OTHER, SCHEDULER, SECOND, ExtendedScheduler
from webhook.core.scheduling.assumed_load import CONFIRMED_SECONDS

pytestmark = pytest.mark.usefixtures("other")

_MILLIS = 850.0
"""Expected of a Pod that asks for one cpu."""
_SKIPPED = "Skipping extender"
_IDLE_CONNECTIONS_MAX = 2
"""DefaultMaxIdleConnsPerHost of Go."""
ROUNDS = 40 if os.environ.get("PODGATE_TEST_SCHEDULING") == "soak" else 2


class RefusedPods:
    """Creates Pods that only the hot node could take until it is stopped: each failed call lets one run there."""

    def __init__(self, scheduler: ExtendedScheduler) -> None:
        self._scheduler = scheduler
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.created = 0

    def _run(self) -> None:
        while not self._is_over.wait(0.1):
            self._scheduler.create(f"refused-{self.created}", only="hot")
            self.created += 1

    @contextlib.contextmanager
    def run(self) -> Iterator["RefusedPods"]:
        self._thread.start()
        try:
            yield self
        finally:
            self._is_over.set()
            self._thread.join()

    def await_more(self, count: int = 10) -> None:
        """Wait until this many more have been refused."""
        wanted = self.created + count
        self._scheduler.plane.wait(lambda: self.created >= wanted, "Pods to be created", SECOND)
        assert "above the cpu hot threshold" in self._scheduler.wait_until_refused(f"refused-{wanted - 1}")

    def list_bound(self) -> list[str]:
        """Return those that a node took."""
        return [name for number in range(self.created) if self._scheduler.find_node(name := f"refused-{number}")]


def sum_assumed_millis(scheduler: ExtendedScheduler, replica: str) -> float:
    """Return the cpu that a replica assumes on all nodes."""
    return round(sum(node["assumedCpuMillis"] for node in scheduler.nodes(replica).values()))


def test_pods_are_scheduled_while_the_extender_hangs_and_it_is_asked_again_afterwards(
    scheduler: ExtendedScheduler,
) -> None:
    pids = [scheduler.plane.processes.pid(replica) for replica in (EXTENDER, OTHER)]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        scheduler.create("hung", only="hot")
        assert scheduler.wait_until_bound("hung") == "hot", "ignorable"
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    scheduler.plane.wait(lambda: scheduler.is_hot("hot"), "the load of the hot node", EXTENDER)
    scheduler.create("closed", only="hot")
    assert "above the cpu hot threshold" in scheduler.wait_until_refused("closed")
    scheduler.delete_all()


def test_second_replica_alone_is_asked_once_the_service_leaves_out_one_that_hangs(
    scheduler: ExtendedScheduler,
) -> None:
    wait, balancer = scheduler.plane.wait, scheduler.balancer
    pid = scheduler.plane.processes.pid(EXTENDER)
    names = [f"left-out-{number}" for number in range(10)]
    os.kill(pid, signal.SIGSTOP)
    try:
        wait(lambda: len(balancer.ready) == 1, "the Service to leave the replica out", OTHER)
        for name in names:
            scheduler.create(name, only="hot")
        unanswered: set[str] = set()
        for name in names:
            if wait(lambda name=name: scheduler.find_node(name) or scheduler.is_refused(name), name, SECOND) == "hot":  # type: ignore[misc]
                unanswered.add(name)
        assert unanswered == find_unanswered(scheduler, names)
        assert len(unanswered) <= _IDLE_CONNECTIONS_MAX, "each connection to it ends with its next call"
    finally:
        os.kill(pid, signal.SIGCONT)
    wait(lambda: len(balancer.ready) == 2, "both replicas", EXTENDER)
    scheduler.delete_all()


def test_slow_answers_are_waited_for_and_keep_pods_off_the_hot_node(scheduler: ExtendedScheduler) -> None:
    names = [f"slow-{number}" for number in range(5)]
    with slow_down(scheduler, EXTENDER, OTHER):
        for name in names:
            scheduler.create(name, "steady")
        on_hot = {name for name in names if scheduler.wait_until_bound(name) == "hot"}
    assert on_hot <= find_unanswered(scheduler, names), "by requests alone each node gets one"
    scheduler.delete_all()


@contextlib.contextmanager
def slow_down(scheduler: ExtendedScheduler, *replicas: str) -> Iterator[None]:
    """Stop the processes for most of the time, in turns shorter than the scheduler's timeout."""
    pids, is_over = [scheduler.plane.processes.pid(replica) for replica in replicas], threading.Event()

    def run() -> None:
        while not is_over.is_set():
            for number, seconds in ((signal.SIGSTOP, 0.4), (signal.SIGCONT, 0.1)):
                for pid in pids:
                    os.kill(pid, number)
                is_over.wait(seconds)
        for pid in pids:
            os.kill(pid, signal.SIGCONT)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def find_unanswered(scheduler: ExtendedScheduler, names: Iterable[str]) -> set[str]:
    """Return the Pods of which a call had no answer, by the scheduler's log."""
    log = [line for line in scheduler.plane.log(SECOND, 1_000_000).splitlines() if _SKIPPED in line]
    return {name for name in names if any(f'"shop/{name}"' in line for line in log)}


def test_second_replica_answers_after_the_first_was_killed_and_counts_each_pod_once(
    scheduler: ExtendedScheduler,
) -> None:
    wait = scheduler.plane.wait
    names = [f"burst-{number}" for number in range(20)]
    for name in names[:10]:
        scheduler.create(name, "steady")
    scheduler.stop_extender(kill=True)
    for name in names[10:]:
        scheduler.create(name, "steady")
    on_hot = [name for name in names if scheduler.wait_until_bound(name) == "hot"]
    assert len(on_hot) <= 10, "calls to the address of the killed replica fail until the balancer leaves it out"
    whole = _MILLIS * len(names)
    wait(lambda: sum_assumed_millis(scheduler, OTHER) == whole, "the other replica to count all Pods", OTHER)
    scheduler.create("closed", only="hot")
    assert "above the cpu hot threshold" in scheduler.wait_until_refused("closed")
    scheduler.start_extender()
    wait(lambda: sum_assumed_millis(scheduler, EXTENDER) == whole, "the new replica to count all Pods", EXTENDER)
    scheduler.plane.restart("kube-apiserver", kill=True)
    scheduler.create("after", "steady")
    assert scheduler.wait_until_bound("after")
    for replica in (EXTENDER, OTHER):
        wait(lambda replica=replica: sum_assumed_millis(scheduler, replica) == whole + _MILLIS, "the watch", replica)
    scheduler.delete_all()
    wait(lambda: scheduler.is_hot("hot"), "the load of the hot node", EXTENDER)


def test_replica_that_ends_accepts_connections_while_the_service_may_still_send_some(
    scheduler: ExtendedScheduler,
) -> None:
    scheduler.balance(EXTENDER)
    scheduler.balancer.cut()
    before = scheduler.plane.log(OTHER, 10_000).count('"draining"')
    os.kill(scheduler.plane.processes.pid(OTHER), signal.SIGTERM)
    scheduler.plane.wait(
        lambda: scheduler.plane.log(OTHER, 10_000).count('"draining"') > before, "the drain to begin", OTHER
    )
    assert scheduler.post("filter", "client", OTHER) == 400, "the body is none of the extender API"
    scheduler.stop_extender(OTHER)
    scheduler.start_extender(OTHER)
    scheduler.balance(EXTENDER, OTHER)
    scheduler.plane.wait(lambda: scheduler.is_hot("hot", OTHER), "the load of the hot node", OTHER)


def test_no_call_fails_while_all_certificates_are_replaced_and_both_replicas_restarted(
    scheduler: ExtendedScheduler,
) -> None:
    first, second = scheduler.authority, scheduler.next_authority
    skipped = scheduler.plane.log(SECOND, 100_000).count(_SKIPPED)
    with RefusedPods(scheduler).run() as pods:
        pods.await_more()
        scheduler.trust_clients(first, second)
        scheduler.issue_certificate(second)
        scheduler.client("next", SCHEDULER, authority=second)
        scheduler.client("former", SCHEDULER, authority=first)
        for replica in (EXTENDER, OTHER):
            scheduler.plane.wait(
                lambda replica=replica: scheduler.post("filter", "next", replica) == 400,
                "both CAs to be trusted",
                replica,
            )
        scheduler.client("client", SCHEDULER, authority=second)
        for replica in (EXTENDER, OTHER):
            scheduler.stop_extender(replica)  # without preStop: the balancer leaves it out because it is not ready
            pods.await_more()
            scheduler.start_extender(replica)
            scheduler.plane.wait(lambda replica=replica: scheduler.is_hot("hot", replica), "the load", replica)
        scheduler.trust_clients(second)
        scheduler.plane.wait(lambda: scheduler.post("filter", "former") != 400, "the first CA to be removed", EXTENDER)
        pods.await_more()
    assert scheduler.plane.log(SECOND, 100_000).count(_SKIPPED) == skipped
    assert pods.list_bound() == []
    assert scheduler.post("filter", "client") == 400, "the body is none of the extender API"
    scheduler.authority, scheduler.next_authority = second, first
    scheduler.delete_all()


def test_all_pods_run_and_none_goes_to_the_hot_node_after_an_answer_while_parts_fail_at_random(
    scheduler: ExtendedScheduler,
) -> None:
    """Without an answer of the extender a Pod may go anywhere: the scheduler logs each such call with its Pod."""
    seed = int(os.environ.get("PODGATE_TEST_SEED") or secrets.randbelow(1 << 32))
    choice = random.Random(seed)  # noqa: S311  no secret
    parts = ("extender", "Prometheus", "kube-apiserver", "hang") if ROUNDS > 2 else ("extender", "Prometheus")
    order = [*parts, *choice.choices(parts, k=ROUNDS - 2)][:ROUNDS]
    for number, part in enumerate(order):
        names = [f"round-{number}-{pod}" for pod in range(10)]
        for name in names[:5]:
            scheduler.create(name, "steady")
        with break_part(scheduler, part, choice.choice((EXTENDER, OTHER))):
            for name in names[5:]:
                scheduler.create(name, "steady")
            on_hot = {name for name in names if scheduler.wait_until_bound(name) == "hot"}
        if part != "Prometheus":  # its outage may outlast its data
            assert on_hot == find_unanswered(scheduler, on_hot), f"seed {seed}, round {number}: {part}"
        over_seconds = time.time()
        for replica in (EXTENDER, OTHER):
            scheduler.plane.wait(
                lambda replica=replica, since=over_seconds: is_hot_since(scheduler, replica, since), "the load", replica
            )
        scheduler.plane.wait(lambda: all(map(is_usable, list_nodes(scheduler))), "nodes to be Ready", "kwok")
        scheduler.create(f"closed-{number}", only="hot")
        assert "above the cpu hot threshold" in scheduler.wait_until_refused(f"closed-{number}")
        scheduler.delete_all()


def is_hot_since(scheduler: ExtendedScheduler, replica: str, since_seconds: float) -> bool:
    """Whether a replica knows of the hot node by a sample of after that time."""
    load = scheduler.nodes(replica)["hot"]["load"]
    return scheduler.is_hot("hot", replica) and load["measured_at_seconds"] > since_seconds


def list_nodes(scheduler: ExtendedScheduler) -> list[dict[str, Any]]:
    """Return the Nodes: after several restarts of the API server their heartbeats may be late."""
    found: list[dict[str, Any]] = scheduler.plane.api.get("/api/v1/nodes")["items"]
    return found


@contextlib.contextmanager
def break_part(scheduler: ExtendedScheduler, part: str, replica: str) -> Iterator[None]:
    """Kill a part, or stop the replica's process for the time being; restore it afterwards."""
    plane = scheduler.plane
    match part:
        case "extender":
            scheduler.stop_extender(replica, kill=True)
            yield
            scheduler.start_extender(replica)
        case "Prometheus":
            scheduler.prometheus.stop(kill=True)
            yield
            scheduler.prometheus.start()
        case "kube-apiserver":
            plane.restart("kube-apiserver", kill=True)
            yield
        case _:
            os.kill(plane.processes.pid(replica), signal.SIGSTOP)
            try:
                yield
            finally:
                os.kill(plane.processes.pid(replica), signal.SIGCONT)


def test_pod_that_waits_for_its_volume_counts_on_its_node_in_all_replicas_until_it_is_bound(
    scheduler: ExtendedScheduler,
) -> None:
    plane, claims = scheduler.plane, "/api/v1/namespaces/shop/persistentvolumeclaims"
    plane.apply(
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": "slow"},
            "provisioner": "tests.podgate.io/slow",
            "volumeBindingMode": "WaitForFirstConsumer",
        }
    )
    size = {"storage": "1Gi"}
    claim = {"accessModes": ["ReadWriteOnce"], "storageClassName": "slow", "resources": {"requests": size}}
    plane.apply(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "slow", "namespace": "shop"},
            "spec": claim,
        }
    )
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "slow"}}]
    containers = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "20"}}}]
    scheduler.create("slow", "steady", containers=containers, volumes=volumes)

    def find_nominated() -> str:
        pod = plane.api.get("/api/v1/namespaces/shop/pods/slow") or {}
        return str(pod["status"].get("nominatedNodeName", ""))

    def list_assumed(replica: str) -> list[str]:
        return [name for name, node in scheduler.nodes(replica).items() if node["assumedCpuMillis"] >= 0.85 * 20_000]

    node = plane.wait(find_nominated, "the node to be published", SECOND)
    nominated_seconds = time.monotonic()
    scheduler.stop_extender(OTHER, kill=True)
    scheduler.start_extender(OTHER)  # it was never asked, and learns it from its list
    plane.wait(lambda: list_assumed(EXTENDER) == list_assumed(OTHER) == [node], "both replicas to know the Pod", OTHER)
    while time.monotonic() < nominated_seconds + 2 * CONFIRMED_SECONDS:
        for replica in (EXTENDER, OTHER):
            assert list_assumed(replica) == [node]
        time.sleep(0.5)
    assert scheduler.find_node("slow") == ""
    uid = (plane.api.get(f"{claims}/slow") or {})["metadata"]["uid"]
    reference = {"kind": "PersistentVolumeClaim", "namespace": "shop", "name": "slow", "uid": uid}
    volume = {"capacity": size, "accessModes": ["ReadWriteOnce"], "storageClassName": "slow", "claimRef": reference}
    plane.apply(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": "slow"},
            "spec": volume | {"hostPath": {"path": "/x"}, "persistentVolumeReclaimPolicy": "Retain"},
        }
    )
    completed = {
        "metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {"volumeName": "slow"},
    }
    plane.api.request("PATCH", f"{claims}/slow", completed, "application/merge-patch+json")  # as the binder does
    assert scheduler.wait_until_bound("slow") == node
    for replica in (EXTENDER, OTHER):
        plane.wait(lambda replica=replica: list_assumed(replica) == [node], "the Pod", replica)  # type: ignore[misc]
    scheduler.delete_all()
    plane.delete(f"{claims}/slow")
    plane.delete("/api/v1/persistentvolumes/slow")
