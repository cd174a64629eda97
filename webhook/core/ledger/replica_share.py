"""Replica share: one replica's part of the remaining quota while the store gives no answer, by the number of replicas.

Why: docs/design/replica-shares.md.

For each window the share is (hard - used at the last reply) / replicas; the remainder goes to the lowest ordinals.
`used` counts as 0 once it has surely left the window, or without any reply. Windows over an hour are not checked.
A Pod that asks for more than the whole share may pass within hard - used, so that no Pod is impossible, if the replica
is then at most (replicas - 1) / replicas of that Pod above its share; a second one must wait until the first has left.
Hence all replicas together exceed hard by at most (replicas - 1) times the largest Pod, in any trailing window.

Guarantees in a pool are divided alike: what a member has left of its own at the newest snapshot, or all of it. Beyond
its part, a member leaves what others have left of theirs.

If the number of replicas changes, a share uses the largest number since the last reply and within the window, because
a replica that has left may have spent its share. So the bound holds when replicas leave; each new replica without a
reply adds a share.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from webhook.core.ledger.member_uses import MemberUses
from webhook.core.ledger.window_ring import BUCKETS_LIVE, Ring
from webhook.core.policy_fields import Mode
from webhook.core.quota import (
    HOUR_US,
    Acquire,
    Cost,
    CounterPlan,
    DeniedBy,
    GuaranteeUse,
    Holder,
    Limit,
    LimitGuarantees,
    Receipt,
    Use,
    WindowPlan,
    find_free_at_us,
)


class _Former(NamedTuple):
    until_us: int
    replicas: int
    ordinal: int


class ReplicaCount:
    """Number of replicas, and the ordinal of this one, from 0. Time is monotonic, in microseconds."""

    def __init__(self, count: int = 1, ordinal: int = 0) -> None:
        self.count, self.ordinal = count, ordinal
        self._former: list[_Former] = []
        """Former counts, oldest first, each larger than the next."""

    def change(self, count: int, ordinal: int, now_us: int) -> None:
        """Set the number of replicas from now on, and this one's ordinal."""
        former = [*self._former, _Former(now_us, self.count, self.ordinal)]
        self._former = [count_before for count_before in former if count_before.replicas > count]
        self.count, self.ordinal = count, ordinal

    def find_most_since(self, at_us: int) -> tuple[int, int]:
        """Return the largest count since a moment, and this replica's ordinal at that count."""
        for former in self._former:
            if former.until_us > at_us:
                return former.replicas, former.ordinal
        return self.count, self.ordinal


JUDGED_SECONDS_MAX = HOUR_US // 1_000_000
REPLIES_MAX = 20_000
"""Limit, because there can be many namespaces that count apart; when exceeded, the oldest reply is dropped."""

_BUCKET_US_PER_SECOND = 1_000_000 // 64

_Account = tuple[str, ...]
"""Owner of windows: the tag, a service and its namespace ("" where it counts as one); or the tag and a pool."""


class _Window(Struct, frozen=True):
    """A window with what this replica admitted since `began_us`, and the end of the last reply's validity."""

    holder: Holder
    name: str
    plan: WindowPlan
    ring: Ring
    began_us: int
    used: Mapping[str, int]
    silent_from_us: int
    replicas: int
    ordinal: int
    members: Mapping[str, int] = {}
    """What members of a pool had used of their guarantees, by counter."""

    def fits(self, limit: Limit, amounts: Mapping[str, int], left: int, asked: int) -> bool:
        """Return whether a Pod fits beside these amounts, if `left` of the limit is divided."""
        room = self.compute_most(left, asked) - amounts.get(limit.counts, 0)
        found = self.plan.find_guarantees(limit)
        if found is not None:
            part = self.compute_share(self._compute_left(found.counter, found.hard))
            if amounts.get(found.counter, 0) + asked > part:
                room -= self._compute_kept(found, amounts)
        return asked <= room

    def build_guarantee_use(self, limit: Limit, amounts: Mapping[str, int]) -> GuaranteeUse | None:
        """Return this replica's part of a guarantee, and what it keeps for others; None without guarantees."""
        found = self.plan.find_guarantees(limit)
        if found is None:
            return None
        part = self.compute_share(self._compute_left(found.counter, found.hard))
        return GuaranteeUse(part, amounts.get(found.counter, 0), self._compute_kept(found, amounts))

    def _compute_kept(self, guarantees: LimitGuarantees, amounts: Mapping[str, int]) -> int:
        parts = ((counter, self._compute_left(counter, hard)) for counter, hard in guarantees.others)
        return sum(max(0, self.compute_share(left) - amounts.get(counter, 0)) for counter, left in parts)

    def _compute_left(self, counter: str, hard: int) -> int:
        return max(0, hard - self.members.get(counter, 0))

    def compute_share(self, left: int) -> int:
        each, rest = divmod(left, self.replicas)
        return each + (self.ordinal < rest)

    def compute_most(self, left: int, asked: int) -> int:
        """Return how much this replica may hold, including a Pod that asks for `asked`."""
        share = self.compute_share(left)
        if share < asked <= left:
            return asked + (left - asked) // self.replicas
        return share


