"""PlanCache: the keys and the encoded form of each plan, computed once per plan."""

from collections.abc import Iterable
from dataclasses import dataclass

from msgspec import Raw

from webhook.adapters.redis_store import codec
from webhook.adapters.redis_store.keys import PlanKeys
from webhook.adapters.redis_store.records import PlanKeyNames
from webhook.core.quota import CounterPlan


@dataclass(frozen=True, slots=True, eq=False)
class PreparedPlan:
    """A plan with its keys and its encoded forms. `longest_us` is its longest window, 0 if it limits nothing."""

    plan: CounterPlan
    keys: PlanKeys
    key_names: PlanKeyNames
    head: Raw
    details: Raw
    longest_us: int


class PlanCache:
    """By identity: comparing plans would cost more than preparing one."""

    def __init__(self, cluster: str, channel: str = "") -> None:
        self._cluster = cluster
        self._channel = channel
        self._known: dict[int, PreparedPlan] = {}

    def of(self, plan: CounterPlan) -> PreparedPlan:
        known = self._known.get(id(plan))
        if known is None or known.plan is not plan:
            longest_us = max((window.seconds for _, window, _ in plan.limits), default=0) * 1_000_000
            keys = self.keys(plan, plan.service, fleet=plan.fleet)
            details = codec.encode_details(plan, self._cluster, self._channel)
            head = codec.encode_plan(plan, len(keys.pods) + 1, len(details))
            names = PlanKeyNames(home=keys.home, ring=keys.ring, breaker=keys.breaker, waits=keys.waits, live=keys.live)
            known = PreparedPlan(plan, keys, names, Raw(head), Raw(details), longest_us)
            self._known[id(plan)] = known
        return known

    def keys(self, plan: CounterPlan, service: str, *, fleet: bool) -> PlanKeys:
        """Return the keys of any service of the plan's tag, such as one of a former policy."""
        return PlanKeys.of(self._cluster, plan, service, fleet=fleet)

    def keep(self, plans: Iterable[CounterPlan]) -> None:
        """Forget all other plans; one that is still used is prepared again."""
        ids = {id(plan) for plan in plans}
        self._known = {number: known for number, known in self._known.items() if number in ids}
