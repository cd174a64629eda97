"""Shares on a real control plane: the split of a workload is exact at rest, whatever happened before."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.controller_fixture import ControllerFixture, controller_fixture
from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.shares import (
    ON_DEMAND,
    SPLIT,
    SPOT,
    Workload,
    build_policy,
    shrink_while_not_ready,
    two_kinds_of_nodes,
)
from tests.cluster.shares_jobs import DividedJob
from tests.cluster.shares_script import Script
from tests.redis_servers import RedisServer, names, program
from tests.timeouts import HANG_SECONDS
from webhook.core.shares import SLOT_ANNOTATION

IS_SOAK = os.environ.get("PODGATE_TEST_SHARES") == "soak"
SEEDS, ACTS = (range(30), 10) if IS_SOAK else (range(2), 6)
MIXED_SEEDS, MIXED_ACTS = (range(30), 20) if IS_SOAK else ((5, 12), 9)
"""The two seeds of the short form draw every act between them."""
NAMESPACE, LOST = "shares", "shares-lost"
UNSCHEDULABLE_FOR = "30s"
"""The shortest time that a policy may have."""


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    folder: Path = tmp_path_factory.mktemp("shares") / "redis"
    with RedisServer(program(names()[0]), folder) as server:
        yield server


@pytest.fixture(scope="module")
def running(plane: ControlPlane, identities: Identities, redis: RedisServer) -> Iterator[ControllerFixture]:
    """Install Podgate with two servers, whose service divides its Pods."""
    policy = build_policy({"web": [NAMESPACE], LOST: [LOST]}, unschedulableFor=UNSCHEDULABLE_FOR, openFor="30s")
    namespaces = [NAMESPACE, LOST]
    with two_kinds_of_nodes(plane), controller_fixture(plane, identities, policy, namespaces, redis.url) as fixture:
        fixture.start_server()
        yield fixture


def create(running: ControllerFixture, kind: str, name: str, replicas: int) -> Workload:
    workload = Workload(running, kind, NAMESPACE, name, replicas)
    workload.create()
    workload.wait()
    return workload


def create_job(running: ControllerFixture, mode: str, name: str, parallelism: int, **fields: int) -> DividedJob:
    job = DividedJob(running, mode, NAMESPACE, name, parallelism, **fields)
    job.create()
    job.wait()
    return job


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_a_workload_is_divided_at_each_step_of_its_growth_and_its_shrinking(
    running: ControllerFixture, kind: str
) -> None:
    workload = create(running, kind, f"grows-{kind.lower()}", 10)
    for replicas in (10, 30, 20, 12, 5, 3, 1, 9):
        workload.scale(replicas)
        workload.wait()
        assert workload.describe() == "", replicas
    workload.scale(0)
    workload.wait()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_script_ends_in_the_exact_split(running: ControllerFixture, redis: RedisServer, seed: int) -> None:
    workloads = [create(running, "Deployment", f"s{seed}-{size}", size) for size in (10, 50)]
    Script(running, redis, workloads, seed).play(ACTS)
    for workload in workloads:
        workload.wait()
    differences = [found for workload in workloads if (found := workload.describe())]
    for workload in workloads:
        workload.scale(0)
    assert not differences, "\n".join(differences)
    assert SPLIT.count_by_variant(10) == {"spot": 6, "on-demand": 4}


@pytest.mark.parametrize("seed", MIXED_SEEDS)
def test_a_random_script_of_a_stateful_set_and_of_jobs_ends_in_the_exact_split(
    running: ControllerFixture, redis: RedisServer, seed: int
) -> None:
    workloads = [
        create(running, "StatefulSet", f"s{seed}-set", 10),
        *(create_job(running, mode, f"s{seed}-{mode.lower()}", 10) for mode in ("Indexed", "NonIndexed")),
    ]
    Script(running, redis, workloads, seed).play(MIXED_ACTS)
    for workload in workloads:
        workload.wait()
    differences = [found for workload in workloads if (found := workload.describe())]
    for workload in workloads:
        workload.scale(0)
    assert not differences, "\n".join(differences)


def test_a_job_that_shrinks_is_divided_exactly_again_once_the_pods_of_later_slots_have_ended(
    running: ControllerFixture,
) -> None:
    """A Job deletes its youngest Pods, whatever their slots and costs."""
    job = create_job(running, "NonIndexed", "shrinks", 10)
    time.sleep(1.1)  # the API server's times are whole seconds
    first = [pod for pod in job.list_pods() if int(pod["metadata"]["annotations"][SLOT_ANNOTATION]) <= 3]
    for pod in first:
        job.end_pod(pod, "Succeeded")
    job.wait()
    assert job.describe() == "", "the youngest Pods have the first slots"
    job.scale(5)
    job.wait()
    slots = job.list_slots()
    assert len({*slots}) == 5
    assert slots != [1, 2, 3, 4, 5]
    for pod in job.list_pods():
        if int(pod["metadata"]["annotations"][SLOT_ANNOTATION]) > 5:
            job.end_pod(pod, "Succeeded")
    running.plane.wait(lambda: job.list_slots() == [1, 2, 3, 4, 5], "the free slots to be taken")
    job.wait()
    assert job.describe() == ""
    job.scale(0)


def test_the_last_pods_of_a_job_keep_their_slots(running: ControllerFixture) -> None:
    job = create_job(running, "NonIndexed", "ends", 10, completions=12)
    for pod in job.list_pods():
        if int(pod["metadata"]["annotations"][SLOT_ANNOTATION]) in {3, 4, 6, 7, 8}:
            job.end_pod(pod, "Succeeded")
    job.replicas = 7
    job.wait()
    assert job.list_slots() == [1, 2, 3, 4, 5, 9, 10]
    assert job.count_variants() == {SPOT: 3, ON_DEMAND: 4} != SPLIT.count_by_variant(7)
    job.scale(0)


def test_holes_of_a_scale_down_of_pods_that_are_not_ready_are_filled_by_growth_and_by_a_rollout(
    running: ControllerFixture,
) -> None:
    """The ReplicaSet deletes two Pods of spot nodes, where the split would give up one of each kind."""
    workload = create(running, "Deployment", "unready", 10)
    shrink_while_not_ready(workload, 8)
    assert workload.count_variants() == {SPOT: 4, ON_DEMAND: 4} != SPLIT.count_by_variant(8)
    workload.scale(10)
    workload.wait()
    assert workload.list_slots() == [*range(1, 11)]
    shrink_while_not_ready(workload, 8)
    workload.roll_out()
    workload.wait()
    assert workload.describe() == ""
    assert workload.list_slots() == [*range(1, 9)]
    workload.scale(0)


def cordon(running: ControllerFixture, *, on: bool) -> None:
    for number in (1, 2):
        patch = {"spec": {"unschedulable": on}}
        path = f"/api/v1/nodes/{SPOT}-{number}"
        assert running.plane.api.request("PATCH", path, patch, "application/merge-patch+json")[0] == 200


def read_state(running: ControllerFixture, service: str) -> str:
    """Return the state of the breaker of spot nodes."""
    [found] = [row for row in running.installation.servers[0].status()["services"] if row["name"] == service]
    [state] = [variant["breaker"]["state"] for variant in found["shares"]["variants"] if variant["name"] == SPOT]
    return str(state)


def test_pods_fall_back_from_a_variant_that_is_gone_and_come_back_by_a_probe(running: ControllerFixture) -> None:
    """Of 10 Pods 6 belong on spot nodes: they wait for `unschedulableFor`, and then run elsewhere."""
    workload = Workload(running, "Deployment", LOST, "falls", 10)
    cordon(running, on=True)
    try:
        started = time.monotonic()
        workload.create()
        workload.wait(HANG_SECONDS)
        print(f"all ready {time.monotonic() - started:.1f} s after the Deployment")  # noqa: T201  a measurement is for people
        assert workload.count_variants() == {SPOT: 0, ON_DEMAND: 10}
        assert workload.list_slots() == [*range(1, 11)]
        assert read_state(running, LOST) == "OPEN"
        workload.scale(11)
        workload.wait()
        assert workload.count_variants() == {SPOT: 0, ON_DEMAND: 11}, "nobody tries an open variant"
    finally:
        cordon(running, on=False)
    running.plane.wait(lambda: read_state(running, LOST) == "HALF_OPEN", "the breaker to admit a probe")
    workload.scale(12)
    workload.wait()
    running.plane.wait(lambda: read_state(running, LOST) == "CLOSED", "the probe to be bound")
    workload.scale(20)
    workload.wait()
    expected = SPLIT.count_by_variant(20)
    fell_back = SPLIT.count_by_variant(11)[SPOT]
    assert workload.count_variants() == {SPOT: expected[SPOT] - fell_back, ON_DEMAND: expected[ON_DEMAND] + fell_back}
    workload.scale(4)
    workload.wait()
    assert workload.list_slots() == [1, 2, 5, 10], "those that fell back go first, then the highest slots"
