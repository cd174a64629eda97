"""PlanCache: the keys and the encoded form of each plan, computed once per plan."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Raw

from webhook.adapters.redis_store import codec
from webhook.adapters.redis_store.keys import PlanKeys
from webhook.adapters.redis_store.transport.breaker_rules import BreakerRules, ForcedState, QuotaRule, TriggerRule
from webhook.adapters.redis_store.transport.records import (
    PlanDetails,
    PlanHead,
    PlanKeyNames,
    PoolStandingLimit,
    StandingLimit,
    WindowLimit,
)
from webhook.core.breaker import BreakerPlan, ErrorRatePlan, LatencyPlan
from webhook.core.policy_fields import Mode
from webhook.core.quota import EXACT_AMOUNT_MAX, HOUR_US, CounterPlan, LimitGuarantees, StandingPlan, WindowPlan

_DAY_MS = 86_400_000


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

    def prepare(self, plan: CounterPlan) -> PreparedPlan:
        known = self._known.get(id(plan))
        if known is None or known.plan is not plan:
            longest_us = max((window.seconds for _, window, _ in plan.limits), default=0) * 1_000_000
            keys = self.make_keys(plan, plan.service, fleet=plan.fleet)
            details = encode_details(plan, self._cluster, self._channel, keys.pool_live)
            head = encode_plan(plan, len(keys.pods) + 1, len(details))
            names = PlanKeyNames(
                home=keys.home,
                ring=keys.ring,
                breaker=keys.breaker,
                waits=keys.waits,
                live=keys.live,
                pool_live=keys.pool_live if plan.pool_standing is not None else keys.live,
            )
            known = PreparedPlan(plan, keys, names, Raw(head), Raw(details), longest_us)
            self._known[id(plan)] = known
        return known

    def make_keys(self, plan: CounterPlan, service: str, *, fleet: bool) -> PlanKeys:
        """Return the keys of any service of the plan's tag, such as one of a former policy."""
        return PlanKeys.from_plan(self._cluster, plan, service, fleet=fleet)

    def keep(self, plans: Iterable[CounterPlan]) -> None:
        """Forget all other plans; a plan that is still used is prepared again."""
        ids = {id(plan) for plan in plans}
        self._known = {number: known for number, known in self._known.items() if number in ids}


def encode_plan(plan: CounterPlan, uid_at: int, details_bytes: int) -> bytes:
    """Return the part of a plan that the script reads in each call; computed once per plan.

    `uid_at`: where the uid begins in the key of a Pod. `details_bytes`: how long the plan's details are.
    """
    pooled = plan.pool.windows if plan.pool else ()
    longest_ms = max((window.seconds for window in (*plan.windows, *pooled)), default=0) * 1000
    breaker = plan.breaker
    errors, latency = (breaker.error_rate, breaker.latency) if breaker else (None, None)
    return codec.encode_values(
        PlanHead(
            windows=_encode_limits(plan.windows),
            pool=_encode_limits(pooled) if pooled else False,
            quota_enforced=plan.quota_mode is Mode.ENFORCE,
            breaker_enforced=plan.breaker_mode is Mode.ENFORCE,
            remember_us=plan.remember_us,
            # The key expires an hour after the last charge in it has left its window.
            ttl_ms=longest_ms * 66 // 64 + HOUR_US // 1000,
            service=plan.service,
            fleet=plan.fleet,
            packed_windows=codec.encode_list(
                [msgspec.json.encode([_list_charged_windows(plan.windows), _list_charged_windows(pooled)]).decode()]
            ),
            standing=_list_standing_limits(plan.standing) if plan.limits_live_pods else False,
            has_rules=breaker is not None,
            has_outcomes=breaker is not None and breaker.has_outcomes,
            is_forced=breaker is not None and breaker.forcing is not None,
            is_guarded=breaker is not None and breaker.open_max is not None,
            has_quota=breaker is not None and breaker.quota is not None,
            errors_interval_us=errors.interval_us if errors else False,
            latency_interval_us=latency.interval_us if latency else False,
            uid_at=uid_at,
            details_bytes=details_bytes,
            guarantees=_encode_guarantees(plan) if plan.has_guarantees else False,
        )
    )


