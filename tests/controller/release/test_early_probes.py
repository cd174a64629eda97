"""Early probes of a queue: which Pods that wait at an open breaker are tried before the end of `openFor`."""

import pytest

from tests.controller.release.queue_simulation import QueueSimulation
from webhook.core.breaker.states import State
from webhook.core.kubernetes.pod import OwnerReference
from webhook.core.quota import Acquire

TRIPPED = """
- name: web
  match: {namespaces: [shop]}
  quota: {windows: [{window: 10s, hard: {pods: 2}}], whenExceeded: Deny}
  breaker:
    quotaExceeded: {count: 2, within: 1m, countBy: Request}
    openFor: 30m
    halfOpen: {probes: 3}
    whenOpen: Queue
"""
FAILED = "replicaset-1"


async def trip() -> QueueSimulation:
    """Return a queue at a breaker that the Pods of one ReplicaSet have opened; the quota has room again."""
    queue = QueueSimulation(TRIPPED)
    plan = queue.policy.plans["web"]
    for number in range(5):
        receipt = await queue.store.acquire(Acquire(plan, "shop", f"{number}", {"pods": 1}, f"controller:{FAILED}"))
    assert receipt.breaker is not None
    assert receipt.breaker.state is State.OPEN
    await queue.run_rounds(15)
    return queue


@pytest.mark.parametrize(
    ("api_version", "kind", "uid", "released"),
    [
        ("apps/v1", "ReplicaSet", FAILED, []),
        ("apps/v1", "ReplicaSet", "replicaset-2", ["a"]),
        ("batch/v1", "Job", "job-1", ["a"]),
        ("v1", "ConfigMap", "settings", []),
        ("example.com/v1", "ReplicaSet", "replicaset-2", []),
        ("apps/v9", "ReplicaSet", "replicaset-2", []),
    ],
)
async def test_only_pods_of_controllers_of_kubernetes_without_a_part_in_the_failures_are_early(
    api_version: str, kind: str, uid: str, released: list[str]
) -> None:
    """Kubernetes deletes a Pod whose ReplicaSet or Job does not exist or has enough; with other kinds it may not."""
    queue = await trip()
    owner = OwnerReference(api_version, kind, "w", uid, controller=True)
    await queue.create("a", owners=(owner,))
    await queue.run_rounds(12)
    assert queue.gates.ungated == released
