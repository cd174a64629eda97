"""Breakers of variants: transitions and gauges by service and variant, for those of the policy and its candidate."""

from collections.abc import Iterable, Iterator, Mapping

from webhook.adapters.metrics import families
from webhook.adapters.metrics.accumulators import Row, Totals
from webhook.adapters.metrics.family import Family
from webhook.adapters.metrics.watched_inputs import find_reason_label
from webhook.core.breaker import BreakerOwner, State, Transition, TransitionCause
from webhook.core.policy.model import Policy, Service, list_variant_breakers
from webhook.core.quota import ServiceSnapshot

_SECOND_US = 1_000_000
_AUTOMATIC = (
    (State.CLOSED, State.OPEN, TransitionCause.UNSCHEDULABLE),
    (State.OPEN, State.HALF_OPEN, TransitionCause.OPEN_FOR_PASSED),
    (State.HALF_OPEN, State.CLOSED, TransitionCause.PROBES_SUCCEEDED),
    (State.HALF_OPEN, State.OPEN, TransitionCause.PROBE_FAILED),
)


def list_variant_series(service: Service) -> Iterator[tuple[Family, tuple[str, ...]]]:
    """Yield the series of a service's variants that are exported from 0 on."""
    for variant in service.breaker_variants:
        owner = service.name, variant
        yield families.VARIANT_EXPIRED, owner
        yield from ((families.VARIANT_TRANSITIONS, (*owner, *moved)) for moved in _AUTOMATIC)


class VariantBreakers:
    """Totals of transitions, and the newest snapshots."""

    def __init__(self) -> None:
        self._changes = Totals(families.VARIANT_TRANSITIONS)
        self._expired = Totals(families.VARIANT_EXPIRED)
        self.totals = (self._changes, self._expired)
        self._own: frozenset[BreakerOwner] = frozenset()
        self._added: frozenset[BreakerOwner] = frozenset()
        self._snapshots: Mapping[BreakerOwner, ServiceSnapshot] = {}

    @property
    def _known(self) -> frozenset[BreakerOwner]:
        return self._own | self._added

    def set_policy(self, policy: Policy) -> None:
        """Set the variants that are exported; a late transition must not bring back the series of another one."""
        self._own = list_variant_breakers(policy.services)
        self._forget_others()

    def set_added(self, added: frozenset[BreakerOwner]) -> None:
        """Set the variants that only the candidate of a canary has: they are exported too."""
        if added != self._added:
            self._added = added
            self._forget_others()

    def _forget_others(self) -> None:
        for totals in self.totals:
            totals.select(lambda labels: BreakerOwner(*labels[:2]) in self._known)
        self._snapshots = {owner: found for owner, found in self._snapshots.items() if owner in self._known}

    def add(self, transition: Transition) -> None:
        owner = transition.owner
        if owner not in self._known:
            return
        if transition.is_change:
            self._changes.add(*owner, transition.old, transition.new, find_reason_label(transition.cause))
        else:
            self._expired.add(*owner)

    def update(self, snapshots: Mapping[str, ServiceSnapshot]) -> None:
        """Take the newest snapshots, by the names of plans. One that could not be read has no series until it can."""
        found = {BreakerOwner.parse(name): snapshot for name, snapshot in snapshots.items()}
        self._snapshots = {owner: snapshot for owner, snapshot in found.items() if owner in self._known}

    def rows(self) -> Iterable[tuple[Family, list[Row]]]:
        """Return every gauge with its series."""
        views = [
            (owner, snapshot.at_us, snapshot.breaker)
            for owner, snapshot in self._snapshots.items()
            if snapshot.breaker is not None
        ]
        yield (
            families.VARIANT_STATE,
            [((*owner, state), float(view.state is state)) for owner, _, view in views for state in State],
        )
        yield (
            families.VARIANT_REMAINING,
            [(tuple(owner), view.compute_open_remaining_us(at_us) / _SECOND_US) for owner, at_us, view in views],
        )
