"""Forecast of releases: the room that a queue's Pods need, in their order, and when the present counters have it."""

from collections import Counter
from collections.abc import Iterable, Mapping

from msgspec import Struct

from webhook.core.controller.waiting_pod import WaitingPod
from webhook.core.quota import Cost, CounterPlan, Holder, Limit, Receipt, WindowPlan

SAMPLES_MAX = 12
"""Amounts of one limit for which the store is asked. A Pod between two of them is expected with the larger one."""


class NeededRoom(Struct, frozen=True):
    """Room in one limit. A Pod that is charged leaves the window after its length: amounts above `hard` recur."""

    of: Holder
    owner: str
    """The service; "" for a pool."""
    scope: str
    window: WindowPlan
    limit: Limit
    amount: int
    cycles: int = 0

    @property
    def limit_key(self) -> tuple[object, ...]:
        return self.of, self.owner, self.scope, self.window.name, self.limit.counts


class RoomSample(Struct, frozen=True):
    """A question to the store: when there is room for this cost in the limits of `plan`."""

    plan: CounterPlan
    namespace: str
    cost: Cost
    room: NeededRoom


class ReleaseForecast:
    """The room that a queue's Pods need. The caller asks the store each of `list_samples`, and enters the answers."""

    def __init__(self, pods: Iterable[tuple[WaitingPod, str]], plans: Mapping[str, CounterPlan]) -> None:
        """`pods` are in the order of their release, each with its namespace."""
        self._needs: dict[str, list[NeededRoom]] = {}
        self._asked: dict[tuple[object, ...], dict[int, RoomSample]] = {}
        self._free_at_us: dict[tuple[object, ...], dict[int, int | None]] = {}
        pool: Counter[str] = Counter()
        own: dict[tuple[str, str], Counter[str]] = {}
        for pod, namespace in pods:
            plan = plans[pod.service]
            of_scope = own.setdefault((pod.service, pod.scope), Counter())
            for sum_ in (pool, of_scope):
                sum_.update(dict(pod.cost))
            self._needs[pod.uid] = [
                self._compute_need(
                    plan, namespace, pod, (holder, window, limit), pool if holder is Holder.POOL else of_scope
                )
                for holder, window, limit in plan.limits
                if pod.cost.get(limit.counts)
            ]

    def _compute_need(
        self,
        plan: CounterPlan,
        namespace: str,
        pod: WaitingPod,
        limited: tuple[Holder, WindowPlan, Limit],
        before: Counter[str],
    ) -> NeededRoom:
        holder, window, limit = limited
        amount, cycles = before[limit.counts], 0
        if not window.is_standing and limit.hard > 0:
            cycles, rest = divmod(amount - 1, limit.hard)
            amount = rest + 1
        is_pool = holder is Holder.POOL
        need = NeededRoom(holder, *(("", "") if is_pool else (pod.service, pod.scope)), window, limit, amount, cycles)
        cost = {limit.counts: amount}
        self._asked.setdefault(need.limit_key, {})[amount] = RoomSample(plan, namespace, cost, need)
        return need

    def list_samples(self) -> list[RoomSample]:
        """Return the questions to the store."""
        found = []
        for by_amount in self._asked.values():
            amounts = sorted(by_amount)
            step = -(-len(amounts) // SAMPLES_MAX)
            found += [by_amount[amount] for amount in {*amounts[step - 1 :: step], amounts[-1]}]
        return found

    def enter_answer(self, sample: RoomSample, receipt: Receipt) -> None:
        """Enter the store's answer to a sample."""
        need = sample.room
        free_at_us: int | None = receipt.at_us
        for use in receipt.over:
            if (use.of, use.window, use.resource) == (need.of, need.window.name, need.limit.resource):
                free_at_us = None if need.window.is_standing else use.free_at_us
        self._free_at_us.setdefault(need.limit_key, {})[need.amount] = free_at_us

    def predict_release_us(self, uid: str) -> int | None:
        """Return when a Pod may be released; None if it waits for live Pods to end, or without an answer."""
        latest = 0
        for need in self._needs.get(uid, ()):
            answers = self._free_at_us.get(need.limit_key, {})
            at_us = next((answers[amount] for amount in sorted(answers) if amount >= need.amount), None)
            if at_us is None:
                return None
            latest = max(latest, at_us + need.cycles * need.window.seconds * 1_000_000)
        return latest or None
