"""Calls of the extender on a real kube-scheduler: who may call, preemption, and NUMA zones."""

from itertools import count
from typing import Any

import pytest

from certs.authority import Authority
from tests.scheduling.extender_calls import topology
from tests.scheduling.extender_server import OTHER, SCHEDULER, SECOND, ExtendedScheduler
from webhook.core.scheduling.pod_fingerprint import compute_fingerprint, hash_pod

_TOPOLOGIES = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"


def test_only_the_schedulers_own_certificate_may_call(scheduler: ExtendedScheduler) -> None:
    scheduler.client("colleague", "reporter")
    scheduler.client("stranger", SCHEDULER, authority=Authority.create("another"))
    assert scheduler.post("filter", "client") == 400, "the body is none of the extender API"
    assert scheduler.post("filter", "colleague") == 403
    assert scheduler.post("filter", "stranger") == 0
    assert scheduler.post("filter", None) == 0
    assert scheduler.post("bind", "client") == 404


def report_until_contained(scheduler: ExtendedScheduler, node: str, *cpus: str, scope: str = "container") -> None:
    """Report zones again and again, each time others, until the extender takes a report to contain the Pods there."""
    numbers = count(32)

    def is_contained() -> bool:
        scheduler.plane.apply(topology(node, *cpus, scope=scope, memory=f"{next(numbers)}Gi"))
        return bool(scheduler.nodes()[node]["numaCpuMillis"] == [1000 * int(cpu) for cpu in cpus])

    scheduler.plane.wait(is_contained, f"the report of {node}", "extender")


def test_guaranteed_pod_goes_where_one_numa_zone_holds_it_and_the_next_one_waits(scheduler: ExtendedScheduler) -> None:
    plane = scheduler.plane
    plane.apply(topology("warm-1", "4", "4"), topology("warm-2", "8", "0"))
    for name in ("cool", "hot"):
        plane.apply(topology(name, "1", "1"))
    zones = {"cool": [1000] * 2, "hot": [1000] * 2, "warm-1": [4000] * 2, "warm-2": [8000, 0]}

    def has_zones() -> bool:
        return {name: found["numaCpuMillis"] for name, found in scheduler.nodes().items()} == zones

    plane.wait(has_zones, "the zones", "extender")
    amounts = {"cpu": "6", "memory": "1Gi"}
    guaranteed = [{"name": "c", "image": "i", "resources": {"requests": amounts, "limits": amounts}}]

    def place(name: str, containers: list[dict[str, Any]]) -> None:
        scheduler.create(name, "batch", containers=containers)

    place("first", guaranteed)
    assert scheduler.wait_until_bound("first") == "warm-2"
    place("second", guaranteed)
    assert "4 node(s) had no single NUMA zone with the requested cpu and memory" in scheduler.wait_until_refused(
        "second"
    )
    page = scheduler.explain("pod", "second").out
    free = {"warm-2": ("2", "0", "63Gi"), "warm-1": ("4", "4", "64Gi")} | dict.fromkeys(
        ("cool", "hot"), ("1", "1", "64Gi")
    )
    expected = {
        f"  zones     {node}: cpu 6, memory 1Gi asked of one zone;"
        f" zone 0 has cpu {zone_0}, memory {memory} free; zone 1 has cpu {zone_1}, memory {memory} free"
        for node, (zone_0, zone_1, memory) in free.items()
    }
    told = {line for line in page.splitlines() if line.startswith("  zones ")}
    assert told < expected, page
    assert len(told) == 3, "of the first three nodes in the scheduler's order, which differs between attempts"
    place("burstable", [{"name": "c", "image": "i", "resources": {"requests": amounts}}])
    assert scheduler.wait_until_bound("burstable")
    half = {"cpu": "3", "memory": "1Gi"}
    halves = [{"name": name, "image": "i", "resources": {"requests": half, "limits": half}} for name in "ab"]
    place("halves", halves)
    assert scheduler.wait_until_bound("halves") == "warm-1", "one container in each of its zones"
    plane.apply(topology("warm-1", "4", "4"))  # it repeats what was reported before
    place("third", halves)
    assert "4 node(s) had no single NUMA zone" in scheduler.wait_until_refused("third")
    plane.delete("/api/v1/namespaces/shop/pods/third?gracePeriodSeconds=0")
    report_until_contained(scheduler, "warm-1", "4", "4", scope="pod")
    place("halves-together", halves)
    assert "4 node(s) had no single NUMA zone" in scheduler.wait_until_refused("halves-together")
    plane.delete("/api/v1/namespaces/shop/pods/halves-together?gracePeriodSeconds=0")
    bad = topology("cool", "64", "64")
    bad["zones"][1]["resources"][1]["available"] = "-1Gi"
    plane.apply(bad)  # its schema allows that
    [unread] = plane.wait(scheduler.list_unread, "the bad report", "extender")
    assert unread == (
        "noderesourcetopologies cool: zones[1].resources[1]: available: '-1Gi': a quantity must not be negative"
    )
    assert scheduler.nodes()["cool"]["numaCpuMillis"] == [1000] * 2, "its former report stays in use"
    report_until_contained(scheduler, "warm-2", "2", "8")  # the next report, after the first Pod was bound
    assert scheduler.wait_until_bound("second") == "warm-2"
    plane.apply(topology("cool", "1", "1"))
    plane.wait(lambda: not scheduler.list_unread(), "the good report", "extender")
    scheduler.delete_all()


