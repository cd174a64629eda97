"""Number of open breakers that breakerGuard counts, and its limit, as shown in status."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from webhook.core.quota import CounterPlan, ServiceSnapshot


class Guarded(NamedTuple):
    """Number of breakers in OPEN or HALF_OPEN, and the number from which a further trip is held back."""

    opened: int
    open_max: int


def guarded(plans: Iterable[CounterPlan], snapshots: Mapping[str, ServiceSnapshot]) -> Guarded | None:
    """Return the count over the known breakers; None if no trip is ever held back."""
    opened, open_max = 0, None
    for plan in plans:
        if plan.breaker is None or plan.breaker.open_max is None:
            continue
        snapshot, open_max = snapshots.get(plan.service), plan.breaker.open_max
        opened += snapshot is not None and snapshot.breaker is not None and snapshot.breaker.state.is_tripped
    return None if open_max is None else Guarded(opened, open_max)
