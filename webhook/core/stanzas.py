"""The stanzas of a service: placement, resources, quota, breaker. An absent key takes the default shown here."""

from enum import StrEnum
from functools import partial
from typing import Annotated, Any

from msgspec import Meta, Struct, field

from webhook.core.kubernetes import (
    Affinity,
    LabelKey,
    Labels,
    LabelValue,
    ResourceAmounts,
    Toleration,
    TopologySpreadConstraint,
    Weight,
    format_of,
)
from webhook.core.quantity import Duration

Count = Annotated[int, Meta(extra_json_schema={"minimum": 1, "maximum": 1_000_000})]
Percent = Annotated[int, Meta(extra_json_schema={"minimum": 1, "maximum": 100})]
MOST_WINDOWS = 16  # every Pod is charged to all of them
NonEmpty = Meta(extra_json_schema={"minItems": 1})
Name = Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": 253})]
Interval = Annotated[Duration, format_of("interval")]
ContainerAmounts = Annotated[
    ResourceAmounts, Meta(extra_json_schema={"propertyNames": {"format": "container-resource"}})
]
Hard = Annotated[
    ResourceAmounts, Meta(extra_json_schema={"minProperties": 1, "propertyNames": {"format": "quota-resource"}})
]


def _default(text: str) -> Any:
    """Return a duration's default, as a factory: msgspec's schema cannot show a default of a type of ours."""
    return field(default_factory=partial(Duration.parse, text))


class Choice(StrEnum):
    """A CamelCase word of the document."""


class Mode(Choice):
    """Enforce acts; Warn says it; Audit only counts it; Disabled does not look."""

    ENFORCE = "Enforce"
    WARN = "Warn"
    AUDIT = "Audit"
    DISABLED = "Disabled"


class OnConflict(Choice):
    DENY = "Deny"
    KEEP = "Keep"
    OVERRIDE = "Override"


class Level(Choice):
    REGION = "Region"
    ZONE = "Zone"


LEVEL_LABELS = {Level.REGION: "topology.kubernetes.io/region", Level.ZONE: "topology.kubernetes.io/zone"}


class TopologyEntry(Struct, frozen=True, rename="camel"):
    """Exactly one of `level` and `key`; required unless it has a `preferredWeight`."""

    values: Annotated[tuple[LabelValue, ...], NonEmpty] = field(name="in")
    level: Level | None = None
    key: LabelKey | None = None
    preferred_weight: Weight | None = None

    @property
    def label(self) -> str:
        """The node label that this entry speaks of."""
        return LEVEL_LABELS[self.level] if self.level is not None else self.key or ""


class ConflictRules(Struct, frozen=True, rename="camel"):
    default: OnConflict = OnConflict.DENY
    scheduler_name: OnConflict | None = None
    node_selector: OnConflict | None = None
    topology_spread_constraints: OnConflict | None = None
    priority_class_name: OnConflict | None = None
    runtime_class_name: OnConflict | None = None


class Placement(Struct, frozen=True, rename="camel"):
    scheduler_name: Annotated[str, format_of("dns-subdomain")] | None = None
    node_selector: Labels = {}
    topology: tuple[TopologyEntry, ...] = ()
    affinity: Affinity = Affinity()
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    priority_class_name: Annotated[str, format_of("dns-subdomain")] | None = None
    runtime_class_name: Annotated[str, format_of("dns-subdomain")] | None = None
    on_conflict: ConflictRules = ConflictRules()


class WhenOutside(Choice):
    DENY = "Deny"
    CLAMP = "Clamp"


class ContainerRange(Struct, frozen=True, rename="camel"):
    """LimitRange's words for one container; `ignore` lists container names, exact or with one trailing `*`."""

    default_request: ContainerAmounts = {}
    default: ContainerAmounts = {}
    min: ContainerAmounts = {}
    max: ContainerAmounts = {}
    ignore: tuple[Annotated[str, format_of("name-pattern")], ...] = ()


class PodRange(Struct, frozen=True):
    min: ContainerAmounts = {}
    max: ContainerAmounts = {}


class ResourceRules(Struct, frozen=True, rename="camel"):
    container: ContainerRange = ContainerRange()
    pod: PodRange = PodRange()
    when_outside: WhenOutside = WhenOutside.DENY