def test_pod_that_no_zone_could_ever_hold_says_so(scheduler: ExtendedScheduler) -> None:
    zones = {name: [1000] * 2 for name in ("cool", "hot", "warm-1", "warm-2")}
    scheduler.plane.apply(*(topology(name, "1", "1") for name in zones))

    def has_zones() -> bool:
        return {name: found["numaCpuMillis"] for name, found in scheduler.nodes().items()} == zones

    scheduler.plane.wait(has_zones, "the zones", "extender")
    large = {"cpu": "20", "memory": "1Gi"}
    containers = [{"name": "c", "image": "i", "resources": {"requests": large, "limits": large}}]
    scheduler.create("large", "batch", containers=containers)
    reason = "4 node(s) had only NUMA zones too small for the requested cpu and memory"
    assert reason in scheduler.wait_until_refused("large")
    page = " ".join(scheduler.explain("pod", "large").out.split())
    assert "larger NUMA zones: waiting does not help" in page, page
    assert "cpu 20, memory 1Gi asked of one zone; zone 0 has cpu 16, memory 64Gi in all;" in page
    scheduler.delete_all()


def hash_pods(scheduler: ExtendedScheduler, node: str) -> list[int]:
    """Return the hashes of the Pods on a node."""
    pods = (scheduler.plane.api.get(f"/api/v1/pods?fieldSelector=spec.nodeName%3D{node}") or {})["items"]
    return [hash_pod(pod["metadata"]["namespace"], pod["metadata"]["name"]) for pod in pods]


@pytest.mark.parametrize("is_legacy", [False, True])
def test_report_that_was_made_with_a_pod_ends_its_reservation_at_once_and_the_next_one_fits(
    scheduler: ExtendedScheduler, *, is_legacy: bool
) -> None:
    plane = scheduler.plane
    for name in ("cool", "hot", "warm-1"):
        plane.apply(topology(name, "1", "1"))
    plane.apply(topology("warm-2", "8", "8"))
    plane.wait(lambda: scheduler.nodes()["warm-2"]["numaCpuMillis"] == [8000] * 2, "the zones", "extender")
    amounts = {"cpu": "6", "memory": "1Gi"}
    guaranteed = [{"name": "c", "image": "i", "resources": {"requests": amounts, "limits": amounts}}]
    for name in ("first", "second"):
        scheduler.create(name, "batch", containers=guaranteed)
    first = plane.wait(lambda: next(filter(scheduler.find_node, ("first", "second")), ""), "the first Pod", SECOND)
    [other] = {"first", "second"} - {first}
    assert "4 node(s) had no single NUMA zone" in scheduler.wait_until_refused(other)
    hashes = hash_pods(scheduler, "warm-2")
    contained = compute_fingerprint(hashes)
    for fingerprint in (compute_fingerprint([*hashes, 1]), contained):
        plane.apply(topology("warm-2", "2", "8", fingerprint=fingerprint, is_legacy=is_legacy))
        zones = [2000, 8000] if fingerprint == contained else [0, 2000]
        plane.wait(lambda zones=zones: scheduler.nodes()["warm-2"]["numaCpuMillis"] == zones, "the report", "extender")
    assert scheduler.wait_until_bound(other) == "warm-2"
    scheduler.delete_all()


def test_replica_that_begins_is_ready_once_it_has_read_the_zones(scheduler: ExtendedScheduler) -> None:
    scheduler.plane.apply(topology("warm-2", "8", "7"))
    scheduler.start_extender(OTHER)  # until it is ready
    try:
        assert scheduler.nodes(OTHER)["warm-2"]["numaCpuMillis"] == [8000, 7000]
    finally:
        scheduler.stop_extender(OTHER)
        scheduler.delete_all()


def test_replica_whose_policy_asks_for_zones_later_recognises_reports_of_pods_that_it_knew_before(
    scheduler: ExtendedScheduler,
) -> None:
    plane, text = scheduler.plane, scheduler.policy.read_text()
    policy = scheduler.policy.with_name("later.yaml")
    policy.write_text(text.replace("numa: Required", "hot: {cpu: 0.8}"))
    scheduler.start_extender(OTHER, policy=policy)

    def find_zones() -> list[int] | None:
        found: list[int] | None = scheduler.nodes(OTHER)["warm-2"]["numaCpuMillis"]
        return found

    try:
        amounts = {"cpu": "2", "memory": "1Gi"}
        guaranteed = [{"name": "c", "image": "i", "resources": {"requests": amounts, "limits": amounts}}]
        scheduler.create("old", only="warm-2")
        assert scheduler.wait_until_bound("old") == "warm-2"
        plane.wait(lambda: scheduler.nodes(OTHER)["warm-2"]["assumedPods"], "the Pod", OTHER)
        assert find_zones() is None
        plane.apply(topology("warm-2", "8", "8"))
        policy.write_text(text)
        plane.wait(lambda: find_zones() == [8000] * 2, "the zones", OTHER)
        scheduler.create("new", "batch", containers=guaranteed, only="warm-2")
        assert scheduler.wait_until_bound("new") == "warm-2"
        plane.apply(topology("warm-2", "6", "8", fingerprint=compute_fingerprint(hash_pods(scheduler, "warm-2"))))
        plane.wait(lambda: find_zones() == [6000, 8000], "the report", OTHER)
    finally:
        scheduler.stop_extender(OTHER)
        scheduler.delete_all()
