"""What a store is asked and what it answers: plans, acquires, receipts. The counting itself stands in `ring.py`."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from fractions import Fraction
from functools import cached_property
from math import ceil

from msgspec import Struct

from webhook.core.breaker import BreakerPlan, BreakerView, Transition
from webhook.core.policy import Pool, Service
from webhook.core.quantity import Quantity
from webhook.core.stanzas import Mode, Scope, WhenStoreUnavailable, Window

LARGEST_EXACT = 2**53
"""Stores count in doubles (Lua): a larger limit could not be exact."""

HOUR_US = 3_600_000_000

Cost = Mapping[str, int]
"""What one Pod takes, by canonical resource name: pods, millicores, bytes, or a count."""

_ALIASES = {"cpu": "requests.cpu", "memory": "requests.memory", "ephemeral-storage": "requests.ephemeral-storage"}
_CPU = frozenset({"requests.cpu", "limits.cpu"})


def canonical(resource: str) -> str:
    """Return ResourceQuota's full name: `cpu`, `memory`, `ephemeral-storage` alias `requests.*`."""
    return _ALIASES.get(resource, resource)


def is_cpu(resource: str) -> bool:
    """Say whether amounts are millicores; an extended resource may end in `.cpu` and counts whole units."""
    return canonical(resource) in _CPU


def amount(resource: str, value: Fraction) -> int:
    """Return an exact integer: millicores for cpu, else whole units, rounded up as Kubernetes does."""
    return ceil(value * 1000) if is_cpu(resource) else ceil(value)


class Limit(Struct, frozen=True):
    """`hard` of one resource in one window; `resource` as the user wrote it, `counts` its canonical name."""

    resource: str
    counts: str
    hard: int

    @classmethod
    def of(cls, resource: str, quantity: Quantity) -> "Limit":
        return cls(resource, canonical(resource), amount(resource, quantity.value))


