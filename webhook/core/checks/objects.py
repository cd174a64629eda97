"""Kubernetes objects, reduced to the fields that checks read. Lax on purpose: Go writes null for empty."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from webhook.core.kubernetes.pod import OwnerReference
from webhook.core.kubernetes.types import LabelSelector

Strings = Mapping[str, str]


class ClusterMetadata(Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: Strings | None = None
    annotations: Strings | None = None
    owner_references: tuple[OwnerReference, ...] | None = None


class ClusterObject(Struct, frozen=True, rename="camel"):
    """An object of which only the metadata is read, such as a Namespace."""

    metadata: ClusterMetadata

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def labels(self) -> Strings:
        return self.metadata.labels or {}


class ServicePortSpec(Struct, frozen=True):
    port: int
    name: str = ""


class ServiceObjectSpec(Struct, frozen=True):
    type: str = "ClusterIP"
    selector: Strings | None = None
    ports: tuple[ServicePortSpec, ...] | None = None


class ServiceObject(ClusterObject, frozen=True):
    spec: ServiceObjectSpec = ServiceObjectSpec()


class EndpointConditions(Struct, frozen=True):
    ready: bool | None = None


class EndpointObject(Struct, frozen=True):
    conditions: EndpointConditions = EndpointConditions()


class EndpointSliceObject(ClusterObject, frozen=True):
    endpoints: tuple[EndpointObject, ...] | None = None


class ConditionObject(Struct, frozen=True):
    type: str
    status: str
    reason: str = ""
    message: str = ""


class ContainerSpecObject(Struct, frozen=True):
    name: str = ""
    image: str = ""
    command: tuple[str, ...] | None = None
    args: tuple[str, ...] | None = None


class PodSpecObject(Struct, frozen=True, rename="camel"):
    containers: tuple[ContainerSpecObject, ...] | None = None
    volumes: tuple[dict[str, Any], ...] | None = None
    scheduler_name: str = ""
    scheduling_gates: tuple[dict[str, Any], ...] | None = None


class PodTemplateObject(Struct, frozen=True):
    metadata: ClusterMetadata = ClusterMetadata()
    spec: PodSpecObject = PodSpecObject()


class ReplicasSpec(Struct, frozen=True):
    """Spec of a Deployment or a ReplicaSet."""

    replicas: int = 1
    template: PodTemplateObject = PodTemplateObject()


class ReplicasStatus(Struct, frozen=True, rename="camel"):
    replicas: int = 0
    available_replicas: int = 0
    conditions: tuple[ConditionObject, ...] | None = None


class ReplicasObject(ClusterObject, frozen=True):
    """A Deployment or a ReplicaSet."""

    spec: ReplicasSpec = ReplicasSpec()
    status: ReplicasStatus = ReplicasStatus()

    def find_argument(self, flag: str) -> str:
        """Return the value of an argument of its containers, as `--flag=value` or as two words; "" without it."""
        for container in self.spec.template.spec.containers or ():
            words = tuple(container.args or ())
            for index, word in enumerate(words):
                if word.startswith(f"{flag}="):
                    return word.partition("=")[2]
                if word == flag:
                    return "".join(words[index + 1 : index + 2])
        return ""


class ContainerStatusObject(Struct, frozen=True, rename="camel"):
    name: str = ""
    restart_count: int = 0
    state: Mapping[str, dict[str, Any] | None] | None = None


class PodStatusObject(Struct, frozen=True, rename="camel"):
    phase: str = ""
    conditions: tuple[ConditionObject, ...] | None = None
    container_statuses: tuple[ContainerStatusObject, ...] | None = None


class PodObject(ClusterObject, frozen=True):
    spec: PodSpecObject = PodSpecObject()
    status: PodStatusObject = PodStatusObject()


class BudgetSpec(Struct, frozen=True):
    selector: LabelSelector | None = None


class BudgetStatus(Struct, frozen=True, rename="camel"):
    disruptions_allowed: int = 0
    current_healthy: int = 0
    expected_pods: int = 0


class BudgetObject(ClusterObject, frozen=True):
    """A PodDisruptionBudget."""

    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()


class IpBlock(Struct, frozen=True):
    cidr: str
    excepted: tuple[str, ...] | None = field(default=None, name="except")


class NetworkPeer(Struct, frozen=True, rename="camel"):
    ip_block: IpBlock | None = None
    namespace_selector: LabelSelector | None = None
    pod_selector: LabelSelector | None = None


class NetworkPort(Struct, frozen=True, rename="camel"):
    port: int | str | None = None
    """A number, or the name of a container's port."""
    end_port: int | None = None
    protocol: str = "TCP"


class IngressRule(Struct, frozen=True):
    ports: tuple[NetworkPort, ...] | None = None
    peers: tuple[NetworkPeer, ...] | None = field(default=None, name="from")


class NetworkPolicySpec(Struct, frozen=True, rename="camel"):
    pod_selector: LabelSelector = LabelSelector()
    policy_types: tuple[str, ...] | None = None
    ingress: tuple[IngressRule, ...] | None = None


class NetworkPolicyObject(ClusterObject, frozen=True):
    spec: NetworkPolicySpec = NetworkPolicySpec()


class LeaseHolding(Struct, frozen=True, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    renew_time: str | None = None


class LeaseHolderObject(ClusterObject, frozen=True):
    spec: LeaseHolding = LeaseHolding()


class TaintObject(Struct, frozen=True):
    key: str
    effect: str = ""


class InvolvedObject(Struct, frozen=True):
    kind: str = ""
    name: str = ""
    namespace: str = ""


class FailureEvent(ClusterObject, frozen=True, rename="camel"):
    """An Event of a controller that could not create a Pod."""

    involved_object: InvolvedObject = InvolvedObject()
    message: str = ""
    last_timestamp: str | None = None
    event_time: str | None = field(default=None, name="eventTime")
