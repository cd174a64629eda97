"""Counter plans: a service's limits and the location of its counters, for a store."""

from enum import StrEnum
from fractions import Fraction
from functools import cached_property
from math import ceil

from msgspec import Struct

from webhook.core.breaker import BreakerPlan, Forcing
from webhook.core.kubernetes.quantity import Quantity
from webhook.core.policy.model import Pool, QueuePause, Service
from webhook.core.policy_fields import (
    Mode,
    OnOverload,
    QueueRules,
    Scope,
    StandingQuota,
    WhenExceeded,
    WhenExpired,
    WhenOpen,
    WhenStoreUnavailable,
    Window,
)
from webhook.core.quota.amounts import HOUR_US, Cost, canonicalize, convert_amount

STANDING = "standing"
"""Stands in place of a window's name for limits on live Pods."""


class Holder(StrEnum):
    """Owner of a limit; `standing`: the service's, on its live Pods."""

    SERVICE = "service"
    STANDING = "standing"
    POOL = "pool"


class Limit(Struct, frozen=True):
    """Limit `hard` of one resource in one window; `resource` is the user's name of it, `counts` the canonical one."""

    resource: str
    counts: str
    hard: int

    @classmethod
    def from_quantity(cls, resource: str, quantity: Quantity) -> "Limit":
        return cls(resource, canonicalize(resource), convert_amount(resource, quantity.value))


