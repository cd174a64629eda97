"""Pod: the fields that decisions read, decoded in one pass; all others are skipped.

A spec is encoded without absent fields: its encoding is a cache key, and a short key is cheaper.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct

from webhook.core.kubernetes.types import Affinity, Toleration, TopologySpreadConstraint

MIRROR_ANNOTATION = "kubernetes.io/config.mirror"

Amounts = dict[str, str | int | float | None]
"""Resource name to quantity as written; hand-written files may also have numbers and nulls."""


class Resources(Struct, frozen=True, gc=False, omit_defaults=True):
    requests: Amounts | None = None
    limits: Amounts | None = None


class Container(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    name: str = ""
    resources: Resources | None = None
    restart_policy: str | None = None


class SchedulingGate(Struct, frozen=True, gc=False, omit_defaults=True):
    name: str = ""


class OwnerReference(Struct, frozen=True, gc=False, rename="camel"):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None

    def is_in_group(self, group: str) -> bool:
        """Return whether its kind is of an API group. Decision records have no apiVersion: Kubernetes' own is meant."""
        return not self.api_version or self.api_version.rpartition("/")[0] == group


class PodMetadata(Struct, frozen=True, gc=False, rename="camel"):
    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: tuple[OwnerReference, ...] | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    creation_timestamp: str | None = None
    resource_version: str = ""
    generation: int = 0
    managed_fields: Raw = Raw(b"null")


class PodOS(Struct, frozen=True, gc=False, omit_defaults=True):
    name: str = ""


class PodSpec(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
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
    containers: tuple[Container, ...] | None = None
    init_containers: tuple[Container, ...] | None = None
    resources: Resources | None = None
    overhead: Amounts | None = None
    os: PodOS | None = None


class PodCondition(Struct, frozen=True, gc=False, rename="camel"):
    type: str = ""
    status: str = ""
    reason: str | None = None
    last_transition_time: str | None = None
    message: str | None = None


class ContainerStateDetail(Struct, frozen=True, gc=False):
    """Details of a waiting or terminated container."""

    reason: str | None = None


class ContainerState(Struct, frozen=True, gc=False):
    waiting: ContainerStateDetail | None = None
    terminated: ContainerStateDetail | None = None


class ContainerStatus(Struct, frozen=True, gc=False, rename="camel"):
    """`resources` are those that the container runs with, `allocated_resources` those that its node has set aside."""

    restart_count: int = 0
    state: ContainerState | None = None
    last_state: ContainerState | None = None
    name: str = ""
    resources: Resources | None = None
    allocated_resources: Amounts | None = None


class PodStatus(Struct, frozen=True, gc=False, rename="camel"):
    phase: str = ""
    reason: str | None = None
    nominated_node_name: str | None = None
    conditions: tuple[PodCondition, ...] | None = None
    init_container_statuses: tuple[ContainerStatus, ...] | None = None
    container_statuses: tuple[ContainerStatus, ...] | None = None
    resources: Resources | None = None
    allocated_resources: Amounts | None = None


class Pod(Struct, frozen=True, gc=False):
    metadata: PodMetadata
    spec: PodSpec
    status: PodStatus = PodStatus()

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "Pod":
        """Return a Pod from its JSON object. msgspec.ValidationError: a wrong type."""
        return _pod.decode(_encoder.encode(document))

    @property
    def labels(self) -> dict[str, str]:
        return self.metadata.labels or {}

    @property
    def annotations(self) -> dict[str, str]:
        return self.metadata.annotations or {}

    @property
    def is_pending(self) -> bool:
        """Whether none of its containers has been started."""
        return self.status.phase in {"", "Pending"}

    @property
    def shown_name(self) -> str:
        """The Pod's name for people; `PREFIX*` while a generated name is not known yet."""
        return self.metadata.name or f"{self.metadata.generate_name}*"


_pod, _encoder = msgspec.json.Decoder(Pod), msgspec.json.Encoder()
