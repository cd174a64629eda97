"""With `rebalance`, Pods return to their variant and fill holes one by one, as budgets allow; slots are in memory."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.controller_fixture import MEMORY, ControllerFixture, controller_fixture
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
from tests.timeouts import HANG_SECONDS

NAMESPACE = "shares-return"
BUDGETS = f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets"


@pytest.fixture(scope="module")
def running(plane: ControlPlane, identities: Identities) -> Iterator[ControllerFixture]:
    """Install Podgate with one server, which counts in memory and leads itself."""
    policy = build_policy({"web": [NAMESPACE]}, unschedulableFor="30s", openFor="30s", rebalance=True)
    with two_kinds_of_nodes(plane), controller_fixture(plane, identities, policy, [NAMESPACE], MEMORY) as fixture:
        yield fixture


def cordon(plane: ControlPlane, *, on: bool) -> None:
    for number in (1, 2):
        patch = {"spec": {"unschedulable": on}}
        answer = plane.api.request("PATCH", f"/api/v1/nodes/{SPOT}-{number}", patch, "application/merge-patch+json")
        assert answer[0] == 200, answer


def list_reasons(plane: ControlPlane) -> set[str]:
    events = plane.api.get(f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events")["items"]
    return {event["reason"] for event in events if event["regarding"]["kind"] == "Pod"}


def create_budget(plane: ControlPlane, name: str, pods_max: int) -> None:
    spec = {"maxUnavailable": pods_max, "selector": {"matchLabels": {"app": name}}}
    document: dict[str, Any] = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}}
    status, answer = plane.api.request("POST", BUDGETS, {**document, "spec": spec})
    assert status == 201, answer


def test_pods_return_to_a_variant_that_is_back_one_by_one_as_a_budget_allows(running: ControllerFixture) -> None:
    plane, workload = running.plane, Workload(running, "Deployment", NAMESPACE, "returns", 5)
    split = SPLIT.count_by_variant(5)
    cordon(plane, on=True)
    try:
        workload.create()
        workload.wait(HANG_SECONDS)
        assert workload.count_variants() == {SPOT: 0, ON_DEMAND: 5}
    finally:
        cordon(plane, on=False)
    create_budget(plane, "returns", 0)
    probe = Workload(running, "Deployment", NAMESPACE, "probes", 3)

    def is_back() -> bool:
        """Return whether a probe has closed the breaker; each new Pod of spot nodes may be one."""
        probe.roll_out()
        probe.wait()
        return probe.count_variants()[SPOT] > 0

    probe.create()
    probe.wait()
    plane.wait(is_back, "a probe to be bound", timeout_seconds=HANG_SECONDS)
    plane.wait(lambda: plane.api.get(f"{BUDGETS}/returns")["status"]["expectedPods"] == 5, "the budget to be known")
    assert workload.count_variants() == {SPOT: 0, ON_DEMAND: 5}, "its budget allows no disruption"
    plane.api.request("DELETE", f"{BUDGETS}/returns")
    create_budget(plane, "returns", 1)
    lowest = 5

    def has_returned() -> bool:
        nonlocal lowest
        lowest = min(lowest, plane.api.get(workload.path)["status"].get("readyReplicas", 0))
        return workload.is_at_rest() and workload.count_variants() == split

    plane.wait(has_returned, "all Pods to return", timeout_seconds=HANG_SECONDS)
    assert lowest >= 4
    assert workload.list_slots() == [1, 2, 3, 4, 5]
    assert list_reasons(plane) >= {"VariantOpen", "VariantBack"}


def test_a_hole_that_a_scale_down_of_unready_pods_has_left_is_filled(running: ControllerFixture) -> None:
    """The split of 8 Pods has 3 on demand: the highest slot of these is given up for a lower one of spot nodes."""
    workload = Workload(running, "Deployment", NAMESPACE, "holed", 10)
    workload.create()
    workload.wait()
    shrink_while_not_ready(workload, 8)
    assert workload.list_slots() == [1, 2, 5, 6, 7, 8, 9, 10]
    running.plane.wait(
        lambda: workload.is_at_rest() and not workload.describe(), "the split to be exact", timeout_seconds=HANG_SECONDS
    )
    assert workload.list_slots() == [1, 2, 3, 5, 6, 7, 8, 9]
    running.plane.wait(lambda: "VariantHole" in list_reasons(running.plane), "the Event of the eviction")
