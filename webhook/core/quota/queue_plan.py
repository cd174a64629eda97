"""Queue plan: when Pods of a service wait, for how long, and which of them together."""

from msgspec import Struct

from webhook.core.policy.model import Pool, QueuePause, Service
from webhook.core.policy_fields import (
    GroupRules,
    GroupSource,
    Mode,
    OnOverload,
    QueueRules,
    WhenExceeded,
    WhenExpired,
    WhenIncomplete,
    WhenOpen,
)


class GroupPlan(Struct, frozen=True):
    """Which Pods of a service are charged and released together; `keeps_incomplete`: they wait for the others."""

    sources: tuple[GroupSource, ...]
    wait_us: int
    keeps_incomplete: bool
    size_max: int

    @classmethod
    def from_rules(cls, rules: GroupRules) -> "GroupPlan":
        keeps = rules.when_incomplete is WhenIncomplete.KEEP
        return cls(rules.sources, rules.wait_for.us, keeps, rules.max_size)


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
    groups: GroupPlan | None = None
    waits_in_turn: bool = True
    """A new Pod waits while others of its service do, whose limits are its own."""

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
            groups=GroupPlan.from_rules(rules.groups) if rules.groups is not None and for_quota else None,
        )
