"""Effective resources of Pods, by computed examples, and by the results of Kubernetes' own code.

Each line of `effective_resources.jsonl` is a random Pod, with what `PodRequests` and `PodLimits` of
k8s.io/component-helpers v0.36.3 return for it, with UseStatusResources and
InPlacePodLevelResourcesVerticalScalingEnabled.
"""

from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from webhook.core.kubernetes.effective_resources import apply_status
from webhook.core.kubernetes.pod import Pod
from webhook.core.kubernetes.pod_requests import Side, compute_total, parse_nano
from webhook.core.quota.pod_cost import compute_cost, compute_live_cost

Json = dict[str, Any]
GI = 2**30
NAMES = ("requests.memory", "limits.memory")
INFEASIBLE = [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]
DEFERRED = [{"type": "PodResizePending", "status": "True", "reason": "Deferred"}]
ENDED_FIRST = [{"type": "PodResizeInProgress", "status": "True", "reason": "Infeasible"}, *DEFERRED]


def memory(requests: str | None = None, limits: str | None = None) -> Json:
    given = {"requests": requests, "limits": limits}
    return {side: {"memory": amount} for side, amount in given.items() if amount is not None}


def container(name: str, requests: str, limits: str, **more: Any) -> Json:
    return {"name": name, "resources": memory(requests, limits), **more}


def reported(name: str, requests: str, limits: str, allocated: str | None = None) -> Json:
    allocation = {} if allocated is None else {"allocatedResources": {"memory": allocated}}
    return {"name": name, "resources": memory(requests, limits), **allocation}


def make_pod(spec: Json, status: Json) -> Pod:
    return msgspec.convert({"metadata": {}, "spec": spec, "status": status}, Pod)


def compute_gi(spec: Json, status: Json) -> tuple[float, float]:
    """Return the requests and limits of memory that count as live, in Gi."""
    pod = make_pod(spec, status)
    cost = compute_live_cost(pod, NAMES) or compute_cost(pod, NAMES)
    return cost["requests.memory"] / GI, cost["limits.memory"] / GI


ONE = {"containers": [container("c", "1Gi", "2Gi")]}
SIDECAR = container("s", "1Gi", "2Gi", restartPolicy="Always")
FIRST = container("i", "1Gi", "2Gi")


@pytest.mark.parametrize(
    ("spec", "status", "expected"),
    [
        (ONE, {}, (1, 2)),
        (ONE, {"containerStatuses": []}, (1, 2)),
        (ONE, {"containerStatuses": [{"name": "c"}]}, (1, 2)),
        (ONE, {"containerStatuses": [{"name": "c", "allocatedResources": {"memory": "9Gi"}}]}, (1, 2)),
        (ONE, {"containerStatuses": [reported("other", "9Gi", "9Gi")]}, (1, 2)),
        (ONE, {"containerStatuses": [reported("c", "5Gi", "6Gi", "1Gi")]}, (5, 6)),
        (ONE, {"containerStatuses": [reported("c", "1Gi", "2Gi", "5Gi")]}, (5, 2)),
        (ONE, {"containerStatuses": [reported("c", "512Mi", "1Gi", "512Mi")]}, (1, 2)),
        (ONE, {"containerStatuses": [reported("c", "512Mi", "1Gi", "768Mi")], "conditions": DEFERRED}, (1, 2)),
        (ONE, {"containerStatuses": [reported("c", "512Mi", "1Gi", "768Mi")], "conditions": INFEASIBLE}, (0.75, 1)),
        (ONE, {"containerStatuses": [reported("c", "512Mi", "1Gi")], "conditions": ENDED_FIRST}, (1, 2)),
        (ONE, {"containerStatuses": [reported("c", "5Gi", "6Gi")], "conditions": INFEASIBLE}, (5, 6)),
        (ONE, {"containerStatuses": [{"name": "c", "resources": {}}]}, (1, 2)),
        (ONE, {"containerStatuses": [{"name": "c", "resources": {}}], "conditions": INFEASIBLE}, (0, 0)),
        (
            {"containers": [{"name": "c", "resources": memory(limits="2Gi")}]},
            {"containerStatuses": [reported("c", "1Gi", "1Gi", "1Gi")]},
            (2, 2),
        ),
        ({**ONE, "initContainers": [SIDECAR]}, {"initContainerStatuses": [reported("s", "5Gi", "6Gi")]}, (6, 8)),
        ({**ONE, "initContainers": [FIRST]}, {"initContainerStatuses": [reported("i", "5Gi", "6Gi")]}, (1, 2)),
        (
            {"containers": [container("a", "1Gi", "2Gi"), container("b", "3Gi", "4Gi")], "overhead": {"memory": "1Gi"}},
            {"containerStatuses": [reported("b", "1Gi", "9Gi"), reported("a", "5Gi", "1Gi")]},
            (9, 12),
        ),
        (
            {**ONE, "resources": memory("3Gi", "4Gi")},
            {"containerStatuses": [reported("c", "5Gi", "6Gi")]},
            (3, 4),
        ),
        (
            {**ONE, "resources": memory("3Gi", "4Gi")},
            {"resources": memory("5Gi", "6Gi"), "allocatedResources": {"memory": "7Gi"}},
            (7, 6),
        ),
        (
            {**ONE, "resources": memory("3Gi", "4Gi")},
            {"resources": memory("1Gi", "2Gi"), "allocatedResources": {"memory": "2Gi"}, "conditions": INFEASIBLE},
            (2, 2),
        ),
    ],
)
def test_a_pod_counts_by_the_largest_of_asked_allocated_and_actual(
    spec: Json, status: Json, expected: tuple[float, float]
) -> None:
    assert compute_gi(spec, status) == expected


def test_random_pods_count_as_kubernetes_counts_them() -> None:
    lines = Path(__file__).with_name("effective_resources.jsonl").read_bytes().splitlines()
    for line in lines:
        document = msgspec.json.decode(line)
        pod = make_pod(document["spec"], document["status"])
        kept = apply_status(pod) or pod
        for side in get_args(Side):
            for name in ("cpu", "memory"):
                counted = parse_nano(document["counted"][side].get(name, "0"))
                assert compute_total(kept, side, name) == counted, f"{side} of {name}: {line.decode()}"
    assert len(lines) == 60


def test_a_status_that_shows_what_the_spec_asks_for_changes_nothing() -> None:
    statuses = [reported("c", "1Gi", "2Gi", "1Gi")]
    assert apply_status(make_pod(ONE, {"containerStatuses": statuses})) is None
    done = {"containerStatuses": statuses, "initContainerStatuses": [reported("s", "1Gi", "2Gi", "1Gi")]}
    assert apply_status(make_pod({**ONE, "initContainers": [SIDECAR]}, done)) is None


def test_an_amount_that_is_written_in_another_way_is_the_same_amount() -> None:
    status = {"containerStatuses": [reported("c", "1024Mi", "2048Mi", "1024Mi")]}
    assert compute_gi(ONE, status) == (1, 2)


def test_unreadable_amounts_of_a_status_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"^memory: 'much': not a Kubernetes quantity"):
        compute_live_cost(make_pod(ONE, {"containerStatuses": [reported("c", "much", "1Gi")]}), NAMES)
