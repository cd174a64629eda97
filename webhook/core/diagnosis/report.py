"""Report on one Pod or workload: a token by severity, the cause that matters most, and each part of its path."""

from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct

from webhook.core.admission.decision import Verdict
from webhook.core.reporting.decision_record import RecordedBreaker
from webhook.core.reporting.limit_record import RecordedLimit
from webhook.core.reporting.queue_document import QueueRow
from webhook.core.scheduling.scheduling_record import SchedulingRecord


class Fate(StrEnum):
    """The token of a report, the most severe first. A report on several Pods shows the most severe token."""

    DENIED = "Denied"
    RELEASE_FAILS = "ReleaseFails"
    """It waits, and the API server did not remove its gate."""
    BREAKER_OPEN = "BreakerOpen"
    """Denied by the breaker, or waiting in the queue because of it."""
    WAITING_FOR_LIVE_PODS = "WaitingForLivePods"
    """Denied by limits on live Pods alone: its controller can create it when others have ended; or waiting."""
    WAITING_FOR_RETRY = "WaitingForRetry"
    """Its last attempt was denied, there has been room since, and its controller has not tried again."""
    EXPIRED = "Expired"
    """It has waited in the queue for too long."""
    DROPPED = "Dropped"
    """It waited, and an operator deleted it."""
    WAITING_FOR_QUOTA = "WaitingForQuota"
    GATED_BY_OTHERS = "GatedByOthers"
    UNSCHEDULABLE = "Unschedulable"
    FAILED = "Failed"
    STARTING = "Starting"
    TERMINATING = "Terminating"
    IDLE = "Idle"
    """A workload that is to run no Pods now, or none of its new template: paused, suspended, or not yet due."""
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    EXEMPT = "Exempt"
    UNMATCHED = "Unmatched"
    ADMITTED = "Admitted"
    """A record says so, and the cluster was not asked, or no longer has the Pod."""
    UNKNOWN = "Unknown"

    @property
    def severity(self) -> int:
        """The place in this list: the smaller, the more severe."""
        return list(Fate).index(self)


class Cause(NamedTuple):
    """Why something does not run, and what a person can do about it, "" if nothing is known."""

    text: str
    remedy: str = ""


class ReportSubject(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The object that a report is about."""

    kind: str
    namespace: str
    name: str
    uid: str = ""
    owner: str = ""
    """Its controller, as KIND/NAME."""
    owners: tuple[str, ...] = ()
    """The objects that own this controller, the nearest first."""


class AdmissionReport(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The review of the Pod, by its record, or by its traces in the Pod and in Events."""

    source: str
    """The source of these figures: `record`, `pod`, `event` or `policy`."""
    decision: str
    at: str = ""
    service: str = ""
    why_service: str = ""
    policy: str = ""
    user: str = ""
    replica: str = ""
    codes: tuple[str, ...] = ()
    status_code: int = 0
    message: str = ""
    exemption: str = ""
    degraded: str = ""
    uncounted: bool = False
    findings: tuple[str, ...] = ()
    """Findings of concerns that are not enforced."""
    overrides: tuple[str, ...] = ()
    """Override entries of the service that applied."""
    trace_id: str = ""
    overload: str = ""
    """Why it was gated without being judged."""
    dry_run: bool = False
    """Nothing was created, whatever the decision."""


class SlotReport(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The slot of a Pod in its workload, and the variant that comes with it."""

    source: str
    """`record`, or `pod`: by its label and annotation."""
    number: int
    variant: str
    intended: str = ""
    """The slot's own variant, if the Pod got another one."""
    reason: str = ""


class VariantReport(Struct, frozen=True, rename="camel", omit_defaults=True):
    """One variant of the service's shares, and its breaker as it is now."""

    name: str
    state: str = ""
    """"" if it is not known, or if it has no breaker."""
    reason: str = ""
    until: str = ""
    """When Pods probe it, or when a manual state ends."""
    taken_by: str = ""
    """The variant that new Pods get instead."""
    has_breaker: bool = True
    of_candidate: bool = False
    """Only the candidate of a canary has it."""


class TemplateReport(Struct, frozen=True, rename="camel", omit_defaults=True):
    """One Pod template of an object of a custom kind, as the policy in force judges it."""

    place: str
    decision: str
    service: str = ""
    codes: tuple[str, ...] = ()
    message: str = ""


class RewrittenField(Struct, frozen=True, rename="camel", omit_defaults=True):
    """One field that the policy wrote or removed, with the entry that did, and why."""

    field: str
    rule: str
    value: str = ""
    why: str = ""
    removed: bool = False


class NodeFilter(Struct, frozen=True):
    """One requirement on nodes: how many fit it alone, and how many are left after those before it."""

    by: str
    requirement: str
    fit: int
    left: int


class NodesReport(Struct, frozen=True, rename="camel"):
    """Nodes of the cluster, and how many the policy, the Pod's own terms and taints leave."""

    total: int
    policy: tuple[NodeFilter, ...]
    policy_leaves: int
    own: tuple[NodeFilter, ...]
    own_leave: int
    """Nodes that fit the Pod's own terms, regardless of the policy."""
    both_leave: int
    taints: tuple[NodeFilter, ...]
    """Taints that the Pod does not tolerate; `fit` is the number of nodes with it among those that both leave."""
    left: int
    names: tuple[str, ...]
    unknown_policy: str = ""
    """Hash of the policy that rewrote the Pod, if its document is not kept: then `own` may be the policy's, too."""


class SchedulingReport(Struct, frozen=True, rename="camel", omit_defaults=True):
    """What the scheduler says of the Pod."""

    scheduler: str = ""
    node: str = ""
    reason: str = ""
    message: str = ""
    at: str = ""


class ContainerReport(Struct, frozen=True, rename="camel", omit_defaults=True):
    name: str
    state: str
    message: str = ""
    restarts: int = 0
    exit_code: int | None = None


class StartReport(Struct, frozen=True, rename="camel", omit_defaults=True):
    phase: str = ""
    containers: tuple[ContainerReport, ...] = ()
    events: tuple[str, ...] = ()
    """Warnings about the Pod, newest first."""


class Report(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Everything that is known about one Pod or workload."""

    token: Fate
    summary: str
    subject: ReportSubject
    remedy: str = ""
    pods: dict[str, int] = {}
    """Of a workload: the number of its Pods by token."""
    admission: AdmissionReport | None = None
    templates: tuple[TemplateReport, ...] = ()
    """Of an object of a custom kind, if the policy knows where it has Pod templates."""
    slot: SlotReport | None = None
    shares: tuple[VariantReport, ...] = ()
    """The variants of its service now, if it has a slot and a server was asked."""
    quota: tuple[RecordedLimit, ...] = ()
    breaker: RecordedBreaker | None = None
    rewritten: tuple[RewrittenField, ...] = ()
    rules: tuple[dict[str, str], ...] = ()
    """The finding of each stage and rule, as in `review --explain`."""
    gates: tuple[str, ...] = ()
    queue: QueueRow | None = None
    """Its place in the queue, if it waits and the leader was asked."""
    scheduling: SchedulingReport | None = None
    extender: SchedulingRecord | None = None
    """The extender's record of the Pod, if there is one and it was read."""
    nodes: NodesReport | None = None
    start: StartReport | None = None
    unread: dict[str, str] = {}
    """What could not be read, with the reason."""

    @property
    def is_denied(self) -> bool:
        return self.admission is not None and self.admission.decision == Verdict.DENY
