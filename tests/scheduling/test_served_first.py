"""Which Pod is served first on a real kube-scheduler: gates, PriorityClasses and SLA classes, as the page says."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.scheduling.extender_server import SECOND, ExtendedScheduler

NODE = "warm-1"
GATES = {"schedulingGates": [{"name": "podgate.io/quota"}]}
GOLD, BRONZE = "watched", "web"
"""Services of these SLA classes."""


@pytest.fixture(autouse=True)
def cleaned(scheduler: ExtendedScheduler) -> Iterator[None]:
    yield
    scheduler.delete_all()


def create(
    scheduler: ExtendedScheduler, name: str, service: str, priority: str = "", cores: int = 40, **spec: Any
) -> None:
    """Create a Pod for a node of 64 cores: one of 40 fits there."""
    containers = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": str(cores)}}}]
    classes = {"priorityClassName": priority} if priority else {}
    scheduler.create(name, service, only=NODE, containers=containers, **classes, **spec)


def has_left(scheduler: ExtendedScheduler, name: str) -> bool:
    pod = scheduler.find_pod(name)
    return pod is None or "deletionTimestamp" in pod["metadata"]


def test_gated_pod_is_not_tried_and_evicts_nobody_and_goes_by_its_priority_class_once_it_is_released(
    scheduler: ExtendedScheduler,
) -> None:
    create(scheduler, "gated", BRONZE, "high", **GATES)
    create(scheduler, "later", GOLD, "low")
    assert scheduler.wait_until_bound("later") == NODE, "no room is kept for a gated Pod"
    [condition] = scheduler.find_pod("gated")["status"]["conditions"]
    assert condition["reason"] == "SchedulingGated"
    assert not scheduler.record("gated"), "the extender was not asked either"
    assert not has_left(scheduler, "later")
    scheduler.patch("gated", {"spec": {"schedulingGates": None}})
    assert scheduler.wait_until_bound("gated") == NODE
    assert scheduler.find_pod("later") is None


def test_newer_pod_of_higher_priority_goes_first_also_after_one_of_a_higher_sla_class_that_was_released_first(
    scheduler: ExtendedScheduler,
) -> None:
    scheduler.plane.processes.stop(SECOND)
    create(scheduler, "gold", GOLD, "low", **GATES)
    create(scheduler, "bronze", BRONZE, "patient", **GATES)
    for name in ("gold", "bronze"):
        scheduler.patch(name, {"spec": {"schedulingGates": None}})
    scheduler.start_scheduler()
    assert scheduler.wait_until_bound("bronze") == NODE
    assert "Insufficient cpu" in scheduler.wait_until_refused("gold")


def test_pod_that_does_not_fit_is_passed_by_one_of_lower_priority_which_takes_the_room(
    scheduler: ExtendedScheduler,
) -> None:
    """It may not evict others, by its PriorityClass."""
    create(scheduler, "running", BRONZE, "low", cores=30)
    assert scheduler.wait_until_bound("running") == NODE
    create(scheduler, "waiting", BRONZE, "patient")
    assert "Insufficient cpu" in scheduler.wait_until_refused("waiting")
    create(scheduler, "small", BRONZE, "low", cores=20)
    assert scheduler.wait_until_bound("small") == NODE
    assert not scheduler.find_node("waiting")
    assert not has_left(scheduler, "running")


def test_pod_of_a_higher_sla_class_evicts_nobody_without_a_higher_priority(scheduler: ExtendedScheduler) -> None:
    create(scheduler, "bronze", BRONZE, "low")
    assert scheduler.wait_until_bound("bronze") == NODE
    create(scheduler, "gold", GOLD)
    assert "Insufficient cpu" in scheduler.wait_until_refused("gold")
    assert not has_left(scheduler, "bronze")
    create(scheduler, "prior", GOLD, "high")
    assert scheduler.wait_until_bound("prior") == NODE
    assert scheduler.find_pod("bronze") is None


@pytest.mark.parametrize("pops_backoff", [True, False])
def test_refused_pod_waits_out_its_backoff_before_1_33_while_a_lower_one_takes_the_room(
    scheduler: ExtendedScheduler, *, pops_backoff: bool
) -> None:
    """The feature is on from 1.33: a scheduler that has nothing else to do does not wait."""
    scheduler.plane.processes.stop(SECOND)
    scheduler.start_scheduler(
        f"--feature-gates=SchedulerPopFromBackoffQ={str(pops_backoff).lower()}", backoff_seconds=600
    )
    try:
        create(scheduler, "first", BRONZE, "high")
        assert scheduler.wait_until_bound("first") == NODE
        create(scheduler, "refused", BRONZE, "high")
        assert "Insufficient cpu" in scheduler.wait_until_refused("refused")
        scheduler.plane.delete("/api/v1/namespaces/shop/pods/first?gracePeriodSeconds=0")
        if pops_backoff:
            assert scheduler.wait_until_bound("refused") == NODE
        else:
            create(scheduler, "lower", BRONZE, "low")
            assert scheduler.wait_until_bound("lower") == NODE
            assert not scheduler.find_node("refused")
    finally:
        scheduler.plane.processes.stop(SECOND)
        scheduler.start_scheduler()
