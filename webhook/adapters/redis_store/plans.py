"""What is worked out once of a plan, not once a Pod: its keys, and how the script reads it."""

from collections.abc import Iterable
from dataclasses import dataclass

from msgspec import Raw

from webhook.adapters.redis_store import codec
from webhook.adapters.redis_store.keys import PlanKeys
from webhook.core.quota import CounterPlan


@dataclass(frozen=True, slots=True)
class PreparedPlan:
    """A plan of one cluster. `longest_us` is its longest window, 0 where it limits nothing."""

    plan: CounterPlan
    keys: PlanKeys
    packed: Raw
    longest_us: int


class PlanCache:
    """By identity: to compare plans would cost more than to work one out."""

    def __init__(self, cluster: str, channel: str = "") -> None:
        self._cluster = cluster
        self._channel = channel
        self._known: dict[int, PreparedPlan] = {}

    def of(self, plan: CounterPlan) -> PreparedPlan:
        known = self._known.get(id(plan))
        if known is None or known.plan is not plan:
            longest_us = max((window.seconds for _, window, _ in plan.limits), default=0) * 1_000_000
            keys = self.keys(plan, plan.service, fleet=plan.fleet)
            known = self._known[id(plan)] = PreparedPlan(
                plan, keys, codec.packed_plan(plan, self._cluster, self._channel), longest_us
            )
        return known

    def keys(self, plan: CounterPlan, service: str, *, fleet: bool) -> PlanKeys:
        """Return the keys of a service of the plan's tag, as of another policy perhaps."""
        return PlanKeys.of(self._cluster, plan, service, fleet=fleet)

    def keep(self, plans: Iterable[CounterPlan]) -> None:
        """Forget all others; one that is still asked for is worked out again."""
        ids = {id(plan) for plan in plans}
        self._known = {number: known for number, known in self._known.items() if number in ids}
