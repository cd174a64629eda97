"""Kubernetes objects, reduced to the fields that a diagnosis reads. Lax on purpose: Go writes null for empty."""

from msgspec import Struct

from webhook.core.kubernetes.pod import PodMetadata, PodSpec
from webhook.core.placement.node_match import NodeTaint


class StatusCondition(Struct, frozen=True, rename="camel"):
    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None
    last_transition_time: str | None = None


class WaitingReport(Struct, frozen=True):
    """Details of a waiting container."""

    reason: str | None = None
    message: str | None = None


class RunningReport(Struct, frozen=True, rename="camel"):
    started_at: str | None = None


class TerminatedReport(WaitingReport, frozen=True, rename="camel"):
    """Details of a container that has ended."""

    exit_code: int | None = None
    started_at: str | None = None
    finished_at: str | None = None


class ContainerStates(Struct, frozen=True):
    waiting: WaitingReport | None = None
    running: RunningReport | None = None
    terminated: TerminatedReport | None = None


class ReportedContainer(Struct, frozen=True, rename="camel"):
    name: str = ""
    ready: bool = False
    restart_count: int = 0
    state: ContainerStates | None = None
    last_state: ContainerStates | None = None


class ReportedPodStatus(Struct, frozen=True, rename="camel"):
    phase: str = ""
    reason: str | None = None
    message: str | None = None
    nominated_node_name: str | None = None
    conditions: tuple[StatusCondition, ...] | None = None
    init_container_statuses: tuple[ReportedContainer, ...] | None = None
    container_statuses: tuple[ReportedContainer, ...] | None = None


class ReportedMetadata(PodMetadata, frozen=True):
    """Metadata with what keeps a deleted object."""

    finalizers: tuple[str, ...] | None = None


class ReportedPod(Struct, frozen=True):
    """A Pod with the messages of its status, which decisions never read."""

    metadata: ReportedMetadata
    spec: PodSpec = PodSpec()
    status: ReportedPodStatus = ReportedPodStatus()

    def find_condition(self, name: str) -> StatusCondition | None:
        return next((condition for condition in self.status.conditions or () if condition.type == name), None)


class EventSubject(Struct, frozen=True, rename="camel"):
    kind: str = ""
    name: str = ""
    namespace: str = ""
    uid: str = ""
    field_path: str = ""
    """Of a container: `spec.containers{NAME}`."""


class ReportedEvent(Struct, frozen=True, rename="camel"):
    """An Event of core/v1. Older components write `lastTimestamp`, newer ones `eventTime`."""

    metadata: PodMetadata = PodMetadata()
    involved_object: EventSubject = EventSubject()
    type: str = ""
    reason: str | None = None
    action: str | None = None
    message: str | None = None
    last_timestamp: str | None = None
    event_time: str | None = None

    @property
    def at(self) -> str:
        return self.last_timestamp or self.event_time or self.metadata.creation_timestamp or ""


class OwnerSpec(Struct, frozen=True, rename="camel"):
    """Wanted Pods of a ReplicaSet or StatefulSet, and of a Job."""

    pod_management_policy: str | None = None
    replicas: int | None = None
    parallelism: int | None = None
    completions: int | None = None
    suspend: bool | None = None


class OwnerStatus(Struct, frozen=True, rename="camel"):
    replicas: int | None = None
    active: int | None = None
    succeeded: int | None = None
    desired_number_scheduled: int | None = None
    current_number_scheduled: int | None = None
    conditions: tuple[StatusCondition, ...] | None = None


class ReportedOwner(Struct, frozen=True):
    """A controller that creates Pods: a ReplicaSet, StatefulSet, DaemonSet, Job or ReplicationController."""

    metadata: PodMetadata
    kind: str = ""
    spec: OwnerSpec = OwnerSpec()
    status: OwnerStatus = OwnerStatus()

    @property
    def wanted(self) -> int:
        """How many Pods it wants at the moment."""
        if self.kind == "DaemonSet":
            return self.status.desired_number_scheduled or 0
        if self.kind == "Job":
            parallelism = 1 if self.spec.parallelism is None else self.spec.parallelism
            total = parallelism if self.spec.completions is None else self.spec.completions
            left = total - (self.status.succeeded or 0)
            return 0 if self.spec.suspend or self.is_over else max(0, min(parallelism, left))
        return 1 if self.spec.replicas is None else self.spec.replicas

    @property
    def is_in_order(self) -> bool:
        """Whether it creates a Pod only once the former one is Ready."""
        return self.kind == "StatefulSet" and self.spec.pod_management_policy != "Parallel"

    @property
    def present(self) -> int:
        """How many of these Pods exist."""
        status = self.status
        return (status.active if self.kind == "Job" else status.replicas or status.current_number_scheduled) or 0

    @property
    def is_over(self) -> bool:
        """Whether a Job has completed or failed."""
        ends = {"Complete", "Failed"}
        return any(condition.type in ends and condition.status == "True" for condition in self.status.conditions or ())


class CustomOwner(ReportedOwner, frozen=True):
    """An object of a custom kind, whose controller may create Pods itself. How many it wants is not known."""

    @property
    def wanted(self) -> int:
        return 0

    @property
    def present(self) -> int:
        return 0


class MakerSpec(Struct, frozen=True, rename="camel"):
    """What holds a Deployment (`paused`) or a CronJob (the others)."""

    paused: bool | None = None
    suspend: bool | None = None
    schedule: str = ""
    time_zone: str | None = None


class MakerStatus(Struct, frozen=True, rename="camel"):
    replicas: int | None = None
    updated_replicas: int | None = None
    """Pods of the Deployment's present template."""
    last_schedule_time: str | None = None


class ReportedMaker(Struct, frozen=True):
    """A workload whose Pods belong to controllers that it makes: a Deployment or a CronJob."""

    metadata: PodMetadata
    kind: str = ""
    spec: MakerSpec = MakerSpec()
    status: MakerStatus = MakerStatus()


class NamespaceStatus(Struct, frozen=True):
    conditions: tuple[StatusCondition, ...] | None = None


class ReportedNamespace(Struct, frozen=True):
    metadata: PodMetadata
    status: NamespaceStatus = NamespaceStatus()


class NodeSpec(Struct, frozen=True):
    taints: tuple[NodeTaint, ...] | None = None


class NodeHealth(Struct, frozen=True):
    conditions: tuple[StatusCondition, ...] | None = None


class ReportedNode(Struct, frozen=True):
    metadata: PodMetadata
    spec: NodeSpec = NodeSpec()
    status: NodeHealth = NodeHealth()
