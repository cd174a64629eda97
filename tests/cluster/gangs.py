"""Gangs of the storm: groups of Pods of several kinds, and the objects that make them."""

from dataclasses import dataclass
from hashlib import sha256
from random import Random
from typing import Any

from tests.cluster.groups import CONTAINERS
from tests.cluster.pod_log import GROUP, INDEX

CLASSES = ("gold", "silver", "bronze")
POOLS = ("left", "right")
KINDS = ("Job", "NonIndexedJob", "JobSet", "Annotations", "Kueue")
PLAIN = frozenset({"Annotations", "Kueue"})
"""Kinds whose Pods nobody replaces but the test."""
_JOB_SET = "jobset.sigs.k8s.io/"
_NO_GRACE = {"terminationGracePeriodSeconds": 0, "containers": CONTAINERS}


@dataclass(frozen=True)
class Gang:
    """A group of `size` Pods of a service."""

    name: str
    kind: str
    pool: str
    sla_class: str
    size: int

    @property
    def namespace(self) -> str:
        return build_namespace(self.pool, self.sla_class)


def build_namespace(pool: str, sla_class: str) -> str:
    return f"storm-{pool}-{sla_class}"


def build_policy(hard: int, window_seconds: int) -> str:
    """Return a policy of two pools, each with a service of each class."""
    window = f"{{window: {window_seconds}s, hard: {{pods: {hard}}}}}"
    pools = "".join(f"- {{name: {pool}, windows: [{window}], whenExceeded: Queue}}\n" for pool in POOLS)
    services = "".join(
        f"- {{name: {pool}-{name}, match: {{namespaces: [{build_namespace(pool, name)}]}}, pool: {pool},"
        f" slaClass: {name}}}\n"
        for pool in POOLS
        for name in CLASSES
    )
    groups = "groups: {from: [Annotations, Kueue, JobSet, Job]}"
    queue = f"{{maxPods: 5000, maxWait: 2h, whenExpired: Keep, ageing: 1h, {groups}}}"
    return (
        f"apiVersion: podgate.io/v1alpha1\nkind: Policy\npools:\n{pools}"
        f"defaults: {{failureMode: Closed, quota: {{whenExceeded: Queue, queue: {queue}}}}}\nservices:\n{services}"
    )


def draw_gangs(random: Random, count: int, size_max: int) -> list[Gang]:
    """Draw gangs of all kinds, classes and pools; one has 2 Pods, one the most."""
    sizes = [2, size_max, *(min(size_max, round(2 * (size_max / 2) ** random.random())) for _ in range(count - 2))]
    random.shuffle(sizes)
    return [
        Gang(
            f"gang-{number}",
            KINDS[number % len(KINDS)],
            POOLS[number // len(KINDS) % len(POOLS)],
            random.choice(CLASSES),
            max(2, size),
        )
        for number, size in enumerate(sizes)
    ]


def build_pod(gang: Gang, index: int, name: str) -> dict[str, Any]:
    """Return a Pod of a plain group."""
    labels, annotations = {GROUP: gang.name, INDEX: str(index)}, dict[str, str]()
    if gang.kind == "Kueue":
        labels |= {"kueue.x-k8s.io/pod-group-name": gang.name, "kueue.x-k8s.io/pod-group-pod-index": str(index)}
        annotations = {"kueue.x-k8s.io/pod-group-total-count": str(gang.size)}
    else:
        annotations = {
            "podgate.io/group": gang.name,
            "podgate.io/group-size": str(gang.size),
            "podgate.io/group-index": str(index),
        }
    metadata = {"name": name, "namespace": gang.namespace, "labels": labels, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": _NO_GRACE}


def build_job(gang: Gang, name: str, pods: int, keys: dict[str, str] | None = None) -> dict[str, Any]:
    """Return a Job, whose members may be deleted often. `keys` are labels and annotations of its Pods."""
    template = {"labels": {GROUP: gang.name, **(keys or {})}, "annotations": keys or {}}
    spec = {
        "parallelism": pods,
        "completions": pods,
        "backoffLimit": 1000,
        "completionMode": "NonIndexed" if gang.kind == "NonIndexedJob" else "Indexed",
        "template": {"metadata": template, "spec": {"restartPolicy": "Never", **_NO_GRACE}},
    }
    document = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": gang.namespace}}
    return {**document, "spec": spec}


def build_job_set(gang: Gang) -> dict[str, Any]:
    """Return a JobSet of two Jobs: a driver of one Pod, and workers."""
    replicated = [
        {"name": name, "replicas": 1, "template": {"spec": {"parallelism": pods, "completions": pods}}}
        for name, pods in list_replicated(gang)
    ]
    metadata = {"name": gang.name, "namespace": gang.namespace}
    kind = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata}
    return {**kind, "spec": {"replicatedJobs": replicated}}


def list_replicated(gang: Gang) -> list[tuple[str, int]]:
    """Return the Jobs of a JobSet by name, with the numbers of their Pods."""
    return [("driver", 1), ("worker", gang.size - 1)]


def build_replicated_job(gang: Gang, job: str, pods: int, uid: str) -> dict[str, Any]:
    """Return a Job as the JobSet controller writes it: the same keys as labels and as annotations of its Pods."""
    name = f"{gang.name}-{job}-0"
    keys = {
        "jobset-name": gang.name,
        "jobset-uid": uid,
        "replicatedjob-name": job,
        "replicatedjob-replicas": "1",
        "global-replicas": "2",
        "job-index": "0",
        "job-global-index": "1" if job == "worker" else "0",
        "job-key": sha256(f"{gang.namespace}/{name}".encode()).hexdigest()[:40],
        "restart-attempt": "0",
    }
    both = {f"{_JOB_SET}{key}": value for key, value in keys.items()}
    return build_job(gang, name, pods, both)
