"""Policy model: the fields of the document and of a service, whose stanzas `webhook.core.policy_fields` declares.

`webhook.core.document` parses and checks the document.
"""

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from webhook.core.breaker import BreakerOwner, Forcing
from webhook.core.container_resources import RangePlan
from webhook.core.kubernetes.types import LabelSelector, format_of
from webhook.core.placement import PlacementPlan, list_namespace_keys, merge_variant, resolve_namespace_labels
from webhook.core.pod_rules import RulePlan
from webhook.core.policy.schedules import ScheduleState
from webhook.core.policy.teams import list_team_keys
from webhook.core.policy_fields import (
    WINDOWS_MAX,
    Breaker,
    Choice,
    CustomWorkload,
    Guaranteed,
    Mode,
    Name,
    Nodes,
    Percent,
    Placement,
    PoolStanding,
    Quota,
    ResourceRules,
    Rules,
    Scheduling,
    Scope,
    WhenExceeded,
    Window,
)
from webhook.core.policy_fields.field_types import describe
from webhook.core.policy_fields.rollout import Rollout

BUILT_IN_EXEMPT_NAMESPACES = frozenset({"kube-system", "kube-node-lease", "podgate-system"})


SERVICES_MAX = 5000
_OPEN_BREAKERS_MIN = 3


class Unmatched(Choice):
    ADMIT = "Admit"
    WARN = "Warn"
    DENY = "Deny"


class FailureMode(Choice):
    CLOSED = "Closed"
    OPEN = "Open"


class Exemptions(Struct, frozen=True, rename="camel"):
    """Pods that no policy applies to; `daemonSets`: those created by the DaemonSet controller."""

    namespaces: tuple[Annotated[str, format_of("namespace-pattern")], ...] = ()
    usernames: tuple[Name, ...] = ()
    runtime_classes: tuple[Annotated[str, format_of("dns-subdomain")], ...] = ()
    daemon_sets: bool = True


class SlaClass(Struct, frozen=True):
    name: Annotated[str, format_of("dns-label")]
    priority: Annotated[int, Meta(extra_json_schema={"minimum": -(10**9), "maximum": 10**9})]


DEFAULT_SLA_CLASSES = (SlaClass("gold", 100), SlaClass("silver", 50), SlaClass("bronze", 10))


class Pool(Struct, frozen=True, rename="camel"):
    name: Annotated[str, format_of("dns-label")]
    windows: Annotated[tuple[Window, ...], Meta(extra_json_schema={"maxItems": WINDOWS_MAX})] = ()
    scope: Scope = Scope.CLUSTER
    when_exceeded: WhenExceeded = WhenExceeded.DENY
    standing: PoolStanding | None = None


