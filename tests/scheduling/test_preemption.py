"""Preemption on a real kube-scheduler, while the measured load of the node stays as it was before the eviction."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.scheduling.extender_server import EXTENDER, NAMESPACE, SECOND, ExtendedScheduler
from tests.scheduling.node_exporter import HOT_CORES, NodeExporters

HELD = "podgate.io/test"
ASKED, OTHER = "extender-of-victims", "extender-of-victims-2"
"""Replicas whose average falls as slowly as a busy machine needs for these tests."""


@pytest.fixture(scope="module", autouse=True)
def replicas(
    scheduler: ExtendedScheduler, exporters: NodeExporters, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Let the scheduler ask the first of these replicas."""
    policy = tmp_path_factory.mktemp("victims") / "policy.yaml"
    text = scheduler.policy.read_text().replace("window: 4s", "window: 12s").replace("every: 2s", "every: 6s")
    policy.write_text(text)
    for replica in (ASKED, OTHER):
        scheduler.start_extender(replica, policy=policy)
    ask_replica(scheduler, ASKED)
    yield
    ask_replica(scheduler, EXTENDER)
    for replica in (ASKED, OTHER):
        scheduler.stop_extender(replica)
    exporters.set("hot", cores=HOT_CORES)
    scheduler.plane.wait(lambda: scheduler.nodes()["hot"]["cpuShare"] > 1, "the load as before", EXTENDER)


@pytest.fixture(autouse=True)
def hot_node(scheduler: ExtendedScheduler, exporters: NodeExporters) -> None:
    """Wait until the node is as hot as all tests expect."""
    exporters.set("hot", cores=60.0)
    wait = scheduler.plane.wait
    for replica in (ASKED, OTHER):
        wait(lambda replica=replica: 55_000 < read_millis(scheduler, replica) < 65_000, "the node to be hot", replica)


def ask_replica(scheduler: ExtendedScheduler, replica: str) -> None:
    scheduler.balance(replica)
    scheduler.balancer.cut()


def read_millis(scheduler: ExtendedScheduler, replica: str) -> float:
    """Return the measured load of the node, 0 while there is none."""
    load = scheduler.nodes(replica)["hot"]["load"]
    return 0.0 if load is None else float(load["cpu_millis"])


def is_measured_hot(scheduler: ExtendedScheduler, replica: str) -> bool:
    """Whether the measured load of the node alone is above the threshold."""
    return read_millis(scheduler, replica) > 0.8 * 64_000


def ask(requests: str, limits: str = "") -> list[dict[str, Any]]:
    resources = {"requests": {"cpu": requests}} | ({"limits": {"cpu": limits}} if limits else {})
    return [{"name": "c", "image": "i", "resources": resources}]


def run_on_hot(scheduler: ExtendedScheduler, name: str, priority: str, requests: str, limits: str = "") -> None:
    """Run a Pod on the hot node, whose service refuses none."""
    scheduler.create(name, "watched", containers=ask(requests, limits), priorityClassName=priority, only="hot")
    assert scheduler.wait_until_bound(name) == "hot"


def wait_until_measured(scheduler: ExtendedScheduler) -> None:
    """Wait until the load of the Pods is no longer assumed, but taken to be measured."""

    def is_measured() -> bool:
        return not any(scheduler.nodes(replica)["hot"]["assumedPods"] for replica in (ASKED, OTHER))

    scheduler.plane.wait(is_measured, "the load to settle", ASKED)


def count_preempted(scheduler: ExtendedScheduler) -> Counter[str]:
    """Return how many Events of its preemption each Pod has, by name."""
    events = (scheduler.plane.api.get(f"/api/v1/namespaces/{NAMESPACE}/events") or {})["items"]
    return Counter(event["involvedObject"]["name"] for event in events if event["reason"] == "Preempted")


def test_pod_whose_own_load_makes_the_node_hot_is_evicted_once_and_the_preemptor_runs_there(
    scheduler: ExtendedScheduler,
) -> None:
    run_on_hot(scheduler, "heater", "low", "60")
    wait_until_measured(scheduler)
    scheduler.create("preemptor", containers=ask("60"), priorityClassName="high", only="hot")
    assert scheduler.wait_until_bound("preemptor") == "hot"
    assert is_measured_hot(scheduler, ASKED), "it is measured as before"
    assert scheduler.find_pod("heater") is None
    scheduler.plane.wait(lambda: count_preempted(scheduler)["heater"], "the Event", SECOND)
    assert count_preempted(scheduler)["heater"] == 1
    scheduler.create("next", containers=ask("1"), only="hot")
    assert "1 node(s) above the cpu hot threshold 0.8" in scheduler.wait_until_refused("next")
    scheduler.delete_all()


