"""Gauges of services and pools: quota windows and breakers, as last read from the store."""

from collections.abc import Iterable, Mapping

from webhook.adapters.metrics import families
from webhook.adapters.metrics.accumulators import OTHER, Row
from webhook.adapters.metrics.families import NAMESPACES_MAX
from webhook.adapters.metrics.family import Family
from webhook.core.breaker import State, Transition
from webhook.core.quota import GuaranteeUse, Holder, ServiceSnapshot, Use, is_cpu
from webhook.core.reporting.status_parts import Guarded

_SECOND_US = 1_000_000


class ServiceGauges:
    """Gauges of the newest snapshots. A service that could not be read from the store has no series until it can."""

    def __init__(self) -> None:
        self._snapshots: Mapping[str, ServiceSnapshot] = {}
        self._tripped_us: dict[str, int] = {}
        self._scopes: tuple[str, ...] = ()
        self._guarded: Guarded | None = None
        self._by_team: frozenset[str] = frozenset()

    def update(
        self,
        snapshots: Mapping[str, ServiceSnapshot],
        guarded: Guarded | None = None,
        by_team: frozenset[str] = frozenset(),
    ) -> None:
        """Take the newest snapshots; `by_team`: the services whose teams count apart."""
        self._snapshots, self._guarded, self._by_team = snapshots, guarded, by_team
        live = {scope for snapshot in snapshots.values() for scope in snapshot.uses if scope}
        # Namespaces and teams exported before stay while they exist: a new one never turns a known series into `other`.
        known = [scope for scope in self._scopes if scope in live]
        self._scopes = (*known, *sorted(live.difference(known)))[:NAMESPACES_MAX]
        views = ((service, found.breaker) for service, found in snapshots.items() if found.breaker is not None)
        self._trip({service: view.since_us if view.state.is_open else view.tripped_at_us for service, view in views})

    def record_transition(self, transition: Transition) -> None:
        if transition.is_change and transition.new.is_open:
            self._trip({transition.service: transition.at_us})

    def _trip(self, at_us: Mapping[str, int]) -> None:
        """Record when breakers tripped, 0 for never."""
        # Replaced, never changed in place: a scrape may be reading it.
        newest = {name: max(us, self._tripped_us.get(name, 0)) for name, us in at_us.items() if us}
        self._tripped_us = {**self._tripped_us, **newest}

    def keep(self, services: frozenset[str]) -> None:
        """Remove services that are gone."""
        self._snapshots = {name: snapshot for name, snapshot in self._snapshots.items() if name in services}
        self._tripped_us = {name: at_us for name, at_us in self._tripped_us.items() if name in services}

    def rows(self) -> Iterable[tuple[Family, list[Row]]]:
        """Return every gauge with its series."""
        used, hard = self._quota()
        breakers = [
            (name, snapshot, snapshot.breaker)
            for name, snapshot in self._snapshots.items()
            if snapshot.breaker is not None
        ]
        yield families.QUOTA_USED, used
        yield families.QUOTA_LIMIT, hard
        yield families.STANDING_ENFORCED, [((name,), float(known)) for name, known in self._live()]
        yield families.POOL_STANDING_ENFORCED, [((pool,), float(known)) for pool, known in self._live_pools().items()]
        pools = self._pools()
        yield families.POOL_USED, [(labels, _base_units(use, use.used)) for labels, use in pools.items()]
        yield families.POOL_LIMIT, [(labels, _base_units(use, use.hard)) for labels, use in pools.items()]
        guarantees = self._guarantees()
        limits = [(labels, _base_units(use, found.hard)) for labels, use, found in guarantees]
        yield families.GUARANTEED_LIMIT, limits
        yield families.GUARANTEED_USED, [(labels, _base_units(use, found.used)) for labels, use, found in guarantees]
        yield (
            families.BREAKER_STATE,
            [((name, state), float(view.state is state)) for name, _, view in breakers for state in State],
        )
        yield families.BREAKER_TRIPPED, [((name,), at / _SECOND_US) for name, at in self._tripped_us.items()]
        yield (
            families.BREAKER_REMAINING,
            [
                ((name,), view.compute_open_remaining_us(snapshot.at_us) / _SECOND_US)
                for name, snapshot, view in breakers
            ],
        )
        guarded = self._guarded
        yield families.GUARD_OPEN, [] if guarded is None else [((), float(guarded.opened))]
        yield families.GUARD_MAX, [] if guarded is None else [((), float(guarded.open_max))]

    def _quota(self) -> tuple[list[Row], list[Row]]:
        """Return usage and hard limit of every window; scopes beyond the bound are summed as `other`."""
        shown = frozenset(self._scopes)
        used: dict[tuple[str, ...], float] = {}
        hard: dict[tuple[str, ...], float] = {}
        for service, snapshot in self._snapshots.items():
            for scope, uses in snapshot.uses.items():
                of = ((scope if scope in shown else OTHER),) if scope else ()
                of = ("", *of) if service in self._by_team else of
                for use in uses:
                    labels = (service, use.resource, use.window, *of)
                    used[labels] = used.get(labels, 0) + _base_units(use, use.used)
                    hard[labels] = hard.get(labels, 0) + _base_units(use, use.hard)
        return list(used.items()), list(hard.items())

    def _guarantees(self) -> list[tuple[tuple[str, ...], Use, GuaranteeUse]]:
        """Return each guarantee of a service, with the use of the pool's limit."""
        return [
            ((service, use.resource, use.window), use, use.guarantee)
            for service, snapshot in self._snapshots.items()
            for use in snapshot.pool
            if use.guarantee is not None and use.guarantee.hard
        ]

    def _live(self) -> Iterable[tuple[str, bool]]:
        """Yield the services with limits on live Pods, and whether these are enforced."""
        for name, snapshot in self._snapshots.items():
            if snapshot.is_standing_known or any(
                use.of is Holder.STANDING for uses in snapshot.uses.values() for use in uses
            ):
                yield name, snapshot.is_standing_known

    def _live_pools(self) -> dict[str, bool]:
        """Return the pools with limits on live Pods, and whether these are enforced, from the member read last."""
        snapshots = sorted(self._snapshots.values(), key=lambda snapshot: snapshot.at_us)
        return {
            snapshot.pool[0].name: snapshot.is_pool_standing_known
            for snapshot in snapshots
            if snapshot.is_pool_standing_known is not None and snapshot.pool
        }

    def _pools(self) -> dict[tuple[str, ...], Use]:
        """Return each limit of each pool once, from the member read last."""
        snapshots = sorted(self._snapshots.values(), key=lambda snapshot: snapshot.at_us)
        return {(use.name, use.resource, use.window): use for snapshot in snapshots for use in snapshot.pool}


def _base_units(use: Use, amount: int) -> float:
    """Return cores for cpu, which is counted in millicores; else the amount: bytes, or a count."""
    return amount / 1000 if is_cpu(use.resource) else amount
