"""Amounts of admitted Pods by limit and moment, and the limits in force."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple

from tests.chaos.checkers.facts import US, CreatedPod, Facts
from webhook.core.admission.decision import Verdict
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.kubernetes.quantity import Duration, Quantity
from webhook.core.quota import STANDING, Account, CounterPlan, Holder, WindowPlan
from webhook.core.quota.amounts import canonicalize, convert_amount

OWN_TIME_SECONDS = 0.25
"""A charge so close to the request counts at its exact moment."""


class LimitKey(NamedTuple):
    """One limit: who holds it, of which window and resource."""

    account: Account
    seconds: int
    counts: str

    def __str__(self) -> str:
        holder, name, _, scope = self.account
        return f"{holder} {name}" + (f" in {scope}" if scope else "")

    @property
    def window(self) -> str:
        return f"{self.counts} in {self.seconds}s"


class CountedPod(NamedTuple):
    """What one Pod adds to a limit, at a moment between `earliest` and `latest`."""

    uid: str
    earliest: float
    latest: float
    amount: int
    replica: str


class Counted:
    """All Pods that limits must hold, and the limits."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    @cached_property
    def by_limit(self) -> Mapping[LimitKey, list[CountedPod]]:
        """The stored Pods that a server admitted under an enforced quota, by limit, in the order of their time."""
        found: dict[LimitKey, list[CountedPod]] = defaultdict(list)
        for uid, created in self._facts.created.items():
            moment = self._find_moment(uid, created)
            plan = self._facts.find_plan(uid)
            if moment is None or plan is None or not self._facts.is_enforced(uid):
                continue
            owned = self._facts.owned[uid]
            for key, amount in list_amounts(plan, plan.scope_of(owned), owned.cost):
                found[key].append(CountedPod(uid, *moment, amount, self.find_replica(uid)))
        for counted in found.values():
            counted.sort(key=lambda pod: pod.earliest)
        return found

    def _find_moment(self, uid: str, created: CreatedPod) -> tuple[float, float] | None:
        """Return when a Pod was counted; None if no server admitted it, or it waits."""
        charged_at = self._facts.find_charged_at(uid)
        if self.was_queued(uid):
            is_timed = charged_at is not None and self._facts.is_timed(charged_at)
            return (charged_at, charged_at) if charged_at is not None and is_timed else None
        if not self._facts.has_answer(uid):
            return None
        begin, end = created.asked_at - OWN_TIME_SECONDS, created.answered_at + OWN_TIME_SECONDS
        if charged_at is not None and begin <= charged_at <= end and self._facts.is_timed(end):
            return charged_at, charged_at
        return created.asked_at, created.answered_at

    def was_queued(self, uid: str) -> bool:
        created = self._facts.created[uid]
        return created.is_gated or any(review.decision == Verdict.QUEUE for review in self._facts.judged.get(uid, ()))

    def find_replica(self, uid: str) -> str:
        """Return the server that admitted a Pod; "" if no record says."""
        admitted = [review.replica for review in self._facts.judged.get(uid, ()) if review.decision == Verdict.ADMIT]
        return admitted[0] if admitted else ""

    def find_hard(self, key: LimitKey, begin: float, end: float) -> int:
        """Return the largest amount of a limit that was in force in a time; overrides count as records show them."""
        found = [
            limit.hard
            for policy in self._facts.list_policies(begin, end)
            for window in list_windows(policy, key.account)
            if window.seconds == key.seconds
            for limit in window.limits
            if limit.counts == key.counts
        ]
        return max([*found, *self._list_overridden(key, begin, end)], default=0)

    def _list_overridden(self, key: LimitKey, begin: float, end: float) -> Iterator[int]:
        for at, row in self._overridden_rows:
            if begin - 1 <= at <= end + 1 and is_row_of(row, key):
                yield read_amount(row["resource"], row["hard"])

    @cached_property
    def _overridden_rows(self) -> list[tuple[float, Mapping[str, Any]]]:
        """The limits of reviews under an override, with their time."""
        return [
            (review.at, row)
            for review in self._facts.history.reviews
            if review.record.get("overrides")
            for row in review.record.get("limits") or ()
        ]


def is_row_of(row: Mapping[str, Any], key: LimitKey) -> bool:
    """Return whether a record's row is of a limit, whatever its scope is."""
    same = (row["of"], row["name"], canonicalize(str(row["resource"])))
    return same == (key.account[0], key.account[1], key.counts) and read_seconds(str(row["window"])) == key.seconds


def list_windows(policy: CompiledPolicy, account: Account) -> Iterator[WindowPlan]:
    """Yield the windows of an account under a policy, each once."""
    holder, name, _, _ = account
    for plan in policy.plans.values():
        if holder is Holder.SERVICE and plan.service == name:
            yield from plan.windows
        elif holder is Holder.POOL and plan.pool is not None and plan.pool.name == name:
            yield from plan.pool.windows
            return


def list_amounts(plan: CounterPlan, scope: str, cost: Mapping[str, int]) -> Iterator[tuple[LimitKey, int]]:
    """Yield what a Pod is charged in each limit."""
    for account, windows in plan.accounts_of(scope):
        for window in windows:
            for counts, amount in window.select_amounts(cost).items():
                yield LimitKey(account, window.seconds, counts), amount


def read_amount(resource: str, value: object) -> int:
    """Return an amount as a page or record shows it, in the units of the counters."""
    if isinstance(value, int):
        return value
    return convert_amount(resource, Quantity.parse(str(value)).value)


def read_seconds(window: str) -> int:
    """Return the length of a window by its name; 0 of limits on live Pods."""
    return 0 if window == STANDING else Duration.parse(window).us // US
