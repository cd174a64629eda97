"""Rest: the state after all faults, in which nothing is on its way any more."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.acts import Workload
from tests.chaos.api_calls import ApiCalls
from tests.chaos.forms import PODGATE, SERVERS
from tests.chaos.lab import Lab
from tests.chaos.policies import NAMESPACES, hash_policy

Json = dict[str, Any]
_POLL_SECONDS = 1.0
_STEADY = 3
"""In so many polls, one after another, nothing is missing."""
TOUCH_AFTER_SECONDS, _TOUCH_EVERY_SECONDS = 90.0, 20.0
_NUDGE_EVERY_SECONDS = 8.0
_MERGE = "application/merge-patch+json"
_APPS = "/apis/apps/v1"


@dataclass
class Found:
    """What a poll has found."""

    workloads: list[Json] = field(default_factory=list)
    pods: list[Json] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


def wait_for_rest(
    lab: Lab,
    calls: ApiCalls,
    workload: Workload,
    policy: str,
    touch: Callable[[str, str, str], None],
    timeout_seconds: float,
) -> tuple[Found, float]:
    """Poll until nothing is missing for some seconds, or the time is over; return the last poll, and how long it took.

    Pods that wait for kwok are nudged. A controller of Kubernetes that failed often waits for minutes before it tries
    again: after a while, what is not complete is touched.
    """
    began, touched_at, nudged_at, steady = time.monotonic(), 0.0, 0.0, 0
    while True:
        found = look(lab, calls, workload, policy)
        waited = time.monotonic() - began
        steady = steady + 1 if not found.missing else 0
        if steady >= _STEADY or waited > timeout_seconds:
            return found, waited
        if waited - nudged_at > _NUDGE_EVERY_SECONDS:
            nudged_at = waited
            for pod in filter(_waits_for_its_node, found.pods):
                _nudge(calls, pod["metadata"]["namespace"], pod["metadata"]["name"])
        if waited > TOUCH_AFTER_SECONDS and waited - touched_at > _TOUCH_EVERY_SECONDS:
            touched_at = waited
            for kind, namespace, name in workload.sizes:
                if any(line.startswith(f"{kind} {namespace}/{name}") for line in found.missing):
                    touch(kind, namespace, name)
        time.sleep(_POLL_SECONDS)


def _waits_for_its_node(pod: Json) -> bool:
    """Whether the next step is the kubelet's, which kwok simulates: it forgets Pods whose API server was away."""
    metadata, phase = pod["metadata"], pod.get("status", {}).get("phase")
    is_of_job = any(owner["kind"] == "Job" for owner in metadata.get("ownerReferences", ()))
    has_node = bool(pod["spec"].get("nodeName"))
    return has_node and (phase == "Pending" or "deletionTimestamp" in metadata or (phase == "Running" and is_of_job))


def _nudge(calls: ApiCalls, namespace: str, name: str) -> None:
    body = {"metadata": {"annotations": {"chaos/nudged": f"{time.time():.0f}"}}}
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"
    calls.ask("nudge", "Pod", namespace, name, "PATCH", path, body, _MERGE)


def look(lab: Lab, calls: ApiCalls, workload: Workload, policy: str) -> Found:
    found = Found()
    for namespace in NAMESPACES:
        found.pods += calls.list_items(f"/api/v1/namespaces/{namespace}/pods")
        for kind, plural in (
            ("Deployment", "deployments"),
            ("StatefulSet", "statefulsets"),
            ("ReplicaSet", "replicasets"),
        ):
            items = calls.list_items(f"{_APPS}/namespaces/{namespace}/{plural}")
            found.workloads += [{"kind": kind, **item} for item in items]
        jobs = calls.list_items(f"/apis/batch/v1/namespaces/{namespace}/jobs")
        found.workloads += [{"kind": "Job", **item} for item in jobs]
    found.missing += _list_unready(lab, policy)
    found.missing += _list_incomplete(found.workloads, workload)
    found.missing += _list_waiting(found.pods)
    return found


def _list_unready(lab: Lab, policy: str) -> Iterator[str]:
    for name, part in lab.parts.items():
        if not part.process.is_alive():
            yield f"{name} does not run"
    for name in PODGATE:
        if not lab.is_ready(name):
            yield f"{name} is not ready"
    for name in SERVERS:
        status = lab.read_status(name)
        if (status.get("policy") or {}).get("hash") != hash_policy(policy):
            yield f"{name} does not have policy {hash_policy(policy)} in force"


def _list_incomplete(workloads: Sequence[Json], wished: Workload) -> Iterator[str]:
    by_key = {(each["kind"], each["metadata"]["namespace"], each["metadata"]["name"]): each for each in workloads}
    for key, size in wished.sizes.items():
        kind, namespace, name = key
        text = f"{kind} {namespace}/{name}"
        if key not in by_key:
            yield f"{text}: absent"
            continue
        document = by_key[key]
        status, spec = document.get("status", {}), document["spec"]
        seen = status.get("observedGeneration", 0) >= document["metadata"]["generation"]
        counts = {name: status.get(name, 0) for name in ("replicas", "readyReplicas", "updatedReplicas")}
        if spec["replicas"] != size:
            yield f"{text}: {spec['replicas']} replicas are asked for, not {size}"
        elif not seen or any(count != size for count in counts.values()):
            yield f"{text}: {counts}, not {size}"
    for namespace, name in wished.jobs:
        job = by_key.get(("Job", namespace, name))
        if job is None:
            yield f"Job {namespace}/{name}: absent"
        elif job.get("status", {}).get("succeeded", 0) < job["spec"]["completions"]:
            yield f"Job {namespace}/{name}: {job.get('status', {})}"


def _list_waiting(pods: Sequence[Json]) -> Iterator[str]:
    for pod in pods:
        metadata = pod["metadata"]
        text = f"Pod {metadata['namespace']}/{metadata['name']}"
        if "deletionTimestamp" in metadata:
            yield f"{text}: is being deleted"
        elif pod["spec"].get("schedulingGates"):
            yield f"{text}: has the gate {pod['spec']['schedulingGates'][0]['name']}"
        elif pod.get("status", {}).get("phase") == "Pending":
            yield f"{text}: is Pending"
