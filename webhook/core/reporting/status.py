"""What `GET /status` shows: how every service stands, in the words that `podgate status` prints. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from webhook.core.admission.denials import utc
from webhook.core.breaker import BreakerView
from webhook.core.ledger.live_set import LiveSet
from webhook.core.overrides import Override, combined, remarks
from webhook.core.policy.model import LoadedPolicy, Pool, Service
from webhook.core.policy_spec import Scope
from webhook.core.quota import CounterPlan, Holder, ServiceSnapshot, Use, WindowPlan
from webhook.core.quota.open_breaker_limit import guarded
from webhook.core.quota.pod_cost import shown

_SECOND_US = 1_000_000
_DAY_US = 86_400 * _SECOND_US


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """Where the counters live, why they cannot be read ("" where they can), and how this server judges meanwhile."""

    kind: str
    error: str = ""
    mode: str = ""


@dataclass(frozen=True, slots=True)
class ReplicaAssignment:
    """Among how many servers the limits are divided while the store is away, and which of them this is, from 0.

    `source` is who says so: `settings`, `leases`, or nobody, which is `default`.
    """

    count: int = 1
    ordinal: int = 0
    source: str = "default"


@dataclass(frozen=True, slots=True)
class WatchStatus:
    """When the API server last sent something for a watch, None where it never did, and what is wrong since."""

    contact_us: int | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class OverridesStatus:
    """Where overrides come from ("": nowhere), what is wrong with the newest of them, and the live ones by service."""

    source: str = ""
    errors: Sequence[str] = ()
    entries: Mapping[str, tuple[Override, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """Everything that the document is made from, at one moment. Times in microseconds since the Unix epoch.

    `source` is where the policy comes from, `errors` are those of its newest document, if that was refused. A service
    without a look could not be shown. `watches` are by what they watch, `certificates` is when each expires, by name.
    """

    version: str
    now_us: int
    wall_us: int
    """By the clock on the wall, which certificates go by: the other stands still while a machine is suspended."""
    source: str = ""
    policy: LoadedPolicy | None = None
    loaded_at_us: int | None = None
    errors: Sequence[str] = ()
    overrides: OverridesStatus = OverridesStatus()
    plans: Mapping[str, CounterPlan] = field(default_factory=dict)
    looks: Mapping[str, ServiceSnapshot] = field(default_factory=dict)
    store: StoreStatus = StoreStatus("memory")
    replicas: ReplicaAssignment = ReplicaAssignment()
    watches: Mapping[str, WatchStatus] = field(default_factory=dict)
    certificates: Mapping[str, int] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    """What is wrong with each watched file as it stands now, "" where it is in force, by name."""
    client_identity: str = ""
    """How callers are known; "" where there are none, as for a controller."""
    not_ready: Sequence[str] = ()
    """Why it should get no calls."""


def status_document(snapshot: ServerStatus) -> dict[str, Any]:
    """Return the document of `GET /status`, ready for JSON."""
    now_us = snapshot.now_us
    services = snapshot.policy.policy.services if snapshot.policy else ()
    return {
        "version": snapshot.version,
        "time": utc(now_us),
        "clientIdentity": snapshot.client_identity or None,
        "notReady": list(snapshot.not_ready),
        "policy": {
            "source": snapshot.source,
            "hash": snapshot.policy.hash if snapshot.policy else None,
            "loadedAt": _moment(snapshot.loaded_at_us),
            "errors": list(snapshot.errors),
        },
        "overrides": {
            "source": snapshot.overrides.source or None,
            "errors": list(snapshot.overrides.errors),
            "entries": [
                {"service": name, **_override(entry, snapshot)}
                for name, its in sorted(snapshot.overrides.entries.items())
                for entry in its
            ],
        },
        "store": {
            "kind": snapshot.store.kind,
            "healthy": not snapshot.store.error,
            "error": snapshot.store.error or None,
            "mode": snapshot.store.mode or None,
        },
        "replicas": {
            "count": snapshot.replicas.count,
            "ordinal": snapshot.replicas.ordinal,
            "source": snapshot.replicas.source,
        },
        "watches": [
            {"resource": resource, "lastContact": _moment(health.contact_us), "error": health.error or None}
            for resource, health in sorted(snapshot.watches.items())
        ],
        "certificates": [
            {"name": name, "notAfter": utc(at_us), "daysLeft": (at_us - snapshot.wall_us) // _DAY_US}
            for name, at_us in sorted(snapshot.certificates.items())
        ],
        "files": [{"name": name, "error": error or None} for name, error in sorted(snapshot.files.items())],
        "breakerGuard": _guard(snapshot),
        "pools": [_pool(pool, snapshot) for pool in (snapshot.policy.policy.pools if snapshot.policy else ())],
        "services": [_service(service, snapshot) for service in services],
    }


def _service(service: Service, snapshot: ServerStatus) -> dict[str, Any]:
    look, plan = snapshot.looks.get(service.name), snapshot.plans.get(service.name)
    its = snapshot.overrides.entries.get(service.name, ())
    view, told = look.breaker if look else None, look if look and look.is_told else None
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
        "override": _override(_as_one(its), snapshot) if its else None,
        "known": told is not None,
        "windows": [_window(use, namespace, told) for namespace, use in _uses(told, plan)],
        "breaker": _breaker(view, look.at_us, plan) if look and view else None,
    }


def _as_one(entries: Sequence[Override]) -> Override:
    """Return all that is done to a service up to the first end, and each reason."""
    first = min(entries, key=lambda entry: entry.until_us)
    reasons = "; ".join(dict.fromkeys(entry.reason for entry in entries))
    by = ", ".join(dict.fromkeys(entry.by for entry in entries if entry.by))
    return replace(combined(entries), until=first.until, reason=reasons, by=by or None)


def _override(entry: Override, snapshot: ServerStatus) -> dict[str, Any]:
    """Return what is done, until when and why; `withoutEffect` says what of it the policy in force leaves idle."""
    done = {key: value for key, value in entry.plain().items() if key != "service"}
    idle = remarks(snapshot.policy.policy, entry) if snapshot.policy else ()
    left = {"remainingSeconds": max(0, _seconds(entry.until_us - snapshot.now_us))}
    return {**done, **left, "withoutEffect": list(idle)}


def _guard(snapshot: ServerStatus) -> dict[str, Any] | None:
    """Return how many breakers are open, and with how many further trips are held back; null without a guard."""
    found = guarded(snapshot.plans.values(), snapshot.looks)
    return None if found is None else {"open": found.opened, "max": found.open_max}


def _pool(pool: Pool, snapshot: ServerStatus) -> dict[str, Any]:
    """Return how a pool stands, as the member saw it that was asked last: all of them see the same counters."""
    members = [plan for plan in snapshot.plans.values() if plan.pool is not None and plan.pool.name == pool.name]
    looks = [look for plan in members if (look := snapshot.looks.get(plan.service)) is not None and look.pool]
    look = max(looks, key=lambda seen: seen.at_us, default=None)
    windows = [WindowPlan.of(window) for window in pool.windows]
    uses = look.pool if look is not None else _unused(windows, Holder.POOL)
    return {
        "name": pool.name,
        "scope": pool.scope,
        "members": [plan.service for plan in members],
        "known": look is not None,
        "windows": [_window(use, "", look) for use in uses],
    }


def _uses(look: ServiceSnapshot | None, plan: CounterPlan | None) -> Iterable[tuple[str, Use]]:
    """Return every limit; the limits alone where nobody knows, or where all namespaces that count apart are idle."""
    if look is not None and look.uses:
        for namespace, uses in sorted(look.uses.items()):
            for use in uses:
                yield namespace, use
    elif plan is not None:
        for use in (
            *_unused(plan.windows, Holder.SERVICE),
            *(LiveSet().uses(plan.standing, 0) if plan.standing else ()),
        ):
            yield "", use


def _unused(windows: Iterable[WindowPlan], of: Holder) -> Iterable[Use]:
    return (Use(window.name, limit.resource, 0, limit.hard, of=of) for window in windows for limit in window.limits)


def _window(use: Use, namespace: str, look: ServiceSnapshot | None) -> dict[str, Any]:
    """Return one limit; without a look all but `hard` is null, for nobody knows.

    `nextFree` is null where there is room now, too, or where there never will be. One on live Pods, whose room nobody
    can foretell, says besides what room there is above `hard` now, and whether it is enforced.
    """
    limit: dict[str, Any] = {"window": use.window, "resource": use.resource, "namespace": namespace or None}
    if use.of is Holder.STANDING:
        limit["surge"] = shown(use.resource, use.surge) if look is not None else None
        limit["enforced"] = look.is_standing_known if look is not None else None
    hard = shown(use.resource, use.hard)
    if look is None:
        return {**limit, "used": None, "hard": hard, "full": None, "nextFree": None, "nextFreeSeconds": None}
    waits = use.free_at_us is not None and use.free_at_us > look.at_us
    return {
        **limit,
        "used": shown(use.resource, use.used),
        "hard": hard,
        "full": use.used >= use.hard + use.surge,
        "nextFree": _moment(use.free_at_us) if waits else None,
        "nextFreeSeconds": _seconds(use.free_at_us - look.at_us) if waits and use.free_at_us else 0,
    }


def _breaker(view: BreakerView, now_us: int, plan: CounterPlan | None) -> dict[str, Any]:
    """Return how a breaker stands; `openUntil` is also when a hand lets go of it, `failed` who may not probe early."""
    return {
        "state": view.state,
        "reason": view.reason,
        "since": _moment(view.since_us),
        "generation": view.generation,
        "trippedAt": _moment(view.tripped_at_us),
        "trippedBy": view.tripped_by or None,
        "openUntil": _moment(view.open_until_us),
        "openRemainingSeconds": _seconds(view.open_remaining_us(now_us)),
        "probes": {
            "leased": view.probes_leased,
            "succeeded": view.probes_succeeded,
            "needed": plan.breaker.probes if plan and plan.breaker else None,
            "early": view.early,
        },
        "failed": list(view.failed),
    }


def _moment(at_us: int | None) -> str | None:
    return utc(at_us) if at_us else None


def _seconds(span_us: int) -> int:
    """Return whole seconds, rounded up: a countdown shows 0 only when it is over."""
    return -(-span_us // _SECOND_US)
