"""Counter plans: a service's limits and the location of its counters, for a store."""

from enum import StrEnum
from fractions import Fraction
from functools import cached_property
from math import ceil

from msgspec import Struct

from webhook.core.breaker import BreakerPlan, Forcing
from webhook.core.kubernetes.types import ResourceAmounts
from webhook.core.policy.model import Pool, QueuePause, Service
from webhook.core.policy.schedules import ScheduleState
from webhook.core.policy_fields import (
    Mode,
    Per,
    PerLabel,
    Scope,
    StandingQuota,
    WhenStoreUnavailable,
)
from webhook.core.quota.amounts import HOUR_US, Cost
from webhook.core.quota.guarantees import PoolGuarantees
from webhook.core.quota.queue_plan import QueuePlan
from webhook.core.quota.teams import ScopedPod
from webhook.core.quota.windows import Limit, LimitGuarantees, WindowPlan

STANDING = "standing"
"""Stands in place of a window's name for limits on live Pods."""


class Holder(StrEnum):
    """Owner of a limit; `standing`: the service's, on its live Pods."""

    SERVICE = "service"
    STANDING = "standing"
    POOL = "pool"


Account = tuple[Holder, str, bool, str]
"""Owner of counters: the holder and its name, whether fleet-wide, and the scope ("" where it counts as one)."""

Accounts = tuple[tuple[Account, tuple[WindowPlan, ...]], ...]


class PoolPlan(Struct, frozen=True):
    """The windows that the members of a pool share, and its limits on live Pods, as they are for one member."""

    name: str
    windows: tuple[WindowPlan, ...]
    standing: WindowPlan | None = None

    @property
    def limiting(self) -> tuple[WindowPlan, ...]:
        """Return the windows, and the limits on live Pods in the form of a window's."""
        return (*self.windows, *((self.standing,) if self.standing is not None else ()))

    @classmethod
    def from_pool(cls, pool: Pool, service: str, guarantees: PoolGuarantees | None) -> "PoolPlan":
        windows = tuple(WindowPlan.from_window(window) for window in pool.windows)
        standing = None if pool.standing is None else build_standing_window(pool.standing.hard)
        if guarantees is not None:
            windows = tuple(guarantees.bind(window, service) for window in windows)
            standing = None if standing is None else guarantees.bind(standing, service)
        return cls(pool.name, windows, standing)


def build_standing_window(hard: ResourceAmounts) -> WindowPlan:
    """Return limits on live Pods in the form of a window's."""
    return WindowPlan(STANDING, 0, tuple(Limit.from_quantity(resource, most) for resource, most in hard.items()))


