"""First policy of a cluster: a service for each namespace with workloads, all in Audit, from what exists now."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from webhook.core.kubernetes.controllers import name_workload
from webhook.core.kubernetes.name_patterns import matches_any
from webhook.core.kubernetes.pod import MIRROR_ANNOTATION, Pod
from webhook.core.pods.start_outcome import read_created_us
from webhook.core.policy.model import BUILT_IN_EXEMPT_NAMESPACES
from webhook.core.policy_fields import Mode
from webhook.core.quota import STANDING
from webhook.core.quota.pod_cost import compute_cost
from webhook.core.suggestion.limits import LimitSuggestion, add_headroom
from webhook.core.suggestion.observed_use import UseHistory

EXEMPT_NAMESPACES = ("kube-*", "podgate-system")
ALL_AUDIT = dict.fromkeys(("placement", "resources", "quota", "breaker", "scheduling"), Mode.AUDIT.value)
_COUNTED = ("pods", "requests.cpu", "requests.memory")
_WINDOWS = {"1m": (60, 1), "1h": (3600, 2)}
"""Windows with their seconds, and how often all workloads may create their Pods in them."""
_ENDED = frozenset({"Succeeded", "Failed"})
_ENDS = frozenset({"Complete", "Failed"})
"""Conditions of a Job that will create no more Pods; only a complete one has a `completionTime`."""


class FirstService(Struct, frozen=True):
    """The service of one namespace, and what was seen there."""

    namespace: str
    limits: tuple[LimitSuggestion, ...]
    workloads: Mapping[str, int]
    """How many there are of each kind."""
    wanted: int
    """The Pods that they run when all run at once."""
    live: int
    schedules: tuple[str, ...]
    """CronJobs with their schedules: their Pods are rarely seen."""


class SeenNamespace:
    """What one namespace contains now: workloads with the Pods that they want, and Pods."""

    def __init__(self) -> None:
        self.workloads: Counter[str] = Counter()
        self._wanted = 0
        self._schedules: list[str] = []
        self._live: Counter[str] = Counter()
        self._created: list[tuple[int, str]] = []

    @property
    def is_empty(self) -> bool:
        return not (self.workloads or self._created)

    def add_workload(self, kind: str, document: Mapping[str, Any]) -> None:
        """Add an object that creates Pods. Pods of DaemonSets are exempt; a ReplicaSet of a Deployment adds none."""
        metadata, spec = document["metadata"], document.get("spec") or {}
        if kind == "DaemonSet" or any(owner.get("controller") for owner in metadata.get("ownerReferences") or ()):
            return
        if kind == "CronJob":
            self._schedules.append(f"{metadata['name']} ({spec.get('schedule', '')})")
        self.workloads[kind] += 1
        self._wanted += _count_wanted(kind, spec, document.get("status") or {})

    def add_pod(self, document: Mapping[str, Any]) -> None:
        """Add a Pod. ValueError: an unreadable quantity. Those of DaemonSets and static ones are exempt."""
        pod = Pod.from_document(document)
        owners = pod.metadata.owner_references or ()
        if MIRROR_ANNOTATION in pod.annotations or any(owner.kind == "DaemonSet" for owner in owners):
            return
        namespace = pod.metadata.namespace
        self._created.append((read_created_us(pod), name_workload(document, namespace, "users")))
        if pod.status.phase not in _ENDED and pod.metadata.deletion_timestamp is None:
            self._live.update(compute_cost(pod, _COUNTED))

    def suggest(self, namespace: str, headroom_percent: int) -> FirstService:
        """Return the service: windows for all that the workloads want at once, and live Pods as of now."""
        return FirstService(
            namespace,
            tuple(self._list_limits(headroom_percent)),
            dict(sorted(self.workloads.items())),
            self._wanted,
            self._live["pods"],
            tuple(self._schedules),
        )

    def _list_limits(self, headroom_percent: int) -> Iterator[LimitSuggestion]:
        created = UseHistory()
        for at_us, workload in sorted(self._created):
            created.add(at_us, workload, {"pods": 1})
        least = max(1, self._wanted, self._live["pods"])
        for window, (seconds, times) in _WINDOWS.items():
            use = created.measure(seconds, "pods")
            largest = max(times * least, use.largest if use is not None else 0)
            least = max(least, largest)  # a longer window with the limit of a shorter one would make that useless
            yield LimitSuggestion(window, "pods", add_headroom(largest, headroom_percent, "pods"), use=use)
        for resource in _COUNTED:
            largest = max(self._live[resource], self._wanted if resource == "pods" else 0)
            if largest:
                yield LimitSuggestion(STANDING, resource, add_headroom(largest, headroom_percent, resource))


def is_left_out(namespace: str) -> bool:
    """Return whether a first policy exempts a namespace."""
    return namespace in BUILT_IN_EXEMPT_NAMESPACES or matches_any(EXEMPT_NAMESPACES, namespace)


def _count_wanted(kind: str, spec: Mapping[str, Any], status: Mapping[str, Any]) -> int:
    """Return how many Pods a workload runs at once."""
    match kind:
        case "CronJob":
            return 0 if spec.get("suspend") else _count_job((spec.get("jobTemplate") or {}).get("spec") or {}, {})
        case "Job":
            return _count_job(spec, status)
    replicas = spec.get("replicas")
    return 1 if replicas is None else int(replicas)


def _count_job(spec: Mapping[str, Any], status: Mapping[str, Any]) -> int:
    """Return how many Pods a Job runs at once until its end; none once it has completed or failed."""
    ended = any(
        condition.get("type") in _ENDS and condition.get("status") == "True"
        for condition in status.get("conditions") or ()
    )
    if ended or spec.get("suspend"):
        return 0
    parallelism, completions = spec.get("parallelism"), spec.get("completions")
    at_once = 1 if parallelism is None else int(parallelism)
    return at_once if completions is None else max(0, min(at_once, int(completions) - (status.get("succeeded") or 0)))
