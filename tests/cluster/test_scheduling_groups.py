"""PodGroups of Kubernetes on a control plane with their feature gates: Podgate releases whole what it binds whole."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.admission_configuration import stand_in_service
from tests.cluster.controller_fixture import ControllerFixture, controller_fixture
from tests.cluster.controlplane import ControlPlane
from tests.cluster.groups import HARD, WINDOW, count, count_used, create_job, namespace, wait_for, wait_for_reason
from tests.cluster.identities import Identities
from tests.cluster.kwok import NODES
from webhook.core.groups.membership import GROUP_ANNOTATION, Membership
from webhook.core.policy_fields import GroupSource

pytestmark = pytest.mark.parametrize("store", ["memory"], indirect=True, scope="module")
__all__ = ["namespace"]

API = "scheduling.k8s.io/v1alpha2"
GATES = "--feature-gates=GenericWorkload=true,GangScheduling=true,WorkloadWithJob=true"
FLAGS = {
    "kube-apiserver": [GATES, f"--runtime-config={API}=true"],
    "kube-scheduler": [GATES],
    "kube-controller-manager": [GATES],
}
POLICY = f"""\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: gang
  match: {{namespaces: [gang-memory]}}
  quota:
    windows: [{{window: {WINDOW}, hard: {{pods: {HARD}}}}}]
    whenExceeded: Queue
    queue: {{maxWait: 1h, whenExpired: Keep, groups: {{from: [PodGroup, Job]}}}}
"""


@pytest.fixture(scope="module")
def running(identities: Identities, store: str) -> Iterator[ControllerFixture]:
    with ControlPlane(callers=identities.callers, flags=FLAGS) as plane:
        plane.apply(*stand_in_service())
        plane.add_nodes(*NODES)
        with controller_fixture(plane, identities, POLICY, [f"gang-{store}"]) as fixture:
            yield fixture


def create_pod_group(running: ControllerFixture, namespace: str, name: str, policy: dict[str, Any]) -> None:
    metadata = {"name": name, "namespace": namespace}
    running.plane.apply(
        {"apiVersion": API, "kind": "PodGroup", "metadata": metadata, "spec": {"schedulingPolicy": policy}}
    )


def create_member(running: ControllerFixture, namespace: str, group: str, number: int, cpu: str = "1") -> None:
    status, answer = running.installation.create_pod(
        namespace,
        f"{group}-{number}",
        schedulingGroup={"podGroupName": group},
        terminationGracePeriodSeconds=0,
        containers=[{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}],
    )
    assert status == 201, answer


def count_bound(running: ControllerFixture, namespace: str, prefix: str) -> int:
    pods = running.installation.pods(namespace)
    return sum("nodeName" in pod["spec"] for pod in pods if pod["metadata"]["name"].startswith(prefix))


def test_the_pods_of_a_gang_are_released_and_bound_together(running: ControllerFixture, namespace: str) -> None:
    create_pod_group(running, namespace, "train", {"gang": {"minCount": 3}})
    for number in range(2):
        create_member(running, namespace, "train", number)
    wait_for_reason(running, "train", "2 of 3 members of its group are here")
    assert count(running, namespace, "train") == (2, 0)

    create_member(running, namespace, "train", 2)
    wait_for(running, namespace, "train", 0, 3)
    running.plane.wait(lambda: count_bound(running, namespace, "train") == 3, "all of them to be bound")
    assert count_used(running) == 3


def test_of_two_gangs_of_3_on_nodes_for_4_one_runs(running: ControllerFixture, namespace: str) -> None:
    """Both have room in the quota; without PodGroups two Pods of each would be bound, and wait for the others."""
    for name in ("one", "two"):
        create_pod_group(running, namespace, name, {"gang": {"minCount": 3}})
    for number in range(3):
        for name in ("one", "two"):
            create_member(running, namespace, name, number, cpu="60")  # a Node has 64

    def is_one_bound() -> bool:
        return sorted(count_bound(running, namespace, name) for name in ("one", "two")) == [0, 3]

    for name in ("one", "two"):
        wait_for(running, namespace, name, 0, 3)
    running.plane.wait(is_one_bound, "one of the gangs to be bound")
    first, second = sorted(("one", "two"), key=lambda name: -count_bound(running, namespace, name))
    for number in range(3):
        running.plane.delete(f"/api/v1/namespaces/{namespace}/pods/{first}-{number}?gracePeriodSeconds=0")
    running.plane.wait(lambda: count_bound(running, namespace, second) == 3, "the other one to be bound")


def test_pods_of_a_basic_pod_group_do_not_wait_for_each_other(running: ControllerFixture, namespace: str) -> None:
    create_pod_group(running, namespace, "basic", {"basic": {}})
    create_member(running, namespace, "basic", 0)
    wait_for(running, namespace, "basic", 0, 1)
    running.plane.wait(lambda: count_bound(running, namespace, "basic") == 1, "the Pod to be bound")


def test_a_pod_group_that_the_job_controller_creates_is_a_gang(running: ControllerFixture, namespace: str) -> None:
    create_job(running.plane, namespace, "first", 4, completionMode="Indexed")
    wait_for(running, namespace, "first", 0, 4)
    create_job(running.plane, namespace, "second", 4, completionMode="Indexed")
    wait_for(running, namespace, "second", 4, 0)
    pods = [pod for pod in running.installation.pods(namespace) if pod["metadata"]["name"].startswith("second")]
    memberships = {Membership.decode(pod["metadata"]["annotations"][GROUP_ANNOTATION]) for pod in pods}
    assert {one and one.source for one in memberships} == {GroupSource.POD_GROUP}
    [name] = {pod["spec"]["schedulingGroup"]["podGroupName"] for pod in pods}
    found = running.plane.api.get(f"/apis/{API}/namespaces/{namespace}/podgroups/{name}")
    assert found["spec"]["schedulingPolicy"]["gang"]["minCount"] == 4

    wait_for(running, namespace, "second", 0, 4)
    running.plane.wait(lambda: count_bound(running, namespace, "second") == 4, "all of them to be bound")
    assert count_used(running) == 4
