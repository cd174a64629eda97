"""Groups on a real control plane: Pods of Jobs, JobSets, PodGroups and annotations are released together."""

import pytest

from tests.cluster.controller_fixture import ControllerFixture
from tests.cluster.groups import HARD, count, count_used, create_job, namespace, running, wait_for, wait_for_reason

pytest_plugins = ("tests.redis_servers.fixtures",)
__all__ = ["namespace", "running"]


@pytest.mark.parametrize("mode", ["Indexed", "NonIndexed"])
def test_a_job_without_room_for_all_of_its_pods_waits_whole(
    running: ControllerFixture, namespace: str, mode: str
) -> None:
    plane = running.plane
    create_job(plane, namespace, "first", 4, completionMode=mode)
    wait_for(running, namespace, "first", 0, 4)

    create_job(plane, namespace, "second", 4, completionMode=mode)
    wait_for(running, namespace, "second", 4, 0)
    reason = "its group second waits for room for all 4 Pods: a limit of gang is reached"
    wait_for_reason(running, "second", reason)
    assert (count(running, namespace, "second"), count_used(running)) == ((4, 0), 4)

    wait_for(running, namespace, "second", 0, 4)
    assert count_used(running) == 4


def test_pods_with_our_annotations_wait_for_each_other(running: ControllerFixture, namespace: str) -> None:
    annotations = {"podgate.io/group": "ring", "podgate.io/group-size": "3"}
    for number in range(2):
        status, answer = running.installation.create_pod(namespace, f"ring-{number}", annotations=annotations)
        assert status == 201, answer
    wait_for_reason(running, "ring", "2 of 3 members of its group are here")
    assert count(running, namespace, "ring") == (2, 0)

    running.installation.create_pod(namespace, "ring-2", annotations=annotations)
    wait_for(running, namespace, "ring", 0, 3)

    running.installation.create_pod(namespace, "ring-3", annotations=annotations)  # surplus
    wait_for(running, namespace, "ring", 0, 4)


def test_a_group_whose_size_is_missing_is_denied(running: ControllerFixture, namespace: str) -> None:
    status, answer = running.installation.create_pod(namespace, "odd", annotations={"podgate.io/group": "ring"})
    assert status == 403
    assert "GroupInvalid: service gang: metadata.annotations[podgate.io/group-size] is missing" in answer["message"]


def test_a_pod_group_tells_how_many_pods_wait_for_each_other(running: ControllerFixture, namespace: str) -> None:
    labels = {"scheduling.x-k8s.io/pod-group": "mpi"}
    for number in range(2):
        status, answer = running.installation.create_pod(namespace, f"mpi-{number}", labels=labels)
        assert status == 201, answer
    wait_for_reason(
        running,
        "mpi",
        f"its PodGroup {namespace}/mpi does not exist: create it, or annotate its Pods with podgate.io/group and"
        " podgate.io/group-size",
    )
    running.plane.apply(
        {
            "apiVersion": "scheduling.x-k8s.io/v1alpha1",
            "kind": "PodGroup",
            "metadata": {"name": "mpi", "namespace": namespace},
            "spec": {"minMember": 3},
        }
    )
    wait_for_reason(running, "mpi", "2 of 3 members of its group are here")
    running.installation.create_pod(namespace, "mpi-2", labels=labels)
    wait_for(running, namespace, "mpi", 0, 3)


def test_the_jobs_of_a_job_set_are_one_group(running: ControllerFixture, namespace: str) -> None:
    plane = running.plane
    job_set = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "set", "namespace": namespace},
        "spec": {"replicatedJobs": [{"name": "w", "replicas": 2, "template": {"spec": {"parallelism": 2}}}]},
    }
    plane.apply(job_set)
    uid = plane.api.get(f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{namespace}/jobsets/set")["metadata"]["uid"]
    labels = {"jobset.sigs.k8s.io/jobset-name": "set", "jobset.sigs.k8s.io/jobset-uid": uid}
    create_job(plane, namespace, "set-w-0", 2, labels, completionMode="Indexed")
    wait_for_reason(running, "set-w", "2 of 4 members of its group are here")

    create_job(plane, namespace, "set-w-1", 2, labels, completionMode="Indexed")
    wait_for(running, namespace, "set-w", 0, 4)
    plane.delete(f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{namespace}/jobsets/set")


@pytest.mark.parametrize("store", ["redis"], indirect=True, scope="module")  # counters in memory end with the server
def test_a_leader_that_is_killed_releases_no_part_of_a_group(running: ControllerFixture, namespace: str) -> None:
    create_job(running.plane, namespace, "first", 4)
    wait_for(running, namespace, "first", 0, 4)
    create_job(running.plane, namespace, "second", 5)
    wait_for(running, namespace, "second", 5, 0)

    running.installation.stop_controller(running.installation.controllers[0], kill=True)
    running.start_controller()
    seen: list[tuple[int, int]] = []

    def have_all_run() -> bool:
        seen.append((count(running, namespace, "second")[1], count_used(running)))
        return seen[-1][0] == 5

    running.plane.wait(have_all_run, "the group to be released")
    assert {used for _, used in seen} <= {0, 4, 5}, "never a part of the group"


def test_of_two_groups_of_3_with_room_for_4_one_runs_and_the_other_waits_whole(
    running: ControllerFixture, namespace: str
) -> None:
    for number in range(2):
        assert running.installation.create_pod(namespace, f"alone-{number}")[0] == 201
    names = ("one", "two")
    for number in range(3):
        for name in names:  # in turn, so that without groups two Pods of each would fit
            annotations = {"podgate.io/group": name, "podgate.io/group-size": "3"}
            status, answer = running.installation.create_pod(namespace, f"{name}-{number}", annotations=annotations)
            assert status == 201, answer
    seen: list[tuple[int, ...]] = []

    def is_one_released() -> bool:
        waiting, released = zip(*(count(running, namespace, name) for name in names), strict=True)
        seen.append(waiting)
        return 3 in released

    running.plane.wait(is_one_released, "one of the groups to be released")
    first, second = sorted(names, key=lambda name: count(running, namespace, name))
    reason = f"its group {second} waits for room for all 3 Pods: a limit of gang is reached"
    wait_for_reason(running, second, reason)
    assert (count(running, namespace, first), count(running, namespace, second)) == ((0, 3), (3, 0))
    assert count_used(running) <= HARD
    wait_for(running, namespace, second, 0, 3)