class WindowPlan(Struct, frozen=True):
    """One trailing window; a bucket is `seconds` * 15625 microseconds long."""

    name: str
    seconds: int
    limits: tuple[Limit, ...]

    @classmethod
    def from_window(cls, window: Window) -> "WindowPlan":
        limits = tuple(Limit.from_quantity(resource, hard) for resource, hard in window.hard.items())
        return cls(window.window.text, window.window.us // 1_000_000, limits)

    def select_amounts(self, cost: Cost) -> Cost:
        """Return the limited part of a cost, which is what counts."""
        return {limit.counts: cost[limit.counts] for limit in self.limits if cost.get(limit.counts)}


Account = tuple[Holder, str, bool, str]
"""Owner of counters: the holder and its name, whether fleet-wide, and the namespace ("" where it counts as one)."""

Accounts = tuple[tuple[Account, tuple[WindowPlan, ...]], ...]


class PoolPlan(Struct, frozen=True):
    """The windows that the members of a pool share."""

    name: str
    windows: tuple[WindowPlan, ...]


class StandingPlan(Struct, frozen=True):
    """Limits on live Pods; `surge` is the room above each of them, in their order, for the duration of a rollout."""

    limits: tuple[Limit, ...]
    surge: tuple[int, ...]

    @classmethod
    def from_standing(cls, standing: StandingQuota) -> "StandingPlan":
        limits = tuple(Limit.from_quantity(resource, hard) for resource, hard in standing.hard.items())
        return cls(limits, tuple(_compute_surge(standing, limit) for limit in limits))

    @property
    def window(self) -> WindowPlan:
        """The limits in the form of a window's, of length 0."""
        return WindowPlan(STANDING, 0, self.limits)

    def select_amounts(self, cost: Cost) -> Cost:
        """Return the limited part of a cost, which is what counts."""
        return {limit.counts: cost[limit.counts] for limit in self.limits if cost.get(limit.counts)}


def _compute_surge(standing: StandingQuota, limit: Limit) -> int:
    """Return the room above one limit, rounded up. A number counts Pods, and scales other resources in proportion."""
    surge = standing.surge
    if isinstance(surge, str):
        return ceil(limit.hard * Fraction(surge.removesuffix("%")) / 100)
    pods = standing.hard.get("pods")
    if limit.counts == "pods" or pods is None or not pods.value:
        return surge
    return ceil(limit.hard * surge / pods.value)


class QueuePlan(Struct, frozen=True):
    """When Pods of a service wait: for quota, its breaker, or on overload. `rank`: its SLA class, 0 is the highest."""

    for_quota: bool
    for_breaker: bool
    rank: int
    max_pods: int
    max_wait_us: int
    when_expired: WhenExpired
    ageing_us: int
    lifted_percent: int
    pause: QueuePause | None = None
    """Nothing is released, and new Pods wait."""
    on_overload: bool = False
    """Pods are gated without asking the store while the server is overloaded."""

    @property
    def only_on_overload(self) -> bool:
        """Whether Pods wait on overload only."""
        return not (self.for_quota or self.for_breaker)

    @property
    def keeps_expired(self) -> bool:
        """Whether a Pod that has waited for `max_wait_us` waits on; otherwise it is deleted."""
        return self.when_expired is WhenExpired.KEEP

    @classmethod
    def from_service(
        cls, service: Service, pool: Pool | None, rank: int, pause: QueuePause | None = None
    ) -> "QueuePlan | None":
        """Return a service's plan; None if its Pods are denied instead, or if its modes only observe."""
        quota, breaker, modes = service.quota, service.breaker, service.modes
        exceeded = {quota.when_exceeded if quota else None, pool.when_exceeded if pool else None}
        for_quota = modes.quota is Mode.ENFORCE and WhenExceeded.QUEUE in exceeded
        for_breaker = modes.breaker is Mode.ENFORCE and breaker is not None and breaker.when_open is WhenOpen.QUEUE
        rules = (quota.queue if quota else None) or QueueRules()
        on_overload = modes.quota is Mode.ENFORCE and rules.on_overload is OnOverload.GATE
        if not (for_quota or for_breaker or on_overload):
            return None
        return cls(
            for_quota=for_quota,
            for_breaker=for_breaker,
            rank=rank,
            max_pods=rules.max_pods,
            max_wait_us=rules.max_wait.us,
            when_expired=rules.when_expired,
            ageing_us=rules.ageing.us,
            lifted_percent=int(rules.lifted_share.removesuffix("%")),
            pause=pause,
            on_overload=on_overload,
        )


class CounterPlan(Struct, frozen=True, dict=True):
    """Counters and limits of one service, as a store needs them to check a Pod; built once per policy.

    `fleet`: its rings and its pool's count over all clusters on one Redis. Everything else belongs to one cluster.
    """

    service: str
    tag: str
    per_namespace: bool
    windows: tuple[WindowPlan, ...]
    quota_mode: Mode
    breaker: BreakerPlan | None
    breaker_mode: Mode
    remember_us: int = HOUR_US
    """Lifetime of an admitted Pod's record: longer than the span in which it can be refunded."""
    fleet: bool = False
    pool: PoolPlan | None = None
    when_unavailable: WhenStoreUnavailable = WhenStoreUnavailable.LOCAL
    standing: StandingPlan | None = None
    queue: QueuePlan | None = None

    @classmethod
    def from_service(
        cls,
        service: Service,
        pool: Pool | None = None,
        *,
        open_max: int | None = None,
        forcing: Forcing | None = None,
        rank: int = 0,
        pause: QueuePause | None = None,
    ) -> "CounterPlan":
        """Return a service's plan; `open_max` and `forcing` are its breaker's, `rank` and `pause` its queue's."""
        quota = service.quota if service.modes.quota is not Mode.DISABLED else None
        shared = pool if service.modes.quota is not Mode.DISABLED else None
        breaker = service.breaker if service.modes.breaker is not Mode.DISABLED else None
        scope = pool.scope if pool else quota.scope if quota else Scope.CLUSTER
        return cls(
            service=service.name,
            tag=service.tag,
            per_namespace=quota is not None and quota.per == "Namespace",
            windows=tuple(WindowPlan.from_window(window) for window in (quota.windows if quota else ())),
            quota_mode=service.modes.quota,
            breaker=BreakerPlan.from_stanza(breaker, open_max, forcing) if breaker else None,
            breaker_mode=service.modes.breaker,
            remember_us=_compute_remember_us(service),
            fleet=scope is Scope.FLEET,
            pool=PoolPlan(shared.name, tuple(WindowPlan.from_window(window) for window in shared.windows))
            if shared
            else None,
            when_unavailable=quota.when_store_unavailable if quota else WhenStoreUnavailable.LOCAL,
            standing=StandingPlan.from_standing(quota.standing) if quota and quota.standing else None,
            queue=QueuePlan.from_service(service, pool, rank, pause),
        )

    @cached_property
    def key(self) -> tuple[str, str]:
        """Return the tag and the service: a service that moves to another pool starts with empty counters."""
        return self.tag, self.service

    @property
    def counts_nothing(self) -> bool:
        """Whether the service has neither limits nor a breaker: its Pods are recorded, and charged nothing."""
        return not self.limits and self.breaker is None

    @property
    def waiting_max(self) -> int:
        """Return how many Pods may wait, 0 without a queue."""
        return self.queue.max_pods if self.queue else 0

    @property
    def queue_lasts_us(self) -> int:
        """Return how long the index of waiting Pods is kept without being used: longer than a Pod waits."""
        return HOUR_US + (self.queue.max_wait_us if self.queue else 0)

    def scope_of(self, namespace: str) -> str:
        """Return the scope of a Pod's own windows: its namespace, or "" for the whole service."""
        return namespace if self.per_namespace else ""

    def accounts_of(self, scope: str) -> Accounts:
        """Return the accounts that a Pod is charged to, with their windows: the service's own, and its pool's."""
        return self._list_accounts(scope) if scope else self._accounts_as_one

    @cached_property
    def _accounts_as_one(self) -> Accounts:
        return self._list_accounts("")

    def _list_accounts(self, scope: str) -> Accounts:
        own = (((Holder.SERVICE, self.service, self.fleet, scope), self.windows),) if self.windows else ()
        pooled = (((Holder.POOL, self.pool.name, self.fleet, ""), self.pool.windows),) if self.pool else ()
        return (*own, *pooled)

    @cached_property
    def limited(self) -> tuple[str, ...]:
        """Return the resource of each of the `limits`, by canonical name."""
        return tuple(limit.counts for _, _, limit in self.limits)

    @cached_property
    def limits(self) -> tuple[tuple[Holder, WindowPlan, Limit], ...]:
        """All limits in the order of receipts: the service's windows, its pool's, its live Pods."""
        held = (
            (Holder.SERVICE, self.windows),
            (Holder.POOL, self.pool.windows if self.pool else ()),
            (Holder.STANDING, (self.standing.window,) if self.standing else ()),
        )
        return tuple(
            (holder, window, limit) for holder, windows in held for window in windows for limit in window.limits
        )


def _compute_remember_us(service: Service) -> int:
    """Return max(1 h, maxWait + startDeadline + 10 min): a Pod may wait, then start, before it is found missing."""
    queue = service.quota.queue if service.quota else None
    outcomes = service.breaker.outcomes if service.breaker else None
    waits_us = (queue.max_wait.us if queue else 0) + (outcomes.start_deadline.us if outcomes else 0)
    return max(HOUR_US, waits_us + HOUR_US // 6)
