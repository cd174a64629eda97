"""Pods of a simulation: from a recording of `replay`, or generated."""

from typing import BinaryIO

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.kubernetes import pod_requests
from webhook.core.kubernetes.pod import Amounts, Container, Pod, PodMetadata, PodSpec, Resources
from webhook.core.placement import SERVICE_LABEL, VARIANT_LABEL
from webhook.core.scheduling.assumed_load import PodLoad
from webhook.core.scheduling.scheduler_configuration import DEFAULT_SCHEDULER
from webhook.core.shares import SlotOwner, find_slot_owner
from webhook.errors import UserError
from webhook.replay.events import NamespacesChange, PodAsks, PodDeleted, ReplayEvent, parse
from webhook.support.input_files import read_bounded_lines

_MILLI = pod_requests.NANO // 1000
_PODS_MAX = 100_000
_RESOURCES = ("cpu", "memory")


class ScheduledPod(Struct, frozen=True):
    """A Pod that is created at a time, in seconds from 0, and what it uses while it is on a node.

    One that names its node is scheduled by nobody. One that `is_foreign` goes where a scheduler without the extender
    puts it.
    """

    at_seconds: float
    pod: Pod
    usage: PodLoad
    ends_seconds: float | None = None
    node: str | None = None
    is_foreign: bool = False
    owner: SlotOwner | None = None
    """The workload that divides its Pods if its service has shares; None for a Pod that has its variant already."""


def generate_pods(
    count: int, every_seconds: float, service: str, requests: Amounts, usage: float
) -> list[ScheduledPod]:
    """Return the Pods of one workload of a service, all with these requests, of which they use a share."""
    owner = SlotOwner("ReplicaSet", "simulated", service, service)
    containers = (Container(name="c", resources=Resources(requests)),)
    width = len(str(count))
    found = []
    for number in range(count):
        name = f"{service}-{number + 1:0{width}}"
        metadata = PodMetadata(name=name, namespace="simulated", uid=name, labels={SERVICE_LABEL: service})
        pod = Pod(metadata, PodSpec(containers=containers))
        found.append(ScheduledPod(number * every_seconds, pod, compute_usage(pod, usage), owner=owner))
    return found


class PodRecording:
    """The Pods that a recording's requests create, each until it is deleted; with `only` those of one service."""

    def __init__(self, policy: CompiledPolicy, only: str | None, usage: float) -> None:
        self._policy = policy
        self._only = only
        self._usage = usage
        self._found: dict[str, ScheduledPod] = {}
        self._namespace_labels: dict[str, dict[str, str]] = {}

    def read(self, stream: BinaryIO, name: str) -> list[ScheduledPod]:
        """Return them in the order of their creation. UserError: a line is invalid, or there are too many Pods."""
        for number, line in enumerate(read_bounded_lines(stream, name), start=1):
            if not line.strip():
                continue
            try:
                self._take(parse(line), f"line-{number}")
            except UserError as error:
                raise UserError(f"{name}:{number}: {error}", error.remedy) from None
            except (msgspec.ValidationError, ValueError) as error:
                raise UserError(f"{name}:{number}: pod: {error}", "give a Pod as the API server takes it") from None
            if len(self._found) > _PODS_MAX:
                raise UserError(f"{name}: more than {_PODS_MAX} Pods", "give a shorter recording")
        lasting = [
            scheduled
            for scheduled in self._found.values()
            if scheduled.ends_seconds is None or scheduled.ends_seconds > scheduled.at_seconds
        ]
        if not lasting:
            which = "" if self._only is None else f" of service {self._only}"
            raise UserError(f"{name}: creates no Pod{which}", "give a recording of podgate serve --record")
        return sorted(lasting, key=lambda scheduled: scheduled.at_seconds)

    def _take(self, event: ReplayEvent, uid: str) -> None:
        if isinstance(event, NamespacesChange):
            self._namespace_labels |= event.namespace_labels
        elif isinstance(event, PodDeleted) and event.deleted in self._found:
            self._found[event.deleted] = replace(self._found[event.deleted], ends_seconds=float(event.at))
        elif isinstance(event, PodAsks) and _creates(event):
            pod = self._make_pod(event, uid)
            if self._only is None or pod.labels.get(SERVICE_LABEL) == self._only:
                self._found[pod.metadata.uid] = ScheduledPod(
                    float(event.at),
                    Pod(pod.metadata, replace(pod.spec, node_name=None)),
                    compute_usage(pod, self._usage),
                    node=pod.spec.node_name or None,
                    is_foreign=not pod.spec.node_name and self._is_foreign(pod),
                    owner=_find_owner(event.user, pod),
                )

    def _is_foreign(self, pod: Pod) -> bool:
        """Return whether a Pod's scheduler asks no extender: no service names it, and it is not the default one."""
        named = pod.spec.scheduler_name or DEFAULT_SCHEDULER
        plans = (service.placement_plan for service in self._policy.services.values())
        return named not in {DEFAULT_SCHEDULER, *(plan.scheduler_name for plan in plans if plan is not None)}

    def _make_pod(self, event: PodAsks, uid: str) -> Pod:
        """Return the Pod as admission would label it."""
        found = Pod.from_document({"metadata": {}, "spec": {}} | event.pod)
        labels = found.labels
        if SERVICE_LABEL not in labels:
            namespace = self._namespace_labels.get(event.namespace, {})
            owner = self._policy.matcher.find_owner(event.namespace, namespace, labels, None)
            labels = labels if owner is None else {**labels, SERVICE_LABEL: owner.name}
        metadata = replace(found.metadata, namespace=event.namespace, uid=event.uid or uid, labels=labels)
        return Pod(metadata, found.spec)


def compute_usage(pod: Pod, usage: float) -> PodLoad:
    """Return a share of what a Pod requests, or may use at most if it requests nothing. ValueError: an amount."""
    cpu, memory = (
        pod_requests.compute_total(pod, "requests", name) or pod_requests.compute_total(pod, "limits", name)
        for name in _RESOURCES
    )
    return PodLoad(usage * cpu / _MILLI, usage * memory / pod_requests.NANO)


def _find_owner(user: str, pod: Pod) -> SlotOwner | None:
    """Return the workload of a Pod that takes a slot. One that was recorded with its variant keeps it."""
    if VARIANT_LABEL in pod.labels or pod.spec.node_name:
        return None
    return find_slot_owner(user, pod, pod.metadata.namespace)


def _creates(event: PodAsks) -> bool:
    return event.operation == "CREATE" and not event.sub_resource and not event.dry_run
