"""The stanza `quota` of a service: its limits, and the reaction when they are exceeded."""

from typing import Annotated

from msgspec import Meta, Struct

from webhook.core.kubernetes.quantity import Duration
from webhook.core.kubernetes.types import ResourceAmounts, format_of
from webhook.core.policy_fields.field_types import Choice, Count, default_duration

WINDOWS_MAX = 16  # each Pod is charged to all windows
Hard = Annotated[
    ResourceAmounts, Meta(extra_json_schema={"minProperties": 1, "propertyNames": {"format": "quota-resource"}})
]


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
    """One trailing window of the length `window`, in which no more than `hard` of each resource is charged."""

    window: Annotated[Duration, format_of("window")]
    hard: Hard


class StandingQuota(Struct, frozen=True):
    """Limit on live Pods at one time; `surge` is headroom above `hard` for a rollout."""

    hard: Hard
    surge: Annotated[int | str, format_of("percent-or-count")] = "25%"


class Denial(Struct, frozen=True, rename="camel"):
    status: Annotated[int, Meta(extra_json_schema={"enum": [429, 403]})] = 429
    retry_after: RetryAfter = RetryAfter.NEVER


class QueueRules(Struct, frozen=True, rename="camel"):
    max_pods: Count = 500
    max_wait: Duration = default_duration("15m")
    when_full: WhenFull = WhenFull.DENY
    when_expired: WhenExpired = WhenExpired.DELETE
    on_overload: OnOverload = OnOverload.NONE
    ageing: Duration = default_duration("10m")
    lifted_share: Annotated[str, format_of("percent")] = "10%"


class Quota(Struct, frozen=True, rename="camel"):
    per: Per = Per.SERVICE
    scope: Scope = Scope.CLUSTER
    windows: Annotated[tuple[Window, ...], Meta(extra_json_schema={"maxItems": WINDOWS_MAX})] = ()
    standing: StandingQuota | None = None
    when_exceeded: WhenExceeded = WhenExceeded.DENY
    denial: Denial = Denial()
    queue: QueueRules | None = None
    when_store_unavailable: WhenStoreUnavailable = WhenStoreUnavailable.LOCAL
