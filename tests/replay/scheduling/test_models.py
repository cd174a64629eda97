"""The models of a simulation, by hand: what Prometheus measures, and how kube-scheduler scores by requests."""

import pytest
from msgspec.structs import replace

from webhook.core.kubernetes.pod import Container, Pod, PodMetadata, PodSpec, Resources
from webhook.core.kubernetes.pod_requests import NANO
from webhook.core.scheduling.assumed_load import PodLoad
from webhook.core.scheduling.measured_load import Decay
from webhook.core.scheduling.node_table import SchedulableNode
from webhook.core.scheduling.numa import NumaZones
from webhook.replay.scheduling.default_scheduler import DefaultScheduler
from webhook.replay.scheduling.kubelet_zones import KubeletZones
from webhook.replay.scheduling.load_history import LoadHistory
from webhook.replay.scheduling.nodes import SimulatedNode

GIB = 1 << 30


def pod(cpu: str = "1", memory: str = "2Gi", **spec: object) -> Pod:
    containers = (Container("c", Resources({"cpu": cpu, "memory": memory})),)
    return Pod(PodMetadata(name="p"), PodSpec(containers=containers, **spec))  # type: ignore[arg-type]  fields


def build_guaranteed_pod(name: str, cpu: str) -> Pod:
    amounts = Resources(*2 * ({"cpu": cpu, "memory": "1Gi"},))
    return Pod(PodMetadata(name, uid=name), PodSpec(containers=(Container("c", amounts),)))


def node(name: str, pods_max: int = 110, **labels: str) -> SimulatedNode:
    return SimulatedNode(SchedulableNode(name, 4000.0, 8.0 * GIB, labels), pods_max, taints=())


def test_measured_load_is_the_decayed_average_of_samples() -> None:
    history = LoadHistory(PodLoad(1000.0, 100.0))
    history.add(130.0, PodLoad(600.0, 50.0), 1)
    # Samples at 160, 100 and 40, with weights 1, 0.5, 0.25. In the minute before 160 the load was there for half of it.
    found = history.average(160.0, Decay(0.5, 60.0), 120.0)
    assert found.cpu_millis == pytest.approx((1300 + 0.5 * 1000 + 0.25 * 1000) / 1.75)
    assert found.memory_bytes == pytest.approx((150 + 0.5 * 100 + 0.25 * 100) / 1.75)
    variance = ((150 - found.memory_bytes) ** 2 + 0.75 * (100 - found.memory_bytes) ** 2) / 1.75
    assert history.compute_deviation(160.0, Decay(0.5, 60.0), 120.0).memory_bytes == pytest.approx(variance**0.5)
    assert history.compute_deviation(999.0, Decay(0.5, 60.0), 120.0) == PodLoad(0.0, 0.0), "constant since then"
    history.add(400.0, PodLoad(600.0, 50.0), -1)
    assert history.average(2000.0, Decay(0.5, 60.0), 120.0) == (1000.0, 100.0)
    assert history.peak == (1600.0, 150.0)


def test_scores_are_those_of_least_allocated_and_balanced_allocation() -> None:
    scheduler = DefaultScheduler([node("a"), node("b")])
    assert scheduler.compute_scores(pod(), ["a", "b"]) == {"a": 75 + 100, "b": 75 + 100}
    scheduler.bind(pod(memory="4Gi"), "a")
    # On a: cpu 2 of 4, memory 6 of 8 GiB; (50 + 25) // 2, and shares 0.5 and 0.75.
    assert scheduler.compute_scores(pod(), ["a", "b"]) == {"a": 37 + 87, "b": 175}
    assert scheduler.compute_scores(Pod(PodMetadata(), PodSpec()), ["b"]) == {"b": 97 + 99}, "100m and 200Mi"
    scheduler.bind(pod(memory="4Gi"), "a", -1)
    assert scheduler.compute_scores(pod(), ["a"]) == {"a": 175}


def test_pod_fits_where_its_requests_do_and_its_selector_holds() -> None:
    scheduler = DefaultScheduler([node("a", disk="ssd"), node("b", pods_max=1), node("c")])
    scheduler.bind(pod(), "b")
    scheduler.bind(pod(cpu="3500m"), "c")
    scheduler.bind(pod(), "elsewhere")
    unwanted = "node(s) didn't match Pod's node affinity/selector"
    assert scheduler.find_feasible(pod()) == (["a"], {"Too many pods", "Insufficient cpu"})
    assert scheduler.find_feasible(pod(cpu="500m")) == (["a", "c"], {"Too many pods"})
    assert scheduler.find_feasible(pod(cpu="500m", node_selector={"disk": "hdd"})) == ([], {unwanted})
    assert scheduler.find_feasible(pod(cpu="0", memory="9Gi")) == ([], {"Too many pods", "Insufficient memory"})


def test_full_zone_makes_the_kubelet_refuse_a_guaranteed_pod_until_another_ends() -> None:
    zones = NumaZones(({"cpu": 4 * NANO}, {"cpu": 2 * NANO}), is_by_pod=False)
    kubelets = KubeletZones([replace(node("a"), zones=zones), node("b")])
    pods = [build_guaranteed_pod(name, cpu) for name, cpu in (("first", "3"), ("second", "2"), ("third", "2"))]
    assert [kubelets.admits(candidate, "a") for candidate in (*pods, pod("64"))] == [True, True, False, True]
    assert kubelets.admits(pods[2], "b"), "it has no zones"
    assert kubelets.take_reports() == {"a": NumaZones(({"cpu": NANO}, {"cpu": 0}), is_by_pod=False)}
    assert kubelets.take_reports() == {}
    for placed in pods:
        kubelets.release(placed.metadata.uid, "a")
    assert kubelets.take_reports() == {"a": zones}
