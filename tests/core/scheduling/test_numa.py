"""NUMA zones: the cases of the scheduler-plugins' filter, in containers and in whole Pods."""

import msgspec
import pytest

from tests.core.scheduling.unschedulable import list_fitting
from webhook.core.kubernetes.pod import Container, Pod, PodMetadata, PodSpec, Resources
from webhook.core.kubernetes.pod_requests import NANO
from webhook.core.kubernetes.quantity import Number
from webhook.core.policy_fields.scheduling import Hot, Numa, Scheduling
from webhook.core.scheduling.hot_node_filters import make_filters
from webhook.core.scheduling.measured_load import NodeLoad
from webhook.core.scheduling.node_table import NodeRow, SchedulableNode
from webhook.core.scheduling.numa import Amounts, NumaDemand, NumaZones, compute_zone_share, sum_requests
from webhook.core.scheduling.topology import TopologyReport

NODE = SchedulableNode("n", 1000.0, 1000.0)


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


GPU = "nvidia.com/gpu"


def build_burstable_pod(*gpus: int, cpu: str = "6") -> Pod:
    native: dict[str, str | int | float | None] = {"cpu": cpu, "memory": "1Gi", "hugepages-2Mi": "1Gi"}
    asked = [native | ({GPU: str(count)} if count else {}) for count in gpus]
    return Pod(PodMetadata(), PodSpec(containers=tuple(Container(resources=Resources(found)) for found in asked)))


LIMITED = Pod(PodMetadata(), PodSpec(containers=(Container(resources=Resources(None, {GPU: "2"})),)))
"""A Pod of class BestEffort."""


def zones_of_gpus(*gpus: int, is_by_pod: bool = False) -> NumaZones:
    return NumaZones(tuple({"cpu": NANO, "hugepages-2Mi": 0, GPU: count * NANO} for count in gpus), is_by_pod)


@pytest.mark.parametrize(
    ("pod", "available", "expected"),
    [
        (build_burstable_pod(2), zones_of_gpus(1, 1), False),
        (build_burstable_pod(2), zones_of_gpus(0, 2), True),
        (build_burstable_pod(1, 1), zones_of_gpus(1, 1), True),
        (build_burstable_pod(1, 1), zones_of_gpus(1, 1, is_by_pod=True), False),
        (build_burstable_pod(0, 2), zones_of_gpus(1, 1), False),
        (build_burstable_pod(2), zones(8, 8), True),  # no zone names the devices
        (LIMITED, zones_of_gpus(1, 1), False),
    ],
)
def test_devices_of_pods_of_any_class_come_from_one_zone(pod: Pod, available: NumaZones, *, expected: bool) -> None:
    filters = make_filters(pod, Scheduling(numa=Numa.REQUIRED))
    assert filters.numa is not None
    assert filters.numa.fits(available) is expected


def test_only_devices_of_a_burstable_pod_are_taken_of_its_zone() -> None:
    assert compute_zone_share(build_burstable_pod(1, 0, 2)) == {GPU: 3 * NANO}
    assert compute_zone_share(build_burstable_pod(0)) is None
    assert make_filters(build_burstable_pod(0), Scheduling(numa=Numa.REQUIRED)).numa is None
    guaranteed = compute_zone_share(build_guaranteed_pod(2))
    assert guaranteed is not None
    assert set(guaranteed) == {"cpu", "memory"}


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


def report_zones(*cpus: tuple[str, object], scope: str = "container") -> NumaZones:
    """Return zones by what is available in each, and what is allocatable."""
    report = {
        "zones": [
            {
                "name": f"node-{number}",
                "type": "Node",
                "resources": [{"name": "cpu", "available": available, "capacity": "64", "allocatable": allocatable}],
            }
            for number, (available, allocatable) in enumerate(cpus)
        ],
        "attributes": [
            {"name": "topologyManagerPolicy", "value": "single-numa-node"},
            {"name": "topologyManagerScope", "value": scope},
        ],
    }
    found = msgspec.convert(report, TopologyReport).read_bound_zones()
    assert found is not None
    return found


NEVER, LATER = (
    f"node(s) had {what} the requested cpu and memory"
    for what in ("only NUMA zones too small for", "no single NUMA zone with")
)


@pytest.mark.parametrize(
    ("pod", "found", "reason"),
    [
        (build_guaranteed_pod(6), report_zones(("1", "4"), ("1", "4")), NEVER),
        (build_guaranteed_pod(6), report_zones(("1", "4"), ("1", 8)), LATER),
        (build_guaranteed_pod(6), report_zones(("1", "4"), ("6", "8")), ""),
        (build_guaranteed_pod(3, 3), report_zones(("1", "4"), ("1", "4")), LATER),
        (build_guaranteed_pod(3, 3), report_zones(("1", "4"), ("1", "4"), scope="pod"), NEVER),
        (build_guaranteed_pod(3, 3, 3), report_zones(("4", "4"), ("4", "4")), NEVER),  # no two in one zone
        (build_guaranteed_pod(6), report_zones(("1", "4"), ("1", "-4")), LATER),  # not known
        (build_guaranteed_pod(6), report_zones(("1", "4"), ("1", None)), LATER),
        (build_guaranteed_pod(6), report_zones(), LATER),
    ],
)
def test_pod_that_would_not_fit_into_free_zones_either_is_refused_for_good(
    pod: Pod, found: NumaZones, reason: str
) -> None:
    filters = make_filters(pod, Scheduling(numa=Numa.REQUIRED, hot=Hot(cpu=Number(0.8))))
    taken = found.subtract({})
    cool, hot = (
        filters.find_refusal(NodeRow.from_node(NODE, NodeLoad("prometheus", 0.0, cpu), numa=taken)) for cpu in (0, 900)
    )
    assert ("" if cool is None else cool.reason, cool is not None and cool.is_permanent) == (reason, reason == NEVER)
    assert hot is not None
    assert hot.is_permanent == (reason == NEVER), "that it is hot is told only where waiting helps"


def test_pod_that_is_refused_for_good_is_not_taken_for_one_that_fits_when_nodes_cool() -> None:
    rules = Scheduling(numa=Numa.REQUIRED, hot=Hot(cpu=Number(0.8)))
    zones_now = report_zones(("4", "4"), ("4", "4"))
    row = NodeRow.from_node(NODE, NodeLoad("prometheus", 0.0, 0.0), numa=zones_now)
    assert list_fitting(build_guaranteed_pod(6), rules, row) == []
    assert list_fitting(build_guaranteed_pod(3), rules, row) == ["p"]


def test_new_pods_are_subtracted_from_every_zone() -> None:
    left = zones(8, 8).subtract(sum_requests(build_guaranteed_pod(5)))
    assert not is_fitting(build_guaranteed_pod(4), left)
    assert is_fitting(build_guaranteed_pod(3), left)
