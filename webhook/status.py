"""What `GET /status` shows: how every service stands, in the words that `podgate status` prints. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from webhook.core.answers import utc
from webhook.core.breaker import BreakerView
from webhook.core.policy import LoadedPolicy, Service
from webhook.core.quota import CounterPlan, Look, Use
from webhook.core.resources import shown

_SECOND_US = 1_000_000
_DAY_US = 86_400 * _SECOND_US


@dataclass(frozen=True, slots=True)
class StoreHealth:
    """Where the counters live, and why they cannot be read, "" where they can."""

    kind: str
    error: str = ""


@dataclass(frozen=True, slots=True)
class WatchHealth:
    """When the API server last sent something for a watch, None where it never did, and what is wrong since."""

    contact_us: int | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that the document is made from, at one moment. Times in microseconds since the Unix epoch.

    `source` is where the policy comes from, `errors` are those of its newest document, if that was refused. A service
    without a look could not be shown. `watches` are by what they watch, `certificates` is when each expires, by name.
    """

    version: str
    now_us: int
    source: str = ""
    policy: LoadedPolicy | None = None
    loaded_at_us: int | None = None
    errors: Sequence[str] = ()
    plans: Mapping[str, CounterPlan] = field(default_factory=dict)
    looks: Mapping[str, Look] = field(default_factory=dict)
    store: StoreHealth = StoreHealth("memory")
    watches: Mapping[str, WatchHealth] = field(default_factory=dict)
    certificates: Mapping[str, int] = field(default_factory=dict)


def status_document(snapshot: Snapshot) -> dict[str, Any]:
    """Return the document of `GET /status`, ready for JSON."""
    now_us = snapshot.now_us
    services = snapshot.policy.policy.services if snapshot.policy else ()
    return {
        "version": snapshot.version,
        "time": utc(now_us),
        "policy": {
            "source": snapshot.source,
            "hash": snapshot.policy.hash if snapshot.policy else None,
            "loadedAt": _moment(snapshot.loaded_at_us),
            "errors": list(snapshot.errors),
        },
        "store": {
            "kind": snapshot.store.kind,
            "healthy": not snapshot.store.error,
            "error": snapshot.store.error or None,
        },
        "watches": [
            {"resource": resource, "lastContact": _moment(health.contact_us), "error": health.error or None}
            for resource, health in sorted(snapshot.watches.items())
        ],
        "certificates": [
            {"name": name, "notAfter": utc(at_us), "daysLeft": (at_us - now_us) // _DAY_US}
            for name, at_us in sorted(snapshot.certificates.items())
        ],
        "services": [_service(service, snapshot) for service in services],
    }


def _service(service: Service, snapshot: Snapshot) -> dict[str, Any]:
    look, plan = snapshot.looks.get(service.name), snapshot.plans.get(service.name)
    view = look.breaker if look else None
    return {
        "name": service.name,
        "slaClass": service.sla_class,
        "pool": service.pool,
        "failureMode": service.failure_mode,
        "modes": {
            "placement": service.modes.placement,
            "resources": service.modes.resources,
            "quota": service.modes.quota,
            "breaker": service.modes.breaker,
        },
        "known": look is not None,
        "windows": [_window(use, namespace, look.at_us) for namespace, use in _uses(look, plan)] if look else [],
        "breaker": _breaker(view, look.at_us, plan) if look and view else None,
    }


def _uses(look: Look, plan: CounterPlan | None) -> Iterable[tuple[str, Use]]:
    """Return every limit; of a service counted by namespace whose namespaces are all idle, the limits alone."""
    if not look.uses and plan is not None:
        for window in plan.windows:
            for limit in window.limits:
                yield "", Use(window.name, limit.resource, 0, limit.hard)
    for namespace, uses in sorted(look.uses.items()):
        for use in uses:
            yield namespace, use


def _window(use: Use, namespace: str, now_us: int) -> dict[str, Any]:
    """Return one limit. `nextFree` is null where there is room now, or where there never will be."""
    waits = use.free_at_us is not None and use.free_at_us > now_us
    return {
        "window": use.window,
        "resource": use.resource,
        "namespace": namespace or None,
        "used": shown(use.resource, use.used),
        "hard": shown(use.resource, use.hard),
        "full": use.used >= use.hard,
        "nextFree": _moment(use.free_at_us) if waits else None,
        "nextFreeSeconds": _seconds(use.free_at_us - now_us) if waits and use.free_at_us else 0,
    }


def _breaker(view: BreakerView, now_us: int, plan: CounterPlan | None) -> dict[str, Any]:
    return {
        "state": view.state,
        "reason": view.reason,
        "since": _moment(view.since_us),
        "generation": view.generation,
        "openUntil": _moment(view.open_until_us),
        "openRemainingSeconds": _seconds(view.open_remaining_us(now_us)),
        "probes": {
            "leased": view.probes_leased,
            "succeeded": view.probes_succeeded,
            "needed": plan.breaker.probes if plan and plan.breaker else None,
        },
    }


def _moment(at_us: int | None) -> str | None:
    return utc(at_us) if at_us else None


def _seconds(span_us: int) -> int:
    """Return whole seconds, rounded up: a countdown shows 0 only when it is over."""
    return -(-span_us // _SECOND_US)
