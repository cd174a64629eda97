"""Rollout of a Deployment: whether it is complete, and what delays it."""

from collections.abc import Iterable, Iterator

from webhook.core.installation.objects import Json


def is_complete(deployment: Json) -> bool:
    """Return whether all replicas are of the current template, and available."""
    status, replicas = deployment.get("status") or {}, deployment["spec"].get("replicas", 1)
    is_observed = status.get("observedGeneration", 0) >= deployment["metadata"].get("generation", 0)
    counts = (status.get(key, 0) for key in ("updatedReplicas", "replicas", "availableReplicas"))
    return is_observed and all(count == replicas for count in counts)


def delays(deployment: Json, pods: Iterable[Json]) -> str:
    """Return why a rollout is not complete."""
    status = deployment.get("status") or {}
    counted = f"{status.get('availableReplicas', 0)} of {deployment['spec'].get('replicas', 1)} replicas are available"
    reasons = dict.fromkeys([*_failures(status), *(reason for pod in pods for reason in _waits(pod))])
    return "; ".join([counted, *reasons])


def _failures(status: Json) -> Iterator[str]:
    for one in status.get("conditions") or ():
        if one["type"] == "ReplicaFailure" and one["status"] == "True":
            yield str(one["message"])


def _waits(pod: Json) -> Iterator[str]:
    status = pod.get("status") or {}
    for one in status.get("conditions") or ():
        if one["type"] == "PodScheduled" and one["status"] == "False":
            yield str(one.get("message", "not scheduled"))
    for one in status.get("containerStatuses") or ():
        waiting = (one.get("state") or {}).get("waiting")
        if waiting:
            yield ": ".join(filter(None, (waiting.get("reason", ""), waiting.get("message", ""))))
