"""Replay record: one event of `replay` per review, with only the fields that policies read.

This module lists the recorded fields one by one, so that environment, arguments, commands, volumes, images and other
annotations can never be recorded. Labels, names and selectors are recorded unchanged, because policies match them.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from webhook.core.admission.mutation import HASH_ANNOTATION
from webhook.core.admission.review import Request
from webhook.core.breaker.outcome_types import Outcomes
from webhook.core.kubernetes.pod import (
    MIRROR_ANNOTATION,
    Container,
    OwnerReference,
    Pod,
    PodMetadata,
    PodSpec,
    Resources,
)

_HASH = re.compile(r"[0-9a-f]{16}")
_SECOND_US = 1_000_000
LONGEST_MEAN_SECONDS = 3600
"""Largest mean in a line of `outcomes`: the sum over two million requests in microseconds stays exact in a double."""
_PLACEMENT = {
    "schedulerName": "scheduler_name",
    "nodeName": "node_name",
    "nodeSelector": "node_selector",
    "affinity": "affinity",
    "tolerations": "tolerations",
    "topologySpreadConstraints": "topology_spread_constraints",
    "priorityClassName": "priority_class_name",
    "priority": "priority",
    "preemptionPolicy": "preemption_policy",
    "runtimeClassName": "runtime_class_name",
    "schedulingGates": "scheduling_gates",
    "overhead": "overhead",
}
"""Fields of `spec` that are recorded whole, by their name in Kubernetes."""


def is_kept(request: Request) -> bool:
    """Whether a review is recorded: a new Pod, or a resize. Other updates are not charged."""
    if request.pod is None or request.workload is not None:
        return False
    return request.operation == "CREATE" or request.sub_resource == "resize"


def pod_event(request: Request, at_us: int) -> dict[str, Any]:
    """Return the event of a request that `is_kept`; `at_us` counts from the start of the record."""
    pod = request.pod
    if pod is None:
        raise ValueError("a request without a Pod is no event")
    event = {
        "at": at_us / _SECOND_US,
        "pod": _pod(pod),
        "namespace": request.namespace,
        "uid": pod.metadata.uid,
        "dryRun": request.dry_run,
        "user": request.user,
    }
    if request.operation != "CREATE":
        event |= {"operation": request.operation, "subResource": request.sub_resource}
    if request.old_pod is not None:
        event["oldPod"] = _pod(request.old_pod)
    return {name: value for name, value in event.items() if value or name in {"at", "pod"}}


def outcomes_event(service: str, reported: Outcomes, at_us: int) -> dict[str, Any]:
    """Return the event of a Pod's outcome, or of sums of requests. Without the generation: a replay has its own."""
    total = reported.succeeded + reported.failed
    latency = min(reported.latency_us / total / _SECOND_US, LONGEST_MEAN_SECONDS) if total else 0
    if reported.uid is not None:
        outcome = {"service": service, "ok": not reported.failed, "latency": latency, "uid": reported.uid}
        return {"at": at_us / _SECOND_US, "outcome": outcome}
    sums = {"service": service, "succeeded": reported.succeeded, "failed": reported.failed, "latency": latency}
    return {"at": at_us / _SECOND_US, "outcomes": sums}


def labels_event(namespace: str, labels: Mapping[str, str], at_us: int) -> dict[str, Any]:
    return {"at": at_us / _SECOND_US, "namespaceLabels": {namespace: labels}}


def _pod(pod: Pod) -> dict[str, Any]:
    return {"metadata": _metadata(pod.metadata), "spec": _spec(pod.spec)}


def _metadata(metadata: PodMetadata) -> dict[str, Any]:
    annotations = metadata.annotations or {}
    kept = {}
    if _HASH.fullmatch(annotations.get(HASH_ANNOTATION, "")):
        kept[HASH_ANNOTATION] = annotations[HASH_ANNOTATION]
    if MIRROR_ANNOTATION in annotations:
        kept[MIRROR_ANNOTATION] = ""  # its presence matters, not its value
    return _given(
        name=metadata.name,
        generateName=metadata.generate_name,
        namespace=metadata.namespace,
        uid=metadata.uid,
        labels=metadata.labels,
        annotations=kept,
        ownerReferences=[_owner(reference) for reference in metadata.owner_references or ()],
    )


def _owner(reference: OwnerReference) -> dict[str, Any]:
    return _given(kind=reference.kind, name=reference.name, uid=reference.uid, controller=reference.controller)


def _spec(spec: PodSpec) -> dict[str, Any]:
    found = {name: getattr(spec, attribute) for name, attribute in _PLACEMENT.items()}
    kept = {name: value for name, value in found.items() if value is not None}
    kept["containers"] = _containers(spec.containers or ())
    if spec.init_containers:
        kept["initContainers"] = _containers(spec.init_containers)
    if spec.resources is not None:
        kept["resources"] = _resources(spec.resources)
    return kept


def _containers(containers: Iterable[Container]) -> list[dict[str, Any]]:
    return [
        _given(
            name=container.name,
            resources=None if container.resources is None else _resources(container.resources),
            restartPolicy=container.restart_policy,
        )
        for container in containers
    ]


def _resources(resources: Resources) -> dict[str, Any]:
    return _given(requests=resources.requests, limits=resources.limits)


def _given(**fields: Any) -> dict[str, Any]:
    """Leave out empty values: decisions treat them as absent."""
    return {name: value for name, value in fields.items() if value}
