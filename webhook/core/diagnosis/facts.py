"""Facts for a diagnosis: what records, the API server and the policies in force say of a Pod or workload."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.diagnosis.objects import (
    CustomOwner,
    ReportedEvent,
    ReportedMaker,
    ReportedNamespace,
    ReportedNode,
    ReportedOwner,
    ReportedPod,
)
from webhook.core.diagnosis.report import VariantReport
from webhook.core.kubernetes.api_groups import CustomKind
from webhook.core.reporting.decision_record import DecisionRecord
from webhook.core.reporting.queue_document import QueueRow
from webhook.core.scheduling.scheduling_record import SchedulingRecord


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all Pods of a diagnosis have in common. `unread`: what could not be read, with the reason."""

    now_us: int
    policies: Mapping[str, CompiledPolicy] = field(default_factory=dict)
    """By hash."""
    in_force: CompiledPolicy | None = None
    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    namespace: ReportedNamespace | None = None
    nodes: tuple[ReportedNode, ...] | None = None
    hosts: Mapping[str, ReportedNode | None] | None = None
    """Nodes of Pods that may not be well, by name, None for one that does not exist; None if they were not read."""
    unread: Mapping[str, str] = field(default_factory=dict)
    variants: Mapping[str, tuple[VariantReport, ...]] = field(default_factory=dict)
    """Variants of services now, by service; only of services that were asked about."""

    def explain_unread(self, *names: str) -> str:
        """Return why the first of these could not be read; "" if all were, or if none was asked for."""
        return next((self.unread[name] for name in names if name in self.unread), "")

    def find_policy(self, policy_hash: str) -> CompiledPolicy | None:
        found = self.policies.get(policy_hash)
        if found is None and self.in_force is not None and self.in_force.hash == policy_hash:
            return self.in_force
        return found


@dataclass(frozen=True, slots=True)
class PodFacts:
    """One Pod: the object if it exists, its Events, and records that may be about it, newest first."""

    namespace: str
    name: str
    uid: str = ""
    pod: ReportedPod | None = None
    events: tuple[ReportedEvent, ...] = ()
    records: tuple[DecisionRecord, ...] = ()
    waiting: QueueRow | None = None
    """Its place in the queue, as the leader knows it."""
    scheduled: SchedulingRecord | None = None
    """The extender's record of it."""
    owners: tuple[str, ...] = ()
    """What owns its controller, as KIND/NAME, the nearest first."""


@dataclass(frozen=True, slots=True)
class CustomFacts:
    """An object of a custom kind. `owners`: the object and those of its API group that it owns."""

    kind: CustomKind
    document: Mapping[str, Any]
    owners: tuple[CustomOwner, ...]


@dataclass(frozen=True, slots=True)
class WorkloadFacts:
    """A workload: the controllers that create its Pods, their Events, its Pods, and records of refused ones."""

    kind: str
    namespace: str
    name: str
    owners: tuple[ReportedOwner, ...] = ()
    events: tuple[ReportedEvent, ...] = ()
    pods: tuple[PodFacts, ...] = ()
    records: tuple[DecisionRecord, ...] = ()
    maker: ReportedMaker | None = None
    """The workload itself if it makes the controllers: a Deployment or a CronJob."""
    custom: CustomFacts | None = None
    """The workload itself if it is of a custom kind."""