class ReplicaShareLedger:
    """Counters of one replica. Time is the replica's own, monotonic, in microseconds; the store's is `ahead_us` ahead.

    A resize is checked and counted by its increase. A quota that is not enforced (Warn, Audit) may exceed the share.
    """

    def __init__(self, replicas: int = 1, ordinal: int = 0) -> None:
        self._replicas = ReplicaCount(replicas, ordinal)
        self._replies: dict[_Account, tuple[CounterPlan, int, tuple[int, ...]]] = {}
        self._rings: dict[tuple[_Account, int], tuple[Ring, int]] = {}
        """By account and window, with the start of each ring: it has no earlier charges."""
        self._members = MemberUses()

    def set_replicas(self, replicas: int, ordinal: int, now_us: int) -> None:
        """Set the number of replicas that share from now on, and this one's ordinal."""
        self._replicas.change(replicas, ordinal, now_us)

    def record_reply(self, plan: CounterPlan, scope: str, used: tuple[int, ...], now_us: int) -> None:
        """Record the store's reply: the use of each of the plan's `limits`, in their order."""
        replies, reply = self._replies, (plan, now_us, used)
        replies[plan.tag, plan.service, scope if plan.per_namespace else ""] = reply
        if plan.pool is not None:
            replies[plan.tag, plan.pool.name] = reply
        if len(replies) > REPLIES_MAX:
            del replies[next(iter(replies))]

    def record_members(self, plan: CounterPlan, pool: Sequence[Use], now_us: int) -> None:
        """Record what a member had used of its guarantees, by a snapshot of its pool."""
        if plan.has_guarantees:
            self._members.record(plan, pool, now_us)

    def acquire(self, request: Acquire, now_us: int, ahead_us: int = 0) -> Receipt:
        """Check one Pod and, unless `peek`, count it: all or nothing."""
        plan, cost = request.plan, _compute_asked(request)
        over: list[Use] = []
        for window in self._list_windows(request, now_us):
            over += self._find_exceeded(window, cost, now_us, ahead_us)
        refused = DeniedBy.QUOTA if over and plan.quota_mode is Mode.ENFORCE else None
        charged = refused is None and not request.peek
        if charged:
            self._count(request, cost, now_us)
        return Receipt(
            at_us=now_us + ahead_us,
            refused=refused,
            would_refuse=(DeniedBy.QUOTA,) if over and refused is None else (),
            charged=charged,
            over=tuple(over),
            free_at_us=find_free_at_us(over),
            local=True,
        )

    def give_back(self, request: Acquire, counted_at_us: int, now_us: int) -> None:
        """Refund a Pod that was counted here."""
        for window in self._list_windows(request, now_us):
            amounts = window.plan.select_amounts(_compute_asked(request))
            if amounts and counted_at_us >= window.began_us:
                window.ring.refund(now_us, counted_at_us, amounts)

    def forget(self, tag: str) -> None:
        """Reset a tag's counters: the store has received everything that was counted here."""
        self._rings = {key: ring for key, ring in self._rings.items() if key[0][0] != tag}

    def sweep(self, now_us: int) -> None:
        """Drop rings that no longer count anything."""
        for key in [key for key, (ring, _) in self._rings.items() if ring.idle(now_us)]:
            del self._rings[key]

    def _list_windows(self, request: Acquire, now_us: int) -> Iterator[_Window]:
        """Yield the windows that are checked, the service's own first."""
        plan, scope = request.plan, request.plan.scope_of(request)
        yield from self._list_account_windows((plan.tag, plan.service, scope), plan.windows, now_us)
        if plan.pool is not None:
            account, name = (plan.tag, plan.pool.name), plan.pool.name
            pooled = self._list_account_windows(account, plan.pool.windows, now_us, name)
            yield from self._add_members(plan.tag, pooled, now_us) if plan.has_guarantees else pooled

    def _add_members(self, tag: str, windows: Iterator[_Window], now_us: int) -> Iterator[_Window]:
        for window in windows:
            since_us = now_us - _compute_length_us(window.plan)
            counters = _list_counters(window.plan)
            yield replace(window, members=self._members.list_used(tag, window.plan.seconds, counters, since_us))

    def _list_account_windows(
        self, account: _Account, windows: Sequence[WindowPlan], now_us: int, pool: str = ""
    ) -> Iterator[_Window]:
        holder = Holder.POOL if pool else Holder.SERVICE
        reply = self._replies.get(account)
        for window in windows:
            if window.seconds > JUDGED_SECONDS_MAX:
                continue
            key = (account, window.seconds)
            known = self._rings.get(key)
            if known is None:
                known = self._rings[key] = Ring(window.seconds), now_us
            used: Mapping[str, int] = {}
            silent_from_us, since_us = 0, now_us - _compute_length_us(window)
            if reply is not None:
                used = _select_used(reply[0], reply[2], holder, window.seconds)
                silent_from_us = reply[1] + _compute_length_us(window)
                since_us = max(since_us, reply[1])
            yield _Window(holder, pool, window, *known, used, silent_from_us, *self._replicas.find_most_since(since_us))

    def _find_exceeded(self, window: _Window, cost: Cost, now_us: int, ahead_us: int) -> Iterator[Use]:
        """Yield the limits that the Pod would exceed: `hard` is this replica's share, `used` what it admitted."""
        for limit in window.plan.limits:
            left, asked = limit.hard, cost.get(limit.counts, 0)
            if now_us < window.silent_from_us:
                left = max(0, limit.hard - window.used.get(limit.counts, 0))
            amounts = window.ring.used(now_us)
            if not asked or window.fits(limit, amounts, left, asked):
                continue
            moment = self._find_free_at_us(window, limit, left, asked, now_us)
            free_at_us = None if moment is None else moment + ahead_us
            mine, share = amounts.get(limit.counts, 0), window.compute_share(left)
            use = Use(window.plan.name, limit.resource, mine, share, asked, free_at_us, window.holder, window.name)
            yield replace(use, guarantee=window.build_guarantee_use(limit, amounts))

    def _find_free_at_us(self, window: _Window, limit: Limit, left: int, asked: int, now_us: int) -> int | None:
        """Return when the Pod fits here if nothing else is charged; it may fit sooner if the store answers again."""
        ring, silent_from_us = window.ring, window.silent_from_us
        moment = ring.find_fit_us(now_us, lambda amounts: window.fits(limit, amounts, left, asked))
        if silent_from_us <= now_us or (moment is not None and moment < silent_from_us):
            return moment
        later = ring.find_fit_us(now_us, lambda amounts: window.fits(limit, amounts, limit.hard, asked))
        return None if later is None else max(later, silent_from_us)

    def _count(self, request: Acquire, cost: Cost, now_us: int) -> None:
        for window in self._list_windows(request, now_us):
            if amounts := window.plan.select_amounts(cost):
                window.ring.add(now_us, amounts, now_us)


def _list_counters(window: WindowPlan) -> set[str]:
    """Return the counters of the guarantees in a window of a pool."""
    guarantees = [found for limit in window.limits if (found := window.find_guarantees(limit)) is not None]
    return {found.counter for found in guarantees} | {counter for found in guarantees for counter, _ in found.others}


def _compute_asked(request: Acquire) -> Cost:
    before = request.resize_from
    if before is None:
        return request.cost
    more = {name: amount - before.get(name, 0) for name, amount in request.cost.items() if name != "pods"}
    return {name: amount for name, amount in more.items() if amount > 0}


def _compute_length_us(window: WindowPlan) -> int:
    """Return the age at which any charge has surely left the window."""
    return BUCKETS_LIVE * _BUCKET_US_PER_SECOND * window.seconds


def _select_used(plan: CounterPlan, used: Sequence[int], of: Holder, seconds: int) -> Mapping[str, int]:
    """Return the used amounts of one window in a reply, by resource, under the plan of that reply."""
    return {
        limit.counts: amount
        for (holder, window, limit), amount in zip(plan.limits, used, strict=True)
        if holder is of and window.seconds == seconds
    }
