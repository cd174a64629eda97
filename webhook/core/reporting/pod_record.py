"""Recorded Pod: the fields of a Pod that policies read, as replay records and decision records contain them.

Every recorded field is declared here, so that environment, arguments, commands, volumes, images and other annotations
can never be recorded. `annotations` are the keys of those that the policy sets. Labels, names and selectors are
recorded unchanged, because policies match them.
"""

import re
from collections.abc import Collection, Sequence

from msgspec import Raw, Struct

from webhook.core.admission.mutation import HASH_ANNOTATION
from webhook.core.kubernetes.pod import (
    MIRROR_ANNOTATION,
    Amounts,
    Container,
    OwnerReference,
    Pod,
    PodSpec,
    Resources,
    SchedulingGate,
)
from webhook.core.kubernetes.types import Affinity, Toleration, TopologySpreadConstraint
from webhook.core.placement import reduce_managers

_ABSENT = Raw(b"null")
_HASH = re.compile(r"[0-9a-f]{16}")


class RecordedResources(Struct, frozen=True, gc=False, omit_defaults=True):
    requests: Amounts | None = None
    limits: Amounts | None = None


class RecordedContainer(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    name: str = ""
    resources: RecordedResources | None = None
    restart_policy: str | None = None


class RecordedOwner(Struct, frozen=True, gc=False, omit_defaults=True):
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class RecordedMetadata(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    name: str = ""
    uid: str = ""
    generate_name: str = ""
    namespace: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: Sequence[RecordedOwner] | None = None
    managed_fields: Raw = _ABSENT
    """Whether the user wrote priorityClassName, if the Pod has one: onConflict depends on it."""


class RecordedSpec(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    containers: Sequence[RecordedContainer]
    init_containers: Sequence[RecordedContainer] | None = None
    resources: RecordedResources | None = None
    scheduler_name: str | None = None
    node_name: str | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] | None = None
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] | None = None
    priority_class_name: str | None = None
    priority: int | None = None
    preemption_policy: str | None = None
    runtime_class_name: str | None = None
    scheduling_gates: tuple[SchedulingGate, ...] | None = None
    overhead: Amounts | None = None


class RecordedPod(Struct, frozen=True, gc=False):
    metadata: RecordedMetadata
    spec: RecordedSpec


def record_pod(pod: Pod, annotations: Collection[str] = ()) -> RecordedPod:
    """Return the recorded fields of a Pod. Empty values are left out: decisions treat them as absent."""
    return RecordedPod(_record_metadata(pod, pod.metadata.name, pod.metadata.uid, annotations), _record_spec(pod.spec))


def record_template(pod: Pod, annotations: Collection[str] = ()) -> RecordedPod:
    """Return the same without name and uid: mostly equal for all Pods of a controller."""
    return RecordedPod(_record_metadata(pod, "", "", annotations), _record_spec(pod.spec))


def find_controlling_owner(pod: Pod) -> OwnerReference | None:
    """Return the owner that is the Pod's controller, as the Pod names it."""
    for reference in pod.metadata.owner_references or ():
        if reference.controller:
            return reference
    return None


def _record_metadata(pod: Pod, name: str, uid: str, read: Collection[str]) -> RecordedMetadata:
    metadata = pod.metadata
    references, annotations = metadata.owner_references, metadata.annotations
    return RecordedMetadata(
        name,
        uid,
        metadata.generate_name,
        metadata.namespace,
        metadata.labels or None,
        _record_annotations(annotations, read) if annotations else None,
        [
            RecordedOwner(reference.kind, reference.name, reference.uid, reference.controller or None)
            for reference in references
        ]
        if references
        else None,
        reduce_managers(metadata) if pod.spec.priority_class_name else _ABSENT,
    )


def _record_annotations(annotations: dict[str, str], read: Collection[str]) -> dict[str, str] | None:
    kept = {key: annotations[key] for key in read if key in annotations}
    carried = annotations.get(HASH_ANNOTATION)
    if carried is not None:
        kept[HASH_ANNOTATION] = carried if _HASH.fullmatch(carried) else ""  # any other text is no policy's
    if MIRROR_ANNOTATION in annotations:
        kept[MIRROR_ANNOTATION] = ""  # its presence matters, not its value
    return kept or None


def _record_spec(spec: PodSpec) -> RecordedSpec:
    return RecordedSpec(
        _record_containers(spec.containers or ()),
        init_containers=_record_containers(spec.init_containers) if spec.init_containers else None,
        resources=_record_resources(spec.resources) if spec.resources is not None else None,
        scheduler_name=spec.scheduler_name,
        node_name=spec.node_name,
        node_selector=spec.node_selector,
        affinity=spec.affinity,
        tolerations=spec.tolerations,
        topology_spread_constraints=spec.topology_spread_constraints,
        priority_class_name=spec.priority_class_name,
        priority=spec.priority,
        preemption_policy=spec.preemption_policy,
        runtime_class_name=spec.runtime_class_name,
        scheduling_gates=spec.scheduling_gates,
        overhead=spec.overhead,
    )


def _record_containers(containers: Sequence[Container]) -> list[RecordedContainer]:
    return [
        RecordedContainer(
            container.name,
            _record_resources(container.resources) if container.resources is not None else None,
            container.restart_policy or None,
        )
        for container in containers
    ]


def _record_resources(resources: Resources) -> RecordedResources | None:
    requests, limits = resources.requests or None, resources.limits or None
    return RecordedResources(requests, limits) if requests or limits else None