def wait_until_nominated(scheduler: ExtendedScheduler) -> None:
    """Let a preemptor be nominated for the hot node, on which its victim stays until its finalizer is removed."""
    run_on_hot(scheduler, "leaving", "low", "60")
    wait_until_measured(scheduler)
    scheduler.patch("leaving", {"metadata": {"finalizers": [HELD]}})
    scheduler.create("preemptor", containers=ask("60"), priorityClassName="high", only="hot")

    def is_nominated() -> bool:
        return bool(scheduler.find_pod("preemptor")["status"].get("nominatedNodeName") == "hot")

    scheduler.plane.wait(is_nominated, "the nomination", SECOND)
    scheduler.plane.wait(
        lambda: "deletionTimestamp" in scheduler.find_pod("leaving")["metadata"], "the eviction", SECOND
    )
    assert not scheduler.find_node("preemptor")


def test_preemptor_waits_for_a_victim_in_its_grace_period_and_runs_once_it_is_gone(
    scheduler: ExtendedScheduler,
) -> None:
    wait_until_nominated(scheduler)
    scheduler.patch("leaving", {"metadata": {"finalizers": None}})
    assert scheduler.wait_until_bound("preemptor") == "hot"
    assert count_preempted(scheduler)["leaving"] == 1
    scheduler.delete_all()


def test_preemptor_that_needs_the_room_of_two_evicts_two_and_runs(scheduler: ExtendedScheduler) -> None:
    """Its own load counts, too: in the place of one of them alone the node would stay hot."""
    for number in range(3):
        run_on_hot(scheduler, f"low-{number}", "low", "20")
    wait_until_measured(scheduler)
    scheduler.create("preemptor", containers=ask("25"), priorityClassName="high", only="hot")
    assert scheduler.wait_until_bound("preemptor") == "hot"
    assert is_measured_hot(scheduler, ASKED), "it is measured as before"
    assert sum(scheduler.find_pod(f"low-{number}") is not None for number in range(3)) == 1
    scheduler.delete_all()


def test_nobody_is_evicted_where_others_make_the_node_hot(scheduler: ExtendedScheduler) -> None:
    run_on_hot(scheduler, "other", "high", "4", "62")
    run_on_hot(scheduler, "bystander", "low", "58")
    wait_until_measured(scheduler)
    scheduler.create("preemptor", containers=ask("58"), priorityClassName="high", only="hot")
    assert "Insufficient cpu" in scheduler.wait_until_refused("preemptor")
    assert "deletionTimestamp" not in scheduler.find_pod("bystander")["metadata"]
    assert not count_preempted(scheduler)["bystander"]
    scheduler.delete_all()


def test_nobody_is_evicted_from_a_hot_node_that_has_room_for_what_the_pod_requests(
    scheduler: ExtendedScheduler,
) -> None:
    """kube-scheduler evicts for what its own filters refuse; it asks the extender only about such evictions."""
    run_on_hot(scheduler, "bystander", "low", "30", "60")
    wait_until_measured(scheduler)
    scheduler.create("preemptor", containers=ask("20"), priorityClassName="high", only="hot")
    said = scheduler.wait_until_refused("preemptor")
    assert "1 node(s) above the cpu hot threshold 0.8" in said
    assert "Preemption is not helpful for scheduling" in said
    assert "deletionTimestamp" not in scheduler.find_pod("bystander")["metadata"]
    scheduler.delete_all()


def test_replica_that_was_not_asked_before_passes_the_preemptor_too(scheduler: ExtendedScheduler) -> None:
    wait_until_nominated(scheduler)
    assert scheduler.record("preemptor", ASKED)["preempt"]["passed"] == 1
    ask_replica(scheduler, OTHER)
    scheduler.patch("leaving", {"metadata": {"finalizers": None}})
    assert scheduler.wait_until_bound("preemptor") == "hot"
    assert scheduler.record("preemptor", OTHER)["filter"]["passed"] == 1
    assert is_measured_hot(scheduler, OTHER)
    ask_replica(scheduler, ASKED)
    scheduler.delete_all()
