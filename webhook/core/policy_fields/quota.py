"""The stanza `quota` of a service: its limits, and the reaction when they are exceeded."""

from typing import Annotated

from msgspec import Meta, Struct, field

from webhook.core.kubernetes.quantity import Duration, Quantity
from webhook.core.kubernetes.types import ResourceAmounts, format_of
from webhook.core.policy_fields.field_types import Choice, Count, NonEmpty, default_duration

WINDOWS_MAX = 16  # each Pod is charged to all windows
GROUP_SIZE_MAX = 512  # the members are charged in one call of the store
SCHEDULES_MAX = 16
Hard = Annotated[
    ResourceAmounts, Meta(extra_json_schema={"minProperties": 1, "propertyNames": {"format": "quota-resource"}})
]


class Per(Choice):
    SERVICE = "Service"
    NAMESPACE = "Namespace"


PerWord = Annotated[str, format_of("quota-per")]
"""One of `Per`, as text, because a mapping may stand in its place."""


class PerLabel(Struct, frozen=True, rename="camel"):
    """Counters of their own for each value of a label of Namespaces, up to `maxValues`; the others share one."""

    namespace_label: Annotated[str, format_of("label-key")]
    max_values: Annotated[int, Meta(extra_json_schema={"minimum": 1, "maximum": 1000})] = 100


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


class GroupSource(Choice):
    """What says that Pods belong together."""

    ANNOTATIONS = "Annotations"
    JOB = "Job"
    JOB_SET = "JobSet"
    LEADER_WORKER_SET = "LeaderWorkerSet"
    POD_GROUP = "PodGroup"
    KUEUE = "Kueue"
    COSCHEDULING = "Coscheduling"
    VOLCANO = "Volcano"


class WhenIncomplete(Choice):
    KEEP = "Keep"
    SINGLE = "Single"


class Window(Struct, frozen=True):
    """One trailing window of the length `window`, in which no more than `hard` of each resource is charged."""

    window: Annotated[Duration, format_of("window")]
    hard: Hard


class StandingQuota(Struct, frozen=True):
    """Limit on live Pods at one time; `surge` is headroom above `hard` for a rollout."""

    hard: Hard
    surge: Annotated[int | str, format_of("percent-or-count")] = "25%"


class PoolStanding(Struct, frozen=True):
    """Limit on the live Pods of a pool's members together, at one time; or what of it is kept for one of them."""

    hard: Hard


class Guaranteed(Struct, frozen=True):
    """The part of its pool's limits that is kept for a service: in windows that the pool has, and of live Pods."""

    windows: Annotated[tuple[Window, ...], Meta(extra_json_schema={"maxItems": WINDOWS_MAX})] = ()
    standing: PoolStanding | None = None


class Day(Choice):
    """A day of the week, in the order of the week."""

    MON = "Mon"
    TUE = "Tue"
    WED = "Wed"
    THU = "Thu"
    FRI = "Fri"
    SAT = "Sat"
    SUN = "Sun"


TimeOfDay = Annotated[str, format_of("time-of-day")]


class Schedule(Struct, frozen=True, rename="camel"):
    """Other limits while the local time is in [begin, end). A period whose end is not after its begin ends a day later.

    `days` are those on which it begins. `factor` multiplies all limits of the quota; `hard` replaces those of its only
    window; `windows` and `standing` replace those that they name.
    """

    name: Annotated[str, format_of("dns-label")]
    begin: TimeOfDay = field(name="from")
    end: TimeOfDay = field(name="to")
    time_zone: Annotated[str, format_of("time-zone")]
    days: Annotated[tuple[Day, ...], Meta(extra_json_schema={"minItems": 1, "maxItems": 7})] = tuple(Day)
    factor: Annotated[Quantity, format_of("factor")] | None = None
    hard: Hard | None = None
    windows: Annotated[tuple[Window, ...], Meta(extra_json_schema={"maxItems": WINDOWS_MAX})] = ()
    standing: "ScheduledStanding | None" = None


class ScheduledStanding(Struct, frozen=True):
    """The limits on live Pods while a schedule is in force; `surge` stays."""

    hard: Hard


class Denial(Struct, frozen=True, rename="camel"):
    status: Annotated[int, Meta(extra_json_schema={"enum": [429, 403]})] = 429
    retry_after: RetryAfter = RetryAfter.NEVER


class GroupRules(Struct, frozen=True, rename="camel"):
    """Pods that belong together are charged and released together.

    `whenIncomplete` applies to members of which others have not come within `waitFor`.
    """

    sources: Annotated[tuple[GroupSource, ...], NonEmpty] = field(name="from")
    wait_for: Duration = default_duration("5m")
    when_incomplete: WhenIncomplete = WhenIncomplete.KEEP
    max_size: Annotated[int, Meta(extra_json_schema={"minimum": 1, "maximum": GROUP_SIZE_MAX})] = GROUP_SIZE_MAX


class QueueRules(Struct, frozen=True, rename="camel"):
    max_pods: Count = 500
    max_wait: Duration = default_duration("15m")
    when_full: WhenFull = WhenFull.DENY
    when_expired: WhenExpired = WhenExpired.DELETE
    on_overload: OnOverload = OnOverload.NONE
    ageing: Duration = default_duration("10m")
    lifted_share: Annotated[str, format_of("percent")] = "10%"
    groups: GroupRules | None = None


class Quota(Struct, frozen=True, rename="camel"):
    per: PerWord | PerLabel = Per.SERVICE
    scope: Scope = Scope.CLUSTER
    windows: Annotated[tuple[Window, ...], Meta(extra_json_schema={"maxItems": WINDOWS_MAX})] = ()
    standing: StandingQuota | None = None
    schedules: Annotated[tuple[Schedule, ...], Meta(extra_json_schema={"maxItems": SCHEDULES_MAX})] = ()
    when_exceeded: WhenExceeded = WhenExceeded.DENY
    denial: Denial = Denial()
    queue: QueueRules | None = None
    when_store_unavailable: WhenStoreUnavailable = WhenStoreUnavailable.LOCAL