class StandingPlan(Struct, frozen=True):
    """Limits on live Pods; `surge` is the room above each of them, in their order, for the duration of a rollout."""

    limits: tuple[Limit, ...]
    surge: tuple[int, ...]

    @classmethod
    def from_standing(cls, standing: StandingQuota) -> "StandingPlan":
        limits = build_standing_window(standing.hard).limits
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
    team_key: str = ""
    """The label of Namespaces whose values count apart; "" if namespaces do. Read only if `per_namespace`."""
    schedule: ScheduleState | None = None
    """What the schedules of its quota say; None without any."""
    divides: bool = False
    """Its Pods get slots, and each slot a variant."""

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
        guarantees: PoolGuarantees | None = None,
    ) -> "CounterPlan":
        """Return a service's plan; `open_max` and `forcing` are its breaker's, `rank` and `pause` its queue's.

        `guarantees`: those of all members of its pool.
        """
        quota = service.quota if service.modes.quota is not Mode.DISABLED else None
        shared = pool if service.modes.quota is not Mode.DISABLED else None
        breaker = service.breaker if service.modes.breaker is not Mode.DISABLED else None
        scope = pool.scope if pool else quota.scope if quota else Scope.CLUSTER
        return cls(
            service=service.name,
            tag=service.tag,
            per_namespace=quota is not None and quota.per != Per.SERVICE,
            team_key=quota.per.namespace_label if quota is not None and isinstance(quota.per, PerLabel) else "",
            windows=tuple(WindowPlan.from_window(window) for window in (quota.windows if quota else ())),
            quota_mode=service.modes.quota,
            breaker=BreakerPlan.from_stanza(breaker, open_max, forcing) if breaker else None,
            breaker_mode=service.modes.breaker,
            remember_us=_compute_remember_us(service),
            fleet=scope is Scope.FLEET,
            pool=PoolPlan.from_pool(shared, service.name, guarantees) if shared else None,
            when_unavailable=quota.when_store_unavailable if quota else WhenStoreUnavailable.LOCAL,
            standing=StandingPlan.from_standing(quota.standing) if quota and quota.standing else None,
            queue=QueuePlan.from_service(service, pool, rank, pause),
            divides=bool(service.variants),
        )

    @cached_property
    def key(self) -> tuple[str, str]:
        """Return the tag and the service: a service that moves to another pool starts with empty counters."""
        return self.tag, self.service

    @cached_property
    def rewrites_alike(self) -> bool:
        """Whether Pods of one kind are rewritten alike at all times, by whatever slot or breaker."""
        return not self.divides and not (self.breaker is not None and self.breaker.degrades)

    @cached_property
    def varies(self) -> bool:
        """Whether a denial has to say more than figures: its team, or the schedule in force."""
        return bool(self.team_key) or self.schedule is not None

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

    def scope_of(self, pod: ScopedPod) -> str:
        """Return the scope of a Pod's own windows: its namespace, its team, or "" for the whole service."""
        if not self.per_namespace:
            return ""
        return pod.team if self.team_key else pod.namespace

    @cached_property
    def counts_apart(self) -> str:
        """What of the service counts apart: "namespaces", the label of teams, or "" if it counts as one."""
        return (self.team_key or "namespaces") if self.per_namespace else ""

    @cached_property
    def live_counters(self) -> tuple[str | bool | None, ...]:
        """Identifies where its live Pods are counted, and of which resources: others know nothing of those counters."""
        pool = self.pool_standing
        own, pooled = ([limit.counts for limit in found.limits] if found else [] for found in (self.standing, pool))
        return self.tag, self.fleet, self.counts_apart, *own, None, *pooled

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
    def has_guarantees(self) -> bool:
        """Whether a part of the pool is kept for some member."""
        return any(found is not None for found in self.guarantees)

    @cached_property
    def guarantees(self) -> tuple[LimitGuarantees | None, ...]:
        """Return the guarantees of each of the `limits`; None for one without."""
        return tuple(window.find_guarantees(limit) for _, window, limit in self.limits)

    @cached_property
    def has_sums_only(self) -> bool:
        """Whether each limit is judged by the sum in its window alone."""
        return not self.limits_live_pods and not self.has_guarantees

    @cached_property
    def pool_standing(self) -> WindowPlan | None:
        """Return the limits on the live Pods of its pool; None without any."""
        return self.pool.standing if self.pool is not None else None

    @cached_property
    def limited_pool(self) -> PoolPlan | None:
        """Return its pool if that has limits on live Pods."""
        return self.pool if self.pool_standing is not None else None

    @cached_property
    def limits_live_pods(self) -> bool:
        """Whether its live Pods are counted: there are limits on them, its own or its pool's."""
        return self.standing is not None or self.pool_standing is not None

    @cached_property
    def ceilings(self) -> tuple[tuple[str, int], ...]:
        """Return the resource of each limit, and the most that a single Pod can ever have of it."""
        return tuple(
            (limit.counts, limit.hard if found is None else found.compute_most(limit.hard))
            for (_, _, limit), found in zip(self.limits, self.guarantees, strict=True)
        )

    @cached_property
    def limited(self) -> tuple[str, ...]:
        """Return the resource of each of the `limits`, by canonical name."""
        return tuple(limit.counts for _, _, limit in self.limits)

    @cached_property
    def limits(self) -> tuple[tuple[Holder, WindowPlan, Limit], ...]:
        """All limits in the order of receipts: the service's windows, its pool's, its live Pods, those of its pool."""
        held = (
            (Holder.SERVICE, self.windows),
            (Holder.POOL, self.pool.windows if self.pool else ()),
            (Holder.STANDING, (self.standing.window,) if self.standing else ()),
            (Holder.POOL, (self.pool_standing,) if self.pool_standing else ()),
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