def encode_details(plan: CounterPlan, cluster: str, channel: str, pool_live: str) -> bytes:
    """Return the part of a plan that the script reads in few calls.

    `channel` is where transitions are published, `pool_live` the key of the live Pods of its pool.
    """
    breaker = plan.breaker
    lasts_ms = (breaker.open_for_us + breaker.probe_timeout_us) // 1000 if breaker else 0
    quota = breaker.quota if breaker else None
    return codec.encode_values(
        PlanDetails(
            breaker_ttl_ms=lasts_ms + _DAY_MS,
            cluster=cluster,
            tag=plan.tag,
            channel=channel,
            quota=QuotaRule(
                trip_count=quota.count,
                within_us=quota.within_us,
                by_controller=quota.by_controller,
                reason=quota.format_reason(),
            )
            if quota
            else False,
            rules=_make_rules(breaker) if breaker else False,
            pool_live=pool_live if plan.pool_standing is not None else "",
            pool_standing=_list_pool_limits(plan.pool_standing) if plan.pool_standing is not None else False,
            counts_apart=plan.counts_apart,
        )
    )


def _encode_limits(windows: Sequence[WindowPlan]) -> Raw:
    """Return the limits, window by window, as one flat list."""
    limits = [
        WindowLimit(seconds=window.seconds, resource=limit.counts, hard=limit.hard)
        for window in windows
        for limit in window.limits
    ]
    return codec.encode_list([value for limit in limits for value in limit])


def _encode_guarantees(plan: CounterPlan) -> Raw:
    """Return the guarantees of each limit of the pool's windows, in the order of its limits."""
    windows = plan.pool.windows if plan.pool is not None else ()
    found = [window.find_guarantees(limit) for window in windows for limit in window.limits]
    return codec.encode_list([False if limit is None else _list_parties(limit) for limit in found])


def _list_parties(guarantees: LimitGuarantees) -> list[str | bool | int]:
    """Return the guarantees in a limit as one flat list."""
    others = [value for counter, hard in guarantees.others for value in (counter, hard)]
    return [guarantees.counter or False, guarantees.hard, *others]


def _list_charged_windows(windows: Sequence[WindowPlan]) -> list[Any]:
    """Return the windows that a Pod is charged in, as its record has them: CHARGED_WINDOW of `script.py`.

    The last field is left out in a window without counters of its members.
    """
    charged: list[Any] = []
    for window in windows:
        guarantees = [window.find_guarantees(limit) for limit in window.limits]
        counters = ["" if found is None else found.counter for found in guarantees]
        resources = [limit.counts for limit in window.limits]
        charged.append([window.seconds, resources, *([counters] if any(counters) else [])])
    return charged


def _list_standing_limits(plan: StandingPlan | None) -> list[StandingLimit]:
    """Return the service's own limits on live Pods; empty if only its pool has any."""
    if plan is None:
        return []
    return [
        StandingLimit(resource=limit.counts, hard=limit.hard, surge=min(surge, EXACT_AMOUNT_MAX))
        for limit, surge in zip(plan.limits, plan.surge, strict=True)
    ]


def _list_pool_limits(standing: WindowPlan) -> list[PoolStandingLimit]:
    return [
        PoolStandingLimit(
            resource=limit.counts,
            hard=limit.hard,
            kept=[False, 0] if (found := standing.find_guarantees(limit)) is None else _list_parties(found),
        )
        for limit in standing.limits
    ]


def _make_rules(plan: BreakerPlan) -> BreakerRules:
    errors, latency, forcing = plan.error_rate, plan.latency, plan.forcing
    return BreakerRules(
        has_outcomes=plan.has_outcomes,
        error_rate=_make_trigger(errors, errors.percent) if errors else False,
        latency=_make_trigger(latency, latency.mean_us) if latency else False,
        open_for_us=plan.open_for_us,
        probes=plan.probes,
        probe_timeout_us=plan.probe_timeout_us,
        degrades=plan.degrades,
        open_max=False if plan.open_max is None else plan.open_max,
        forcing=ForcedState(state=forcing.state, until_us=forcing.until_us, reason=forcing.reason)
        if forcing
        else False,
    )


def _make_trigger(rule: ErrorRatePlan | LatencyPlan, threshold: int) -> TriggerRule:
    return TriggerRule(
        cause=rule.cause,
        threshold=threshold,
        interval_us=rule.interval_us,
        consecutive=rule.consecutive,
        minimum=rule.minimum,
        reason_head=rule.reason_head,
    )
