"""Status documents of `GET /status`: a server's, with all services, and a controller's."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from msgspec.structs import replace

from webhook.core.admission.denials import format_utc
from webhook.core.overrides import Override, combine, list_remarks
from webhook.core.policy.model import LoadedPolicy, Pool, Service
from webhook.core.policy_fields import Scope
from webhook.core.quota import CounterPlan, Holder, PoolPlan, ServiceSnapshot, Use
from webhook.core.reporting.queue_document import QueueDepth, render_depths
from webhook.core.reporting.rollout_document import render_rollout
from webhook.core.reporting.shares_document import render_shares
from webhook.core.reporting.status_parts import (
    NO_DECISIONS,
    NO_OVERLOAD,
    DecisionsStatus,
    OverloadStatus,
    StoreStatus,
    count_guarded,
    format_moment,
    list_limits,
    list_unused_limits,
    render_breaker,
    render_guarantees,
    render_limit,
    render_place,
    render_schedule,
    render_shared,
    round_up_seconds,
)
from webhook.core.rollout.counting import ShadowTotals
from webhook.core.rollout.state import RolloutView

_DAY_US = 86_400_000_000
CONTROLLER = "controller"
"""`role` in the document of a controller; a server's has none."""
_MEMORY, _REDIS = StoreStatus("memory"), StoreStatus("redis")


@dataclass(frozen=True, slots=True)
class ReplicaAssignment:
    """The number of servers that share the limits while the store is unavailable, and this one's ordinal, from 0."""

    count: int = 1
    ordinal: int = 0
    source: str = "default"  # or `settings`, `leases`


