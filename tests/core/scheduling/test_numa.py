"""NUMA zones: the cases of the scheduler-plugins' filter, in containers and in whole Pods."""

import pytest

from webhook.core.kubernetes.pod import Container, Pod, PodMetadata, PodSpec, Resources
from webhook.core.kubernetes.pod_requests import NANO
from webhook.core.policy_fields.scheduling import Numa, Scheduling
from webhook.core.scheduling.hot_node_filters import make_filters
from webhook.core.scheduling.numa import Amounts, NumaDemand, NumaZones, sum_requests


def build_guaranteed_pod(*cpus: int, init: tuple[int, ...] = (), sidecars: tuple[int, ...] = ()) -> Pod:
    def container(cpu: int, *, is_sidecar: bool = False) -> Container:
        amounts = {"cpu": str(cpu), "memory": "1Gi"}
        return Container(
            name="c", resources=Resources(dict(amounts), dict(amounts)), restart_policy="Always" if is_sidecar else None
        )

    first = (*(container(cpu, is_sidecar=True) for cpu in sidecars), *(container(cpu) for cpu in init))
    return Pod(PodMetadata(), PodSpec(containers=tuple(container(cpu) for cpu in cpus), init_containers=first))


def zones(*cpus: int, is_by_pod: bool = False) -> NumaZones:
    return NumaZones(tuple({"cpu": cpu * NANO, "memory": 64 * (1 << 30) * NANO} for cpu in cpus), is_by_pod)


def is_fitting(pod: Pod, available: NumaZones) -> bool:
    return NumaDemand.from_pod(pod).fits(available)


@pytest.mark.parametrize(
    ("pod", "available", "expected"),
    [
        (build_guaranteed_pod(6), zones(4, 4), False),
        (build_guaranteed_pod(6), zones(8, 0), True),
        (build_guaranteed_pod(6), zones(0, 8), True),
        (build_guaranteed_pod(3, 3), zones(4, 4), True),
        (build_guaranteed_pod(3, 3), zones(4, 4, is_by_pod=True), False),
        (build_guaranteed_pod(2, 2), zones(4, 4, is_by_pod=True), True),
        (build_guaranteed_pod(3, 3, 3), zones(4, 4), False),
        (build_guaranteed_pod(4, init=(4,)), zones(4, 0), True),
        (build_guaranteed_pod(3, sidecars=(2,)), zones(4, 0), False),
        (build_guaranteed_pod(3, sidecars=(2,)), zones(4, 2), False),  # the sidecar takes the lowest zone
        (build_guaranteed_pod(3, sidecars=(2,)), zones(4, 3), True),
    ],
)
def test_guaranteed_pods_need_a_zone_each_container_or_the_whole_pod(
    pod: Pod, available: NumaZones, *, expected: bool
) -> None:
    assert is_fitting(pod, available) is expected


def test_pods_of_other_classes_and_resources_without_zones_are_not_bound() -> None:
    burstable = Pod(PodMetadata(), PodSpec(containers=(Container(resources=Resources({"cpu": "6"}, None)),)))
    best_effort = Pod(PodMetadata(), PodSpec(containers=(Container(),)))
    rules = Scheduling(numa=Numa.REQUIRED)
    assert [make_filters(pod, rules).numa is None for pod in (burstable, best_effort, build_guaranteed_pod(6))] == [
        True,
        True,
        False,
    ]
    unnamed: Amounts = {"cpu": 8 * NANO}
    assert is_fitting(build_guaranteed_pod(6), NumaZones((unnamed,), is_by_pod=False)), "no zone names memory"


def test_new_pods_are_subtracted_from_every_zone() -> None:
    left = zones(8, 8).subtract(sum_requests(build_guaranteed_pod(5)))
    assert not is_fitting(build_guaranteed_pod(4), left)
    assert is_fitting(build_guaranteed_pod(3), left)
