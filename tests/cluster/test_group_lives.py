"""Groups on a real control plane whose members are deleted, denied, scaled, suspended, refused, or of other kinds."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.cluster.controller_fixture import ControllerFixture, controller_fixture
from tests.cluster.controlplane import ControlPlane
from tests.cluster.custom_kinds import build_crd, custom_kinds
from tests.cluster.forbidden_pods import forbid
from tests.cluster.groups import (
    CRDS,
    POLICY,
    count,
    count_used,
    create_job,
    namespace,
    read_rows,
    wait_for,
    wait_for_reason,
)
from tests.cluster.identities import Identities
from tests.cluster.queue import is_gated

pytest_plugins = ("tests.redis_servers.fixtures",)
pytestmark = pytest.mark.parametrize("store", ["redis"], indirect=True, scope="module")
__all__ = ["namespace"]

SOURCES = "Annotations, Job, JobSet, Coscheduling, PodGroup, LeaderWorkerSet, Kueue, Volcano"
ALL_CRDS = (*CRDS, build_crd("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups"))
INDEX = "batch.kubernetes.io/job-completion-index"


@pytest.fixture(scope="module")
def running(plane: ControlPlane, identities: Identities, store: str, store_url: str) -> Iterator[ControllerFixture]:
    policy = POLICY.replace("STORE", store).replace("Annotations, Job, JobSet, Coscheduling", SOURCES)
    with (
        custom_kinds(plane, ALL_CRDS),
        controller_fixture(plane, identities, policy, [f"gang-{store}"], store_url) as fixture,
    ):
        yield fixture


def list_pods(running: ControllerFixture, namespace: str, prefix: str) -> list[dict[str, Any]]:
    return [pod for pod in running.installation.pods(namespace) if pod["metadata"]["name"].startswith(prefix)]


def change_job(running: ControllerFixture, namespace: str, name: str, **spec: Any) -> None:
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs/{name}"
    status, answer = running.plane.api.request("PATCH", path, {"spec": spec}, "application/merge-patch+json")
    assert status == 200, answer


def fill(running: ControllerFixture, namespace: str) -> None:
    """Take most of the room, so that the next group waits for the window."""
    create_job(running.plane, namespace, "first", 4)
    wait_for(running, namespace, "first", 0, 4)


def test_a_deleted_member_is_replaced_and_the_group_is_released_whole(
    running: ControllerFixture, namespace: str
) -> None:
    fill(running, namespace)
    create_job(running.plane, namespace, "second", 4, completionMode="Indexed", backoffLimit=6)
    wait_for(running, namespace, "second", 4, 0)
    gone = next(
        pod
        for pod in list_pods(running, namespace, "second")
        if pod["metadata"]["annotations"][INDEX] == "2" and is_gated(pod)
    )
    running.plane.delete(f"/api/v1/namespaces/{namespace}/pods/{gone['metadata']['name']}")
    seen = set[int]()

    def is_whole() -> bool:
        seen.add(count(running, namespace, "second")[1])
        return count(running, namespace, "second") == (0, 4)

    running.plane.wait(is_whole, "the group to be released whole", timeout_seconds=90)
    [again] = [pod for pod in list_pods(running, namespace, "second") if pod["metadata"]["annotations"][INDEX] == "2"]
    assert again["metadata"]["uid"] != gone["metadata"]["uid"]
    assert count_used(running) <= 6


def test_a_job_that_is_scaled_down_while_it_waits_is_a_smaller_group(
    running: ControllerFixture, namespace: str
) -> None:
    create_job(running.plane, namespace, "large", 7, completions=None)
    reason = "its group large of 7 Pods asks for pods 7, and 10s has 6 in all: make the group smaller, or have an admin"
    wait_for_reason(running, "large", f"{reason} raise the limit")
    assert count(running, namespace, "large") == (7, 0)

    change_job(running, namespace, "large", parallelism=5)
    wait_for(running, namespace, "large", 0, 5)


def test_a_job_that_is_suspended_and_resumed_gathers_again(running: ControllerFixture, namespace: str) -> None:
    fill(running, namespace)
    create_job(running.plane, namespace, "second", 3)
    wait_for(running, namespace, "second", 3, 0)
    change_job(running, namespace, "second", suspend=True)
    wait_for(running, namespace, "second", 0, 0)

    change_job(running, namespace, "second", suspend=False)
    wait_for(running, namespace, "second", 0, 3)
    assert count_used(running) == 3


def test_a_member_that_another_policy_denies_keeps_its_group_waiting(
    running: ControllerFixture, namespace: str
) -> None:
    expression = (
        f"!('{INDEX}' in object.metadata.?annotations.orValue({{}})) || object.metadata.annotations['{INDEX}'] != '1'"
    )
    with forbid(running.plane, "CREATE", expression):

        def is_denied() -> bool:
            annotations = {INDEX: "1"}
            return running.installation.create_pod(namespace, annotations=annotations, dry_run=True)[0] != 201

        running.plane.wait(is_denied, "the policy to be in force", timeout_seconds=60)
        create_job(running.plane, namespace, "some", 3, completionMode="Indexed", backoffLimit=6)
        running.plane.wait(lambda: count(running, namespace, "some")[0], "some of the members to wait")
        running.plane.wait(lambda: "members of its group are here" in read_why(running, "some"), "what is missing")
        assert count(running, namespace, "some")[1] == 0
    running.plane.wait(
        lambda: count(running, namespace, "some") == (0, 3), "the group to be released", timeout_seconds=90
    )


def read_why(running: ControllerFixture, prefix: str) -> str:
    return " ".join({row["why"] for row in read_rows(running) if row["name"].startswith(prefix)})


@contextmanager
def keep_gates(running: ControllerFixture, namespace: str, prefix: str) -> Iterator[None]:
    """Let the API server refuse to remove the gates of Pods whose name begins so."""
    expression = (
        f"!object.metadata.name.startsWith('{prefix}') || !('probe' in object.metadata.?annotations.orValue({{}}))"
        " && (!has(oldObject.spec.schedulingGates) || has(object.spec.schedulingGates))"
    )
    running.installation.create_pod(namespace, f"{prefix}-probe")
    probe = f"/api/v1/namespaces/{namespace}/pods/{prefix}-probe"
    with forbid(running.plane, "UPDATE", expression):

        def is_denied() -> bool:
            body = {"metadata": {"annotations": {"probe": ""}}}
            kind = "application/merge-patch+json"
            return running.plane.api.request("PATCH", f"{probe}?dryRun=All", body, kind)[0] == 422

        running.plane.wait(is_denied, "the policy to be in force", timeout_seconds=60)
        running.plane.delete(probe)
        yield


@pytest.mark.parametrize("have_ended", [False, True])
def test_a_controller_that_is_killed_in_the_middle_of_a_release(
    running: ControllerFixture, namespace: str, *, have_ended: bool
) -> None:
    annotations = {"podgate.io/group": "ring", "podgate.io/group-size": "3"}
    with keep_gates(running, namespace, "ring-2"):
        for number in range(3):
            status, answer = running.installation.create_pod(namespace, f"ring-{number}", annotations=annotations)
            assert status == 201, answer
        wait_for(running, namespace, "ring", 1, 2)
        for number in range(2 if have_ended else 0):
            end_pod(running, f"/api/v1/namespaces/{namespace}/pods/ring-{number}")

        running.installation.stop_controller(running.installation.controllers[0], kill=True)
        running.start_controller()
        running.plane.wait(running.leader, "a new leader")
        assert count(running, namespace, "ring") == (1, 2)
    wait_for(running, namespace, "ring", 0, 3)
    assert count_used(running) <= 4


def test_a_member_that_is_made_again_does_not_wait_for_those_that_have_succeeded(
    running: ControllerFixture, namespace: str
) -> None:
    group = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup"}
    running.plane.apply({**group, "metadata": {"name": "again", "namespace": namespace}, "spec": {"minMember": 3}})
    labels = {"scheduling.x-k8s.io/pod-group": "again"}
    with keep_gates(running, namespace, "again-1"):
        create_job(running.plane, namespace, "again", 3, labels, completionMode="Indexed", backoffLimit=6)
        wait_for(running, namespace, "again", 1, 2)

        def list_succeeded() -> list[str]:
            pods = list_pods(running, namespace, "again")
            return [pod["metadata"]["name"] for pod in pods if pod["status"]["phase"] == "Succeeded"]

        running.plane.wait(lambda: len(list_succeeded()) == 2, "two of them to succeed")
        [left] = filter(is_gated, list_pods(running, namespace, "again"))
        running.plane.delete(f"/api/v1/namespaces/{namespace}/pods/{left['metadata']['name']}")
    running.plane.wait(lambda: len(list_succeeded()) == 3, "the one that is made again to succeed", timeout_seconds=90)


def end_pod(running: ControllerFixture, path: str) -> None:
    """Let a Pod end, as its kubelet would report it."""
    running.plane.wait(lambda: running.plane.api.get(path)["status"]["phase"] == "Running", f"{path} to run")
    body, kind = {"status": {"phase": "Succeeded"}}, "application/merge-patch+json"
    status, answer = running.plane.api.request("PATCH", f"{path}/status", body, kind)
    assert status == 200, answer


def test_groups_of_kueue_and_leader_worker_sets_carry_their_size(running: ControllerFixture, namespace: str) -> None:
    kinds = {
        "kueue": ({"kueue.x-k8s.io/pod-group-name": "k"}, {"kueue.x-k8s.io/pod-group-total-count": "2"}),
        "lws": ({"leaderworkerset.sigs.k8s.io/group-key": "l"}, {"leaderworkerset.sigs.k8s.io/size": "2"}),
    }
    for name, (labels, annotations) in kinds.items():
        running.installation.create_pod(namespace, f"{name}-0", labels=labels, annotations=annotations)
        wait_for_reason(running, name, "1 of 2 members of its group are here")
        running.installation.create_pod(namespace, f"{name}-1", labels=labels, annotations=annotations)
        wait_for(running, namespace, name, 0, 2)


def test_a_pod_group_of_volcano_has_the_size(running: ControllerFixture, namespace: str) -> None:
    volcano = {"scheduling.k8s.io/group-name": "v"}
    shown = f"{namespace}/v does not exist: create it, or annotate its Pods with podgate.io/group and"
    running.installation.create_pod(namespace, "volcano-0", annotations=volcano)
    wait_for_reason(running, "volcano", f"its PodGroup {shown} podgate.io/group-size")
    group = {"metadata": {"name": "v", "namespace": namespace}, "kind": "PodGroup"}
    running.plane.apply({"apiVersion": "scheduling.volcano.sh/v1beta1", **group, "spec": {"minMember": 2}})
    wait_for_reason(running, "volcano", "1 of 2 members of its group are here")
    running.installation.create_pod(namespace, "volcano-1", annotations=volcano)
    wait_for(running, namespace, "volcano", 0, 2)