@dataclass(frozen=True, slots=True)
class WatchStatus:
    """Last contact with the API server on a watch, None for never, and the current error."""

    contact_us: int | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class WebhooksStatus:
    """Last comparison of the webhook configurations with the policy, None for never, what differs, and the error."""

    compared_us: int | None = None
    outdated: Sequence[str] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class OverridesStatus:
    """Source of overrides ("" for none), the errors of the newest document, and the live entries by service."""

    source: str = ""
    errors: Sequence[str] = ()
    entries: Mapping[str, tuple[Override, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """State of a server at one moment. Times in microseconds since the Unix epoch.

    `source` is that of the policy; `errors` are those of its newest document, if it was rejected. A service without a
    snapshot is unknown. `watches` are by resource, `certificates` expiry times by name, `candidate` is a canary's.
    """

    version: str
    now_us: int
    wall_us: int
    """Wall-clock time, for certificates: the other clock stops while a machine is suspended."""
    last_review_us: int = 0
    """When this server's last review began, 0 before the first."""
    source: str = ""
    policy: LoadedPolicy | None = None
    loaded_at_us: int | None = None
    errors: Sequence[str] = ()
    overrides: OverridesStatus = OverridesStatus()
    plans: Mapping[str, CounterPlan] = field(default_factory=dict)
    candidate: Mapping[str, Service] = field(default_factory=dict)
    snapshots: Mapping[str, ServiceSnapshot] = field(default_factory=dict)
    store: StoreStatus = _MEMORY
    replicas: ReplicaAssignment = ReplicaAssignment()
    watches: Mapping[str, WatchStatus] = field(default_factory=dict)
    certificates: Mapping[str, int] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    """The error of each watched file by name, "" where its content is in use."""
    client_identity: str = ""
    """Mode of client authentication."""
    not_ready: Sequence[str] = ()
    """Reasons not to be ready."""
    webhooks: WebhooksStatus | None = None
    """None unless this process compares the webhook configurations."""
    decisions: DecisionsStatus = NO_DECISIONS
    overload: OverloadStatus = NO_OVERLOAD
    queues: Sequence[QueueDepth] | None = None  # unless this process leads
    rollout: RolloutView | None = None
    shadow: ShadowTotals | None = None


@dataclass(frozen=True, slots=True)
class ControllerStatus:
    """State of a controller at one moment: whether it leads, and what it depends on.

    `waits_for` is why it does not lead. `watches` are errors by resource, "" for none. `certificates` is None if it
    manages none.
    """

    version: str
    waits_for: str = ""
    source: str = ""
    policy: LoadedPolicy | None = None
    loaded_at_us: int | None = None
    errors: Sequence[str] = ()
    store: StoreStatus = _REDIS
    watches: Mapping[str, WatchStatus] = field(default_factory=dict)
    certificates: Mapping[str, Any] | None = None
    not_ready: Sequence[str] = ()
    webhooks: WebhooksStatus | None = None
    queues: Sequence[QueueDepth] | None = None  # unless it leads
    rollout: RolloutView | None = None


def render_controller_status(status: ControllerStatus) -> dict[str, Any]:
    """Return the status document of a controller, ready for JSON."""
    return {
        "version": status.version,
        "role": CONTROLLER,
        "leads": not status.waits_for,
        "waitsFor": status.waits_for,
        "notReady": list(status.not_ready),
        "policy": _render_policy(status),
        "rollout": render_rollout(status.rollout),
        "store": {"kind": status.store.kind, "error": status.store.error, **render_place(status.store)},
        "watches": {resource: watch.error for resource, watch in status.watches.items()},
        "certificates": status.certificates,
        "webhooks": _render_webhooks(status.webhooks),
        "queues": render_depths(status.queues),
    }


def render_server_status(status: ServerStatus) -> dict[str, Any]:
    """Return the status document of a server, ready for JSON."""
    policy = status.policy.policy if status.policy else None
    return {
        "version": status.version,
        "time": format_utc(status.now_us),
        "lastReviewAt": format_moment(status.last_review_us),
        "clientIdentity": status.client_identity or None,
        "notReady": list(status.not_ready),
        "policy": _render_policy(status),
        "rollout": render_rollout(status.rollout, status.shadow),
        "overrides": {
            "source": status.overrides.source or None,
            "errors": list(status.overrides.errors),
            "entries": [
                {"service": name, **_render_override(entry, status)}
                for name, its in sorted(status.overrides.entries.items())
                for entry in its
            ],
        },
        "store": {
            "kind": status.store.kind,
            "healthy": not status.store.error,
            "error": status.store.error or None,
            "mode": status.store.mode or None,
            **render_place(status.store),
        },
        "replicas": asdict(status.replicas),
        "watches": [
            {"resource": resource, "lastContact": format_moment(health.contact_us), "error": health.error or None}
            for resource, health in sorted(status.watches.items())
        ],
        "certificates": [
            {"name": name, "notAfter": format_utc(at_us), "daysLeft": (at_us - status.wall_us) // _DAY_US}
            for name, at_us in sorted(status.certificates.items())
        ],
        "files": [{"name": name, "error": error or None} for name, error in sorted(status.files.items())],
        "webhooks": _render_webhooks(status.webhooks),
        "decisions": status.decisions.document,
        "overload": status.overload.document,
        "queues": render_depths(status.queues),
        "breakerGuard": _render_guard(status),
        "pools": [_render_pool(pool, status) for pool in (policy.pools if policy else ())],
        "services": [_render_service(service, status) for service in (policy.services if policy else ())],
    }


def _render_webhooks(webhooks: WebhooksStatus | None) -> dict[str, Any] | None:
    if webhooks is None:
        return None
    return {
        "comparedAt": format_moment(webhooks.compared_us),
        "outdated": list(webhooks.outdated),
        "error": webhooks.error or None,
    }


def _render_service(service: Service, status: ServerStatus) -> dict[str, Any]:
    snapshot, plan = status.snapshots.get(service.name), status.plans.get(service.name)
    probes = plan.breaker.probes if plan and plan.breaker else None
    own = status.overrides.entries.get(service.name, ())
    entries = [entry for entry in own if not entry.target_key]
    view, usage = snapshot.breaker if snapshot else None, snapshot if snapshot and snapshot.has_usage else None
    return {
        "name": service.name,
        "slaClass": service.sla_class,
        "pool": service.pool,
        "scope": Scope.FLEET if plan and plan.fleet else Scope.CLUSTER,
        "failureMode": service.failure_mode,
        "modes": {
            "placement": service.modes.placement,
            "resources": service.modes.resources,
            "quota": service.modes.quota,
            "breaker": service.modes.breaker,
        },
        "schedule": render_schedule(plan.schedule) if plan and plan.schedule else None,
        "override": _render_override(_merge_overrides(entries), status) if entries else None,
        "exceptions": [_render_override(entry, status) for entry in own if entry.target is not None],
        "known": usage is not None,
        "windows": [render_limit(use, scope, usage, plan) for scope, use in list_limits(usage, plan)],
        "guaranteed": render_guarantees(plan, usage),
        "breaker": render_breaker(view, snapshot.at_us, probes) if snapshot and view else None,
        "shares": render_shares(service, status.snapshots, status.candidate.get(service.name)),
    }


def _render_policy(status: ServerStatus | ControllerStatus) -> dict[str, Any]:
    return {
        "source": status.source,
        "hash": status.policy.hash if status.policy else None,
        "loadedAt": format_moment(status.loaded_at_us),
        "errors": list(status.errors),
    }


def _merge_overrides(entries: Sequence[Override]) -> Override:
    """Merge the overrides of a service into one that ends with the first of them and has all reasons."""
    first = min(entries, key=lambda entry: entry.until_us)
    reasons = "; ".join(dict.fromkeys(entry.reason for entry in entries))
    by = ", ".join(dict.fromkeys(entry.by for entry in entries if entry.by))
    return replace(combine(entries), until=first.until, reason=reasons, by=by or None)


def _render_override(entry: Override, status: ServerStatus) -> dict[str, Any]:
    """Return an override; `withoutEffect` has the parts that change nothing under the current policy."""
    done = {key: value for key, value in entry.encode_plain().items() if key != "service"}
    idle = list_remarks(status.policy.policy, entry, status.candidate) if status.policy else ()
    left = max(0, round_up_seconds(entry.until_us - status.now_us))
    return {**done, "remainingSeconds": left, "withoutEffect": list(idle)}


def _render_guard(status: ServerStatus) -> dict[str, Any] | None:
    """Return the number of open breakers and their limit; null without a guard."""
    found = count_guarded(status.plans.values(), status.snapshots)
    return None if found is None else {"open": found.opened, "max": found.open_max}


def _render_pool(pool: Pool, status: ServerStatus) -> dict[str, Any]:
    """Return a pool with its newest snapshot; all members see the same counters."""
    members = [plan for plan in status.plans.values() if plan.pool is not None and plan.pool.name == pool.name]
    snapshots = [
        snapshot for plan in members if (snapshot := status.snapshots.get(plan.service)) is not None and snapshot.pool
    ]
    snapshot = max(snapshots, key=lambda seen: seen.at_us, default=None)
    limiting = PoolPlan.from_pool(pool, "", None).limiting
    uses: Iterable[Use] = snapshot.pool if snapshot is not None else list_unused_limits(limiting, Holder.POOL)
    if snapshot is not None and any(use.guarantee is not None for use in snapshot.pool):
        # A member may have room of its own: what all share is free for the last of them.
        of_members = zip(*(seen.pool for seen in snapshots if seen.at_us == snapshot.at_us), strict=False)
        uses = [max(found, key=lambda use: use.free_at_us or 0) for found in of_members]
    return {
        "name": pool.name,
        "scope": pool.scope,
        "members": [plan.service for plan in members],
        "known": snapshot is not None,
        "windows": [
            {**render_limit(use, "", snapshot), **(render_shared(members[0], use, snapshot) if members else {})}
            for use in uses
        ],
    }
