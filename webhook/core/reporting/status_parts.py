"""Parts of the status documents: limits, breakers, decision records, overload, store, and ServiceStatus objects."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from webhook.core.admission.denials import format_utc
from webhook.core.breaker import BreakerView
from webhook.core.ledger.live_set import LiveSet
from webhook.core.overload import OverloadCause
from webhook.core.policy.schedules import ScheduleState, describe_effect
from webhook.core.quota import CounterPlan, Holder, ServiceSnapshot, Use, WindowPlan
from webhook.core.quota.pod_cost import format_amount


@dataclass(frozen=True, slots=True)
class DecisionsStatus:
    """Records of this server: kept, written to the shared store, dropped before that, and the current error.

    `written` is None without a shared store.
    """

    kept: int
    written: int | None = None
    dropped: int = 0
    error: str = ""

    @property
    def document(self) -> dict[str, int | str | None]:
        """Return the part of the status document."""
        return {"kept": self.kept, "written": self.written, "dropped": self.dropped, "error": self.error or None}


NO_DECISIONS = DecisionsStatus(0)


@dataclass(frozen=True, slots=True)
class StoreServer:
    """A Redis server: its address in a Cluster, what it reports of itself ("" for nothing), and its latency."""

    name: str
    version: str
    eviction_policy: str
    latency_us: int
    run_id: str = ""
    """Identifies a Redis process, whatever its address is."""
    append_only: bool | None = None
    """Whether it writes each change to its append-only file; None if it does not say."""
    save: str | None = None
    """When it saves snapshots, as its `save` says; None: not known, or not asked for because of the file."""


@dataclass(frozen=True, slots=True)
class StoreServers:
    """The servers of a store; the error if they did not tell."""

    servers: Sequence[StoreServer] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class StorePlace:
    """Where the counters are in Redis: the name of the cluster in their keys, and the number of the database."""

    cluster: str = ""
    database: int = 0


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """The kind of store, its error ("" for none), and the rules that apply to services meanwhile."""

    kind: str
    error: str = ""
    mode: str = ""
    servers: StoreServers = StoreServers()
    place: StorePlace = StorePlace()


def render_place(store: StoreStatus) -> dict[str, Any]:
    """Return where the counters are: processes are compared by it."""
    return {
        "cluster": store.place.cluster or None,
        "database": store.place.database,
        "servers": [
            {
                "name": server.name or None,
                "version": server.version or None,
                "evictionPolicy": server.eviction_policy or None,
                "latencySeconds": server.latency_us / 1_000_000,
                "runId": server.run_id or None,
                "appendOnly": server.append_only,
                "save": server.save,
            }
            for server in store.servers.servers
        ],
        "serversError": store.servers.error or None,
    }


class Guarded(NamedTuple):
    """Number of breakers in OPEN or HALF_OPEN, and the number from which a further trip is held back."""

    opened: int
    open_max: int


def count_guarded(plans: Iterable[CounterPlan], snapshots: Mapping[str, ServiceSnapshot]) -> Guarded | None:
    """Return the count over the known breakers; None if no trip is ever held back."""
    opened, open_max = 0, None
    for plan in plans:
        if plan.breaker is None or plan.breaker.open_max is None:
            continue
        snapshot, open_max = snapshots.get(plan.service), plan.breaker.open_max
        opened += snapshot is not None and snapshot.breaker is not None and snapshot.breaker.state.is_tripped
    return None if open_max is None else Guarded(opened, open_max)


def render_service_status(plan: CounterPlan, view: BreakerView) -> dict[str, Any]:
    """Return `status`, ready for JSON; empty without a breaker in force. Absent values are left out.

    Times are UTC in RFC 3339 format. `openUntil` may be the end of a manual state.
    """
    if plan.breaker is None:
        return {}
    fields = {
        "state": str(view.state),
        "mode": str(plan.breaker_mode),
        "since": format_moment(view.since_us),
        "reason": view.reason or None,
        "generation": view.generation,
        "trippedAt": format_moment(view.tripped_at_us),
        "trippedBy": view.tripped_by or None,
        "openUntil": format_moment(view.open_until_us),
        "probes": {
            "needed": plan.breaker.probes,
            "leased": view.probes_leased,
            "succeeded": view.probes_succeeded,
            "early": view.early,
        },
    }
    return {"breaker": {name: value for name, value in fields.items() if value is not None}}


_SECOND_US = 1_000_000


def list_limits(snapshot: ServiceSnapshot | None, plan: CounterPlan | None) -> Iterable[tuple[str, Use]]:
    """Yield each limit by namespace; without usage if it is unknown, or if all namespaces are idle."""
    if snapshot is not None and snapshot.uses:
        for namespace, uses in sorted(snapshot.uses.items()):
            for use in uses:
                yield namespace, use
    elif plan is not None:
        for use in (
            *list_unused_limits(plan.windows, Holder.SERVICE),
            *(LiveSet().list_uses(plan.standing, 0) if plan.standing else ()),
        ):
            yield "", use


def list_unused_limits(windows: Iterable[WindowPlan], of: Holder) -> Iterable[Use]:
    return (Use(window.name, limit.resource, 0, limit.hard, of=of) for window in windows for limit in window.limits)


def render_limit(
    use: Use, scope: str, snapshot: ServiceSnapshot | None, plan: CounterPlan | None = None
) -> dict[str, Any]:
    """Return the row of one limit; without a snapshot all but `hard` is null. Only limits of teams have `team`.

    `nextFree` is null if capacity is free now, or never will be. A limit on live Pods has no such time; it
    has whether it is enforced and, unless it is a pool's, the current `surge` above `hard`.
    """
    has_teams = plan is not None and bool(plan.team_key)
    limit: dict[str, Any] = {"window": use.window, "resource": use.resource}
    limit |= {"namespace": None, "team": scope or None} if has_teams else {"namespace": scope or None}
    if use.of is Holder.STANDING:
        limit["surge"] = format_amount(use.resource, use.surge) if snapshot is not None else None
        limit["enforced"] = snapshot.is_standing_known if snapshot is not None else None
    elif use.counts_live_pods:
        limit["enforced"] = snapshot.is_pool_standing_known if snapshot is not None else None
    hard = format_amount(use.resource, use.hard)
    if snapshot is None:
        return {**limit, "used": None, "hard": hard, "full": None, "nextFree": None, "nextFreeSeconds": None}
    waits = use.free_at_us is not None and use.free_at_us > snapshot.at_us
    return {
        **limit,
        "used": format_amount(use.resource, use.used),
        "hard": hard,
        "full": use.used >= use.hard + use.surge,
        "nextFree": format_moment(use.free_at_us) if waits else None,
        "nextFreeSeconds": round_up_seconds(use.free_at_us - snapshot.at_us) if waits and use.free_at_us else 0,
    }


def render_guarantees(plan: CounterPlan | None, snapshot: ServiceSnapshot | None) -> list[dict[str, Any]]:
    """Return what of its pool is guaranteed to a service, and what is left of that; null if its use is unknown."""
    if plan is None or not plan.has_guarantees:
        return []
    known = {} if snapshot is None else {(use.window, use.resource): use.guarantee for use in snapshot.pool}
    rows = []
    for (_, window, limit), found in zip(plan.limits, plan.guarantees, strict=True):
        if found is not None and found.hard:
            use = known.get((window.name, limit.resource))
            amounts = (found.hard, *((None, None) if use is None else (use.used, max(0, use.hard - use.used))))
            hard, used, left = (None if each is None else format_amount(limit.resource, each) for each in amounts)
            rows.append({"window": window.name, "resource": limit.resource, "hard": hard, "used": used, "left": left})
    return rows


def render_shared(plan: CounterPlan, use: Use, snapshot: ServiceSnapshot | None) -> dict[str, Any]:
    """Return how much of a pool's limit is guaranteed to members and how much they share; empty without guarantees."""
    pairs = zip(plan.limits, plan.guarantees, strict=True)
    by_limit = {(of, window.name, limit.resource): found for (of, window, limit), found in pairs}
    found = by_limit.get((Holder.POOL, use.window, use.resource))
    if found is None:
        return {}
    guaranteed, left = found.hard + sum(hard for _, hard in found.others), None
    if snapshot is not None and use.guarantee is not None:
        kept = use.guarantee.kept + max(0, use.guarantee.hard - use.guarantee.used)
        left = max(0, use.hard - use.used - kept)
    return {
        "guaranteed": format_amount(use.resource, guaranteed),
        "shared": format_amount(use.resource, use.hard - guaranteed),
        "sharedLeft": None if left is None else format_amount(use.resource, left),
    }


