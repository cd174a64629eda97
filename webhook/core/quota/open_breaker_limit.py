"""How many of the breakers that breakerGuard counts are open, and how many may be, as it is shown."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from webhook.core.quota import CounterPlan, ServiceSnapshot


class Guarded(NamedTuple):
    """Breakers that are OPEN or HALF_OPEN, and with how many such a further trip is held back."""

    opened: int
    open_max: int


def guarded(plans: Iterable[CounterPlan], looks: Mapping[str, ServiceSnapshot]) -> Guarded | None:
    """Return how it stands as far as it can be seen; None where nothing is held back."""
    opened, open_max = 0, None
    for plan in plans:
        if plan.breaker is None or plan.breaker.open_max is None:
            continue
        look, open_max = looks.get(plan.service), plan.breaker.open_max
        opened += look is not None and look.breaker is not None and look.breaker.state.is_tripped
    return None if open_max is None else Guarded(opened, open_max)
