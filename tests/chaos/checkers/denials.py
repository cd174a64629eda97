"""No denial by a quota without a cause, beyond the delay that is stated: a bucket, 1/64 of the window.

What a limit held is counted from the writes of charges, so a charge that nobody made or that has left is found.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from tests.chaos.checkers.counted import LimitKey, is_row_of, list_amounts, read_amount, read_seconds
from tests.chaos.checkers.facts import BUCKETS, US, Facts, read_cost
from tests.chaos.checkers.judging import Judge
from tests.chaos.checkers.log_lines import format_moment, parse_moment
from tests.chaos.history import Review
from webhook.core.quota import STANDING

CLOCK_SECONDS = 0.02
"""Times of records are in milliseconds, and the store's clock may differ a little."""
CACHED_SECONDS = 1.1
"""A replica repeats a denial for a second, also when another one has refunded meanwhile."""
QUOTA_EXCEEDED = "QuotaExceeded"
_BY_SHARE = "this replica's shares of the limits"
"""In the message of a denial that the store did not decide."""


class CountedCharge(NamedTuple):
    charged_at: float
    refunded_at: float
    amount: int


class StoredUse:
    """What each limit held at any moment, by the writes of the store."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    @cached_property
    def charges(self) -> Mapping[LimitKey, list[CountedCharge]]:
        found: dict[LimitKey, list[CountedCharge]] = defaultdict(list)
        policies = list(self._facts.policies.values())
        for writes in self._facts.charges.values():
            write = next((each for each in writes if each.charged_us), None)
            if write is None:
                continue
            refunded_at = next((each.at_us / US for each in writes if each.refunded), float("inf"))
            namespace = write.place.partition("/")[0]
            plans = {plan.key: plan for policy in policies if (plan := policy.plans.get(write.service)) is not None}
            cost = read_cost(write)
            amounts: dict[LimitKey, int] = {}
            for plan in plans.values():
                amounts.update(list_amounts(plan, namespace if plan.per_namespace else "", cost))
            for key, amount in amounts.items():
                found[key].append(CountedCharge(write.charged_us / US, refunded_at, amount))
        for charges in found.values():
            charges.sort()
        return found

    def _list_between(self, key: LimitKey, begin: float, end: float) -> list[CountedCharge]:
        """Return the charges that were made after `begin`, until `end`."""
        charges = self.charges.get(key, [])
        first = bisect_right(charges, begin, key=lambda charge: charge.charged_at)
        last = bisect_right(charges, end, key=lambda charge: charge.charged_at)
        return charges[first:last]

    def compute_most(self, key: LimitKey, since: float, until: float) -> int:
        """Return the most that a limit can have held at some moment between `since` and `until`."""
        oldest = since - key.seconds * (BUCKETS + 1) / BUCKETS - CLOCK_SECONDS
        return sum(
            charge.amount
            for charge in self._list_between(key, oldest, until + CLOCK_SECONDS)
            if charge.refunded_at + CACHED_SECONDS > since
        )

    def compute_least(self, key: LimitKey, since: float, until: float) -> int:
        """Return the least that a limit can have held at any moment between `since` and `until`."""
        return sum(
            charge.amount
            for charge in self._list_between(key, until - key.seconds + CLOCK_SECONDS, since - CLOCK_SECONDS)
            if charge.refunded_at > until + CLOCK_SECONDS
        )


def check_denials(facts: Facts, judge: Judge) -> None:
    """Judge each limit that a denial names, while the store answers."""
    used = StoredUse(facts)
    for reviews in facts.judged.values():
        for review in reviews:
            if review.decision == "Deny" and not _lacked_store(facts, review):
                for row in review.record.get("limits") or ():
                    begin = review.at - 2 * read_seconds(row["window"])
                    if row.get("over") and row["window"] != STANDING and facts.is_recorded(begin, review.at):
                        _check_row(judge, used, review, row)


def _lacked_store(facts: Facts, review: Review) -> bool:
    """Return whether the store was away for a service, or a node had lost data: then all services keep to shares."""
    begin, end = review.at - 1, review.at + 1
    lost = any(map(facts.faults.loses_data, facts.faults.list_store_spans(begin, end)))
    is_away = bool(facts.faults.list_store_spans(begin, end, facts.list_tags(review.service)))
    return is_away or (lost and _BY_SHARE in review.message)


def _check_row(judge: Judge, used: StoredUse, review: Review, row: Mapping[str, Any]) -> None:
    keys = [key for key in used.charges if is_row_of(row, key) and key.account[3] in {"", review.namespace}]
    resource, seconds = row["resource"], read_seconds(row["window"])
    hard, asked = read_amount(resource, row["hard"]), read_amount(resource, row.get("asked", 0))
    kept = read_amount(resource, row.get("kept", 0))
    since, until = review.at - measure(review), review.at  # a record has the moment of the answer
    most = max((used.compute_most(key, since, until) for key in keys), default=0)
    shown_most = max((used.compute_most(key, since - CACHED_SECONDS, until) for key in keys), default=0)
    of = f"Pod {review.namespace}/{review.name} ({review.uid})"
    judge.expect(
        holds=most + kept + asked > hard,
        of=of,
        field=f"denied by {row['of']} {row['name']}, {resource} in {row['window']}",
        value=f"hard {hard}, charged {most}, asked {asked}",
        expected="more charged in the window and its bucket than fits",
        at=review.at,
    )
    judge.expect(
        holds=read_amount(resource, row["used"]) <= shown_most,
        of=of,
        field=f"used of {row['of']} {row['name']}, {resource} in {row['window']}",
        value=row["used"],
        expected=f"at most {shown_most}, as charged",
        at=review.at,
    )
    if row.get("freeAt"):
        free_at = parse_moment(row["freeAt"])
        latest = until + seconds * (BUCKETS + 1) / BUCKETS + CLOCK_SECONDS
        judge.expect(
            holds=free_at <= latest,
            of=of,
            field=f"could pass from, {resource} in {row['window']}",
            value=row["freeAt"],
            expected=f"by {format_moment(latest)}, when all has left",
            at=review.at,
        )


def measure(review: Review) -> float:
    """Return how long a review took, by its stages."""
    stages: Sequence[tuple[str, int]] = review.record.get("stages") or ()
    return sum(us for _, us in stages) / US