class WindowPlan(Struct, frozen=True):
    """One trailing window; a bucket is `seconds` * 15625 microseconds long."""

    name: str
    seconds: int
    limits: tuple[Limit, ...]

    @classmethod
    def of(cls, window: Window) -> "WindowPlan":
        limits = tuple(Limit.of(resource, hard) for resource, hard in window.hard.items())
        return cls(window.window.text, window.window.us // 1_000_000, limits)

    def amounts(self, cost: Cost) -> Cost:
        """Return what of a cost is limited here, and thus counted."""
        return {limit.counts: cost[limit.counts] for limit in self.limits if cost.get(limit.counts)}


class PoolPlan(Struct, frozen=True):
    """The windows that the members of a pool share."""

    name: str
    windows: tuple[WindowPlan, ...]


class CounterPlan(Struct, frozen=True, dict=True):
    """All that a store must know of one service to judge a Pod; made once a policy.

    `fleet`: its rings, and its pool's, count over all clusters on one Redis. Everything else is one cluster's own.
    """

    service: str
    tag: str
    per_namespace: bool
    windows: tuple[WindowPlan, ...]
    quota_mode: Mode
    breaker: BreakerPlan | None
    breaker_mode: Mode
    remember_us: int = HOUR_US
    """How long an admitted uid is remembered: longer than the span in which it can be refunded."""
    fleet: bool = False
    pool: PoolPlan | None = None
    when_unavailable: WhenStoreUnavailable = WhenStoreUnavailable.LOCAL

    @classmethod
    def of(cls, service: Service, pool: Pool | None = None) -> "CounterPlan":
        quota = service.quota if service.modes.quota is not Mode.DISABLED else None
        shared = pool if service.modes.quota is not Mode.DISABLED else None
        breaker = service.breaker if service.modes.breaker is not Mode.DISABLED else None
        scope = pool.scope if pool else quota.scope if quota else Scope.CLUSTER
        return cls(
            service=service.name,
            tag=service.tag,
            per_namespace=quota is not None and quota.per == "Namespace",
            windows=tuple(WindowPlan.of(window) for window in (quota.windows if quota else ())),
            quota_mode=service.modes.quota,
            breaker=BreakerPlan.of(breaker) if breaker else None,
            breaker_mode=service.modes.breaker,
            remember_us=_remember_us(service),
            fleet=scope is Scope.FLEET,
            pool=PoolPlan(shared.name, tuple(WindowPlan.of(window) for window in shared.windows)) if shared else None,
            when_unavailable=quota.when_store_unavailable if quota else WhenStoreUnavailable.LOCAL,
        )

    @property
    def key(self) -> tuple[str, str]:
        """Tell services apart, by tag too: one that moves to another pool starts anew there."""
        return self.tag, self.service

    def scope_of(self, namespace: str) -> str:
        """Return whose own windows a Pod counts in: its namespace's, or "", the service's."""
        return namespace if self.per_namespace else ""

    @cached_property
    def limits(self) -> tuple[tuple["Holder", WindowPlan, Limit], ...]:
        """All limits in the one order that receipts keep: the service's own, then its pool's."""
        held = ((Holder.SERVICE, self.windows), (Holder.POOL, self.pool.windows if self.pool else ()))
        return tuple(
            (holder, window, limit) for holder, windows in held for window in windows for limit in window.limits
        )


def _remember_us(service: Service) -> int:
    """Return max(1 h, maxWait + startDeadline + 10 min): a Pod may wait, then start, and only then be missed."""
    queue = service.quota.queue if service.quota else None
    outcomes = service.breaker.outcomes if service.breaker else None
    waits_us = (queue.max_wait.us if queue else 0) + (outcomes.start_deadline.us if outcomes else 0)
    return max(HOUR_US, waits_us + HOUR_US // 6)


class Acquire(Struct, frozen=True):
    """One Pod asks. `peek` (dryRun) reads only; `resize_from` is the old cost where a running Pod is resized."""

    plan: CounterPlan
    namespace: str
    uid: str
    cost: Cost
    event_source: str
    peek: bool = False
    resize_from: Cost | None = None


class Booking(Struct, frozen=True):
    """A Pod that was admitted without the store, or whose record may be lost: to be charged at its own time."""

    namespace: str
    uid: str
    cost: Cost
    at_us: int


class Holder(StrEnum):
    """Whose limit it is."""

    SERVICE = "service"
    POOL = "pool"


class Use(Struct, frozen=True):
    """One limit as it stands after the answer. `name` is the pool's where `of` is a pool.

    `free_at_us`: from then on the asked amount fits; 0 where it fits now (or was charged), None where it never can.
    """

    window: str
    resource: str
    used: int
    hard: int
    asked: int = 0
    free_at_us: int | None = 0
    of: Holder = Holder.SERVICE
    name: str = ""


def all_free_at_us(over: Sequence[Use]) -> int | None:
    """Return the moment from which all of these could hold the Pod; None where one of them never can."""
    latest = 0
    for use in over:
        if use.free_at_us is None:
            return None
        latest = max(latest, use.free_at_us)
    return latest


class Refusal(StrEnum):
    """Which guard refused, or would have: a guard that is not enforced refuses nothing and is named all the same."""

    BREAKER = "breaker"
    QUOTA = "quota"


class Receipt(Struct, frozen=True):
    """The store's answer to an Acquire.

    `refused` is the enforced refusal; `would_refuse` names every guard in Warn or Audit that objected.
    `used` is what each of the plan's `limits` holds after the answer. `over` are those that do not hold the Pod;
    `free_at_us` is the moment from which all of them could. `at_us` is the store's time of the answer.
    `local`: the store gave no answer, this replica judged by its share.
    """

    at_us: int
    refused: Refusal | None = None
    would_refuse: tuple[Refusal, ...] = ()
    charged: bool = False
    repeated: bool = False
    used: tuple[int, ...] = ()
    over: tuple[Use, ...] = ()
    free_at_us: int | None = 0
    breaker: BreakerView | None = None
    transitions: tuple[Transition, ...] = ()
    local: bool = False


class Look(Struct, frozen=True):
    """How a service stands, without a trace: `uses` by namespace ("" where it counts as one), and those of its pool."""

    at_us: int
    uses: Mapping[str, tuple[Use, ...]] = {}
    breaker: BreakerView | None = None
    pool: tuple[Use, ...] = ()
