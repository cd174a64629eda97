"""Held controllers on a real control plane: their Pods follow as soon as there is room, not after their back-off.

kube-controller-manager retries 10, 20 and 41 seconds after the first denial, then less and less often.
"""

import json
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import pytest

from tests.cluster.controller_fixture import ControllerFixture, controller_fixture
from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.pod_starts import UNSCHEDULED, deploy
from tests.cluster.workloads import workload
from tests.redis_servers import RedisServer, names

pytest_plugins = ("tests.redis_servers.fixtures",)

WINDOW_SECONDS = 15
"""There is room halfway between two retries, also for what a busy machine has denied late."""
RETRIED_SECONDS = 43
"""After the retry of 41 seconds, and long before the next one of any kind."""
STARTS_IN_FLIGHT_MAX = 4
POLICY = f"""\
apiVersion: podgate.io/v1alpha1
kind: Policy
exemptions: {{daemonSets: false}}
pools: [{{name: shared, windows: [{{window: {WINDOW_SECONDS}s, hard: {{pods: {STARTS_IN_FLIGHT_MAX}}}}}]}}]
services:
- name: paced
  match: {{namespaces: [held-paced]}}
  quota: {{windows: [{{window: {WINDOW_SECONDS}s, hard: {{pods: {STARTS_IN_FLIGHT_MAX}}}}}]}}
- {{name: gold, slaClass: gold, pool: shared, match: {{namespaces: [held-gold]}}}}
- {{name: bronze, slaClass: bronze, pool: shared, match: {{namespaces: [held-bronze]}}}}
- name: kinds
  match: {{namespaces: [held-kinds]}}
  quota: {{windows: [{{window: 1h, hard: {{pods: 0}}}}]}}
"""
NAMESPACES = ["held-paced", "held-gold", "held-bronze", "held-kinds"]
KINDS = ("StatefulSet", "Job", "ReplicationController", "DaemonSet")


@pytest.fixture(scope="module")
def running(
    plane: ControlPlane, identities: Identities, shared_redis: Callable[[str], RedisServer]
) -> Iterator[ControllerFixture]:
    with controller_fixture(plane, identities, POLICY, NAMESPACES, shared_redis(names()[0]).url) as fixture:
        yield fixture


@pytest.fixture(scope="module")
def started(running: ControllerFixture) -> float:
    """Create all workloads: those of `gold` after those of `bronze`, when their pool is full. Return the time."""
    for name in ("full-1", "full-2", "full-3", "full-4"):
        assert running.installation.create_pod("held-bronze", name)[0] == 201
    deploy(running.plane, "held-bronze", "waits", STARTS_IN_FLIGHT_MAX, **UNSCHEDULED)
    deploy(running.plane, "held-paced", "waits", 3 * STARTS_IN_FLIGHT_MAX, **UNSCHEDULED)
    first = running.plane.kubectl("get", "nodes", "-o", "name").stdout.split()[0].removeprefix("node/")
    node = {"nodeSelector": {"kubernetes.io/hostname": first}}
    for kind in KINDS:
        document = workload(kind, kind.lower(), node if kind == "DaemonSet" else UNSCHEDULED)
        running.plane.kubectl("create", "-n", "held-kinds", "-f", "-", input=json.dumps(document))
    running.plane.wait(lambda: is_denied(running, "held-bronze"), "bronze to be denied")
    deploy(running.plane, "held-gold", "waits", STARTS_IN_FLIGHT_MAX, **UNSCHEDULED)
    return time.monotonic()


def is_denied(running: ControllerFixture, namespace: str) -> bool:
    events = running.plane.api.get(f"/api/v1/namespaces/{namespace}/events?fieldSelector=reason=FailedCreate")["items"]
    return any("QuotaExceeded" in event["message"] for event in events)


def list_creation_times(running: ControllerFixture, namespace: str) -> list[float]:
    """Return when the Pods of controllers were created, in order."""
    return sorted(
        datetime.fromisoformat(pod["metadata"]["creationTimestamp"]).timestamp()
        for pod in running.installation.pods(namespace)
        if pod["metadata"].get("ownerReferences")
    )


@pytest.mark.usefixtures("started")
def test_of_a_pool_the_higher_class_is_whole_before_the_lower_one_begins(running: ControllerFixture) -> None:
    running.plane.wait(
        lambda: len(list_creation_times(running, "held-gold")) == STARTS_IN_FLIGHT_MAX, "all Pods of gold"
    )
    assert list_creation_times(running, "held-bronze") == []
    running.plane.wait(
        lambda: len(list_creation_times(running, "held-bronze")) == STARTS_IN_FLIGHT_MAX, "all Pods of bronze"
    )


@pytest.mark.usefixtures("started")
def test_deployment_is_whole_soon_after_the_last_room(running: ControllerFixture) -> None:
    running.plane.wait(
        lambda: len(list_creation_times(running, "held-paced")) == 3 * STARTS_IN_FLIGHT_MAX,
        "all Pods of the Deployment",
    )
    at = list_creation_times(running, "held-paced")
    room = [before + WINDOW_SECONDS for before in at[:-STARTS_IN_FLIGHT_MAX]]
    late = [later - earliest for later, earliest in zip(at[STARTS_IN_FLIGHT_MAX:], room, strict=True)]
    assert min(late) >= -1, (
        f"more than {STARTS_IN_FLIGHT_MAX} in {WINDOW_SECONDS} s: {late}"
    )  # times are in whole seconds
    [controller] = running.installation.controllers
    woken = ("podgate_controllers_woken_total", 'service="paced"', 'result="created"')
    running.plane.wait(lambda: controller.total(*woken) >= 2, "two wakes whose Pods followed")


def test_every_kind_is_woken_when_the_policy_makes_room(running: ControllerFixture, started: float) -> None:
    [controller] = running.installation.controllers
    held = 'podgate_held_controllers{service="kinds"}'
    running.plane.wait(lambda: controller.metrics().get(held) == len(KINDS), "all kinds to be held")
    time.sleep(max(0.0, started + RETRIED_SECONDS - time.monotonic()))  # the next retries are far away
    running.installation.change_policy(POLICY.replace("pods: 0", "pods: 9"))
    running.plane.wait(lambda: len(list_creation_times(running, "held-kinds")) == len(KINDS), "the Pods of all kinds")
    woken = ("podgate_controllers_woken_total", 'service="kinds"', 'result="created"')
    running.plane.wait(lambda: controller.total(*woken) >= len(KINDS), "a wake of each kind whose Pods followed")


@pytest.mark.usefixtures("started")
def test_rights_do_not_suffice_to_change_what_a_controller_runs(running: ControllerFixture) -> None:
    path = "/apis/apps/v1/namespaces/held-kinds/statefulsets/statefulset"
    before: dict[str, Any] = running.plane.api.get(path)
    assert before["metadata"]["annotations"].keys() == {"podgate.io/retry-at"}
    patch = json.dumps({"spec": {"replicas": 7, "template": {"spec": {"hostNetwork": True}}}})
    kubeconfig = running.installation.kubeconfig(account="podgate-controller")
    command = ("--kubeconfig", str(kubeconfig), "patch", "-n", "held-kinds", "statefulset/statefulset", "-p", patch)
    done = running.plane.kubectl(*command, check=False)
    assert "forbidden" in done.stderr, done.stderr
    running.plane.kubectl(*command, "--subresource=status")
    assert running.plane.api.get(path)["spec"] == before["spec"]