class BreakerGuard(Struct, frozen=True, rename="camel"):
    """Limit on the number of denying breakers that are open at one time; further trips are held back."""

    max_open_percent: Percent = 30

    def compute_open_max(self, breakers: int) -> int:
        """Return how many of `breakers` may be open: at least three, because a percentage of a few means nothing."""
        return max(_OPEN_BREAKERS_MIN, self.max_open_percent * breakers // 100)


class Modes(Struct, frozen=True):
    placement: Mode = Mode.ENFORCE
    resources: Mode = Mode.ENFORCE
    quota: Mode = Mode.ENFORCE
    breaker: Mode = Mode.ENFORCE
    scheduling: Mode = Mode.ENFORCE

    def is_all_disabled(self) -> bool:
        """Return whether admission checks nothing. `scheduling` acts later, in the scheduler."""
        return self.placement is self.resources is self.quota is self.breaker is Mode.DISABLED


class OwnerKind(Choice):
    """Kind of the workload whose Pods Kubernetes' own controllers create; a CronJob's Pods are those of its Jobs."""

    DEPLOYMENT = "Deployment"
    REPLICA_SET = "ReplicaSet"
    STATEFUL_SET = "StatefulSet"
    DAEMON_SET = "DaemonSet"
    JOB = "Job"
    REPLICATION_CONTROLLER = "ReplicationController"


class Match(Struct, frozen=True, rename="camel"):
    """Selection of a service's Pods: all fields must hold.

    One of `namespaces`, `namespaceSelector` and `anyNamespace: true` is required.
    """

    namespaces: Annotated[
        tuple[Annotated[str, format_of("namespace-pattern")], ...],
        describe("Names of namespaces, exact or with one * at the end or the beginning."),
    ] = ()
    namespace_selector: Annotated[LabelSelector | None, describe("Labels of Namespaces.")] = None
    pod_selector: Annotated[LabelSelector | None, describe("Labels of Pods.")] = None
    owner_kinds: Annotated[
        tuple[OwnerKind, ...],
        describe("Only Pods that Kubernetes' own controllers create for these kinds of workload."),
    ] = ()
    any_namespace: Annotated[bool, describe("Whether all namespaces are meant.")] = False


class Service(Struct, frozen=True, dict=True, rename="camel"):
    """One service: which Pods it owns, and its rules for them."""

    name: Annotated[str, format_of("dns-label")]
    match: Match
    pool: Annotated[str, format_of("dns-label")] | None = None
    guaranteed: Guaranteed | None = None
    sla_class: Annotated[str, format_of("dns-label")] = "bronze"
    modes: Modes = Modes()
    failure_mode: FailureMode = FailureMode.OPEN
    placement: Placement | None = None
    resources: ResourceRules | None = None
    quota: Quota | None = None
    breaker: Breaker | None = None
    scheduling: Scheduling | None = None
    rules: Rules = ()

    @cached_property
    def placement_plan(self) -> PlacementPlan | None:
        """The precomputed placement."""
        return None if self.placement is None else PlacementPlan.from_placement(self.name, self.placement)

    @cached_property
    def degraded_placement_plan(self) -> PlacementPlan | None:
        """The placement without preferences, for whenOpen: Degrade; the same plan if it has none."""
        return None if self.placement_plan is None else self.placement_plan.drop_preferences()

    @cached_property
    def variants(self) -> Mapping[str, "Service"]:
        """The service as it is for the Pods of each variant, by its name; empty unless shares are enforced."""
        shares = None if self.placement is None else self.placement.shares
        if self.placement is None or shares is None or self.modes.placement is not Mode.ENFORCE:
            return {}
        return {
            variant.name: replace(self, placement=merge_variant(self.placement, variant)) for variant in shares.variants
        }

    @cached_property
    def breaker_variants(self) -> tuple[str, ...]:
        """The variants that have a breaker: all but the last of the list, which nothing replaces."""
        return tuple(self.variants)[:-1]

    @cached_property
    def adapts(self) -> bool:
        """Whether what it asks of a Pod depends on the Pod's Namespace, or on its variant."""
        return bool(self.namespace_keys or self.variants)

    @cached_property
    def range_plan(self) -> RangePlan | None:
        """The precomputed ranges of resources."""
        return None if self.resources is None else RangePlan.from_rules(self.resources)

    @cached_property
    def rule_plan(self) -> RulePlan:
        """Its rules, compiled."""
        return RulePlan.compile(self.rules, ignores_errors=self.failure_mode is FailureMode.OPEN)

    @cached_property
    def namespace_keys(self) -> tuple[str, ...]:
        """The labels of a Namespace that the placement reads, and that decide its team."""
        return (*list_namespace_keys(self.placement), *list_team_keys(self.quota))

    @cached_property
    def annotations_read(self) -> tuple[str, ...]:
        """The keys of a Pod's annotations that the placement reads."""
        return () if self.placement is None else tuple(self.placement.annotations)

    def resolve_namespace(self, namespace_labels: Mapping[str, str]) -> "Service":
        """Return the service with the Namespace labels that it reads replaced by their values, or itself."""
        if self.placement is None or not self.namespace_keys:
            return self
        placement = replace(self.placement, **resolve_namespace_labels(self.placement, namespace_labels))
        return replace(self, placement=placement)

    @property
    def tag(self) -> str:
        """Redis hash tag of the counters: keys with the same tag are in one slot, so that one script can use them."""
        return self.pool or self.name


class PolicyPart(Struct, frozen=True):
    """A part of the policy in a ConfigMap of its own. `pools`: those of the root that its services may join."""

    name: Annotated[str, format_of("dns-label")]
    namespaces: Annotated[
        tuple[Annotated[str, format_of("namespace-pattern")], ...],
        Meta(extra_json_schema={"minItems": 1}),
        describe("The namespaces that its services may name, exact or with one * at the end or the beginning."),
    ]
    pools: tuple[Annotated[str, format_of("dns-label")], ...] = ()


class Policy(Struct, frozen=True, rename="camel"):
    """One whole document, with `defaults` merged into every service. The first matching service owns a Pod."""

    api_version: Literal["podgate.io/v1alpha1"]
    kind: Literal["Policy"]
    services: Annotated[tuple[Service, ...], Meta(extra_json_schema={"minItems": 1, "maxItems": SERVICES_MAX})]
    unmatched: Unmatched = Unmatched.ADMIT
    exemptions: Exemptions = Exemptions()
    sla_classes: Annotated[tuple[SlaClass, ...], Meta(extra_json_schema={"minItems": 1})] = DEFAULT_SLA_CLASSES
    pools: tuple[Pool, ...] = ()
    breaker_guard: BreakerGuard | None = None
    nodes: Nodes | None = None
    rollout: Rollout | None = None
    parts: Annotated[tuple[PolicyPart, ...], Meta(extra_json_schema={"maxItems": 200})] = ()
    workloads: Annotated[
        tuple[CustomWorkload, ...],
        Meta(extra_json_schema={"maxItems": 100}),
        describe("Kinds that are not Kubernetes' own, and where their objects have Pod templates."),
    ] = ()


class QueuePause(Struct, frozen=True):
    """An override that pauses the queue of a service."""

    until_us: int
    reason: str
    by: str = ""


class LoadedPolicy(Struct, frozen=True):
    """A valid policy with its hash: the first 16 hex digits of the SHA-256 of its raw bytes.

    From overrides, by service: `forcings` and `pauses` are manual states of breakers (those of variants by the names of
    their plans) and queues; `overrides` are the live entries that change the service, as a JSON list. `schedules`: what
    those of a quota say at the moment whose limits the policy has; empty as the document is written. `members`: in a
    canary the services of both policies, whose guarantees count in the pools; empty if they are the policy's own.
    """

    policy: Policy
    hash: str
    forcings: Mapping[str, Forcing] = {}
    pauses: Mapping[str, QueuePause] = {}
    overrides: Mapping[str, str] = {}
    schedules: Mapping[str, ScheduleState] = {}
    members: tuple[Service, ...] = ()


def list_variant_breakers(services: Iterable[Service]) -> frozenset[BreakerOwner]:
    """Return the variants of some services that have a breaker."""
    return frozenset(BreakerOwner(of.name, name) for of in services for name in of.breaker_variants)