def render_schedule(state: ScheduleState) -> dict[str, Any]:
    """Return the row of a quota's schedules: the one in force, null for none, and what follows; `text` for people."""
    current, upcoming = state.current, state.upcoming
    return {
        "name": current.name if current is not None else None,
        "effect": describe_effect(current) if current is not None else None,
        "until": format_moment(state.changes_at_us),
        "next": upcoming.name if upcoming is not None else None,
        "text": str(state),
    }


def render_breaker(view: BreakerView, now_us: int, probes: int | None) -> dict[str, Any]:
    """Return the row of a breaker that needs so many `probes`, None if unknown.

    `openUntil` may be an override's end, `failed` has sources without early probes.
    """
    return {
        "state": view.state,
        "reason": view.reason,
        "since": format_moment(view.since_us),
        "generation": view.generation,
        "trippedAt": format_moment(view.tripped_at_us),
        "trippedBy": view.tripped_by or None,
        "openUntil": format_moment(view.open_until_us),
        "openRemainingSeconds": round_up_seconds(view.compute_open_remaining_us(now_us)),
        "probes": {
            "leased": view.probes_leased,
            "succeeded": view.probes_succeeded,
            "needed": probes,
            "early": view.early,
        },
        "failed": list(view.failed),
    }


def format_moment(at_us: int | None) -> str | None:
    return format_utc(at_us) if at_us else None


def round_up_seconds(span_us: int) -> int:
    """Return whole seconds, rounded up: a countdown shows 0 only when it is over."""
    return -(-span_us // _SECOND_US)


@dataclass(frozen=True, slots=True)
class OverloadStatus:
    """Why a server is overloaded, by cause, since when, and how many Pods it has gated. Without causes it is not."""

    causes: Mapping[OverloadCause, str] = field(default_factory=dict)
    since_us: int = 0
    gated: int = 0

    @property
    def document(self) -> dict[str, Any] | None:
        """Return the part of the status document; None without an overload."""
        if not self.causes:
            return None
        return {
            "since": format_moment(self.since_us),
            "reasons": [{"reason": cause, "message": text} for cause, text in self.causes.items()],
            "gatedPods": self.gated,
        }


NO_OVERLOAD = OverloadStatus()