class Per(Choice):
    SERVICE = "Service"
    NAMESPACE = "Namespace"


class Scope(Choice):
    CLUSTER = "Cluster"
    FLEET = "Fleet"


class WhenExceeded(Choice):
    DENY = "Deny"
    QUEUE = "Queue"


class RetryAfter(Choice):
    NEVER = "Never"
    USERS = "Users"


class WhenStoreUnavailable(Choice):
    LOCAL = "Local"
    ALLOW = "Allow"
    DENY = "Deny"


class WhenFull(Choice):
    DENY = "Deny"


class WhenExpired(Choice):
    DELETE = "Delete"
    KEEP = "Keep"


class OnOverload(Choice):
    NONE = "None"
    GATE = "Gate"


class Window(Struct, frozen=True):
    """One trailing window: `window` long, never more than `hard` of each resource in it."""

    window: Annotated[Duration, format_of("window")]
    hard: Hard


class Standing(Struct, frozen=True):
    """Live Pods at one time; `surge` is room above `hard` for a rollout."""

    hard: Hard
    surge: Annotated[int | str, format_of("percent-or-count")] = "25%"


class Denial(Struct, frozen=True, rename="camel"):
    status: Annotated[int, Meta(extra_json_schema={"enum": [429, 403]})] = 429
    retry_after: RetryAfter = RetryAfter.NEVER


class QueueRules(Struct, frozen=True, rename="camel"):
    max_pods: Count = 500
    max_wait: Duration = _default("15m")
    when_full: WhenFull = WhenFull.DENY
    when_expired: WhenExpired = WhenExpired.DELETE
    on_overload: OnOverload = OnOverload.NONE
    ageing: Duration = _default("10m")


class Quota(Struct, frozen=True, rename="camel"):
    per: Per = Per.SERVICE
    scope: Scope = Scope.CLUSTER
    windows: Annotated[tuple[Window, ...], Meta(extra_json_schema={"maxItems": MOST_WINDOWS})] = ()
    standing: Standing | None = None
    when_exceeded: WhenExceeded = WhenExceeded.DENY
    denial: Denial = Denial()
    queue: QueueRules | None = None
    when_store_unavailable: WhenStoreUnavailable = WhenStoreUnavailable.LOCAL


class OutcomeSource(Choice):
    PUSHED = "Pushed"
    POD_START = "PodStart"


class Outcomes(Struct, frozen=True, rename="camel"):
    """Where the breaker hears how a service fares."""

    source: OutcomeSource
    reporters: tuple[Name, ...] = ()
    start_deadline: Duration = _default("5m")


class ErrorRate(Struct, frozen=True, rename="camel"):
    """Trips when each of the last `consecutive` complete intervals has at least `percent` errors."""

    percent: Percent = 95
    interval: Interval = _default("1s")
    consecutive: Count = 3
    minimum_outcomes: Count = 10


class Latency(Struct, frozen=True, rename="camel"):
    """Trips when each of the last `consecutive` complete intervals has a mean above `mean`."""

    mean: Duration = _default("2s")
    interval: Interval = _default("1s")
    consecutive: Count = 5
    minimum_outcomes: Count = 1


class CountBy(Choice):
    CONTROLLER = "Controller"
    REQUEST = "Request"


class QuotaExceeded(Struct, frozen=True, rename="camel"):
    """Trips on `count` quota events `within` a trailing span."""

    count: Annotated[int, Meta(extra_json_schema={"minimum": 1, "maximum": 1000})] = 10
    within: Duration = _default("1m")
    count_by: CountBy = CountBy.CONTROLLER


class HalfOpen(Struct, frozen=True, rename="camel"):
    probes: Annotated[int, Meta(extra_json_schema={"minimum": 1, "maximum": 100})] = 3
    probe_timeout: Duration = _default("5m")


class WhenOpen(Choice):
    DENY = "Deny"
    DEGRADE = "Degrade"
    QUEUE = "Queue"


class Breaker(Struct, frozen=True, rename="camel"):
    outcomes: Outcomes | None = None
    error_rate: ErrorRate | None = None
    latency: Latency | None = None
    quota_exceeded: QuotaExceeded | None = None
    open_for: Duration = _default("180s")
    half_open: HalfOpen = field(default_factory=HalfOpen)
    when_open: WhenOpen = WhenOpen.DENY
