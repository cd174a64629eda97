"""Limits that the schedules of a quota put in force at a moment, and what a denial may say until the next change."""

from collections.abc import Collection, Mapping

from msgspec.structs import replace

from webhook.core.kubernetes.quantity import Quantity
from webhook.core.policy.model import LoadedPolicy, Service
from webhook.core.policy.schedules import HORIZON_US, ScheduleState, find_state
from webhook.core.policy_fields import Quota, Schedule, Window
from webhook.core.quota.amounts import canonicalize
from webhook.core.quota.plans import Holder
from webhook.core.quota.receipts import Receipt, Use, find_free_at_us
from webhook.core.quota.scaling import scale


def has_schedules(loaded: LoadedPolicy) -> bool:
    return any(service.quota is not None and service.quota.schedules for service in loaded.policy.services)


def apply_schedules(loaded: LoadedPolicy, at_us: int, only: Collection[str] | None = None) -> LoadedPolicy:
    """Return the policy with the limits of a moment, for all services or `only` these; the hash stays."""
    states = {
        service.name: find_state(service.quota.schedules, at_us)
        for service in loaded.policy.services
        if service.quota is not None and service.quota.schedules and (only is None or service.name in only)
    }
    if not states:
        return loaded
    services = tuple(_apply_state(service, states.get(service.name)) for service in loaded.policy.services)
    return replace(loaded, policy=replace(loaded.policy, services=services), schedules=states)


def find_next_change_us(states: Mapping[str, ScheduleState], at_us: int) -> int | None:
    """Return until when the states of a moment hold; None without any."""
    ends = (state.changes_at_us if state.changes_at_us is not None else at_us + HORIZON_US for state in states.values())
    return min(ends, default=None)


def apply_to_quota(quota: Quota, schedule: Schedule) -> Quota:
    """Return a quota with the limits of a schedule."""
    standing = quota.standing
    if schedule.factor is not None:
        factor = schedule.factor.value
        windows = tuple(Window(window.window, scale(window.hard, factor)) for window in quota.windows)
        standing = None if standing is None else replace(standing, hard=scale(standing.hard, factor))
        return replace(quota, windows=windows, standing=standing)
    others = {window.window: window.hard for window in schedule.windows}
    if schedule.hard is not None:
        others |= {window.window: schedule.hard for window in quota.windows}
    windows = tuple(
        Window(window.window, _replace_amounts(window.hard, others.get(window.window, {}))) for window in quota.windows
    )
    live = schedule.standing.hard if schedule.standing is not None else schedule.hard if not quota.windows else None
    if standing is not None and live is not None:
        standing = replace(standing, hard=_replace_amounts(standing.hard, live))
    return replace(quota, windows=windows, standing=standing)


def limit_waits(receipt: Receipt, state: ScheduleState | None) -> Receipt:
    """Return a denial that promises nothing beyond the next change of the limits: until then it holds at least."""
    changes_at_us = None if state is None else state.changes_at_us
    if changes_at_us is None:
        return receipt
    over = tuple(_limit_wait(use, changes_at_us) for use in receipt.over)
    return replace(receipt, over=over, free_at_us=find_free_at_us(over) if over else receipt.free_at_us)


def _limit_wait(use: Use, changes_at_us: int) -> Use:
    is_later = use.free_at_us is None or use.free_at_us > changes_at_us
    return replace(use, free_at_us=changes_at_us) if is_later and use.of is not Holder.POOL else use


def _apply_state(service: Service, state: ScheduleState | None) -> Service:
    if state is None or state.current is None or service.quota is None:
        return service
    return replace(service, quota=apply_to_quota(service.quota, state.current))


def _replace_amounts(hard: Mapping[str, Quantity], others: Mapping[str, Quantity]) -> dict[str, Quantity]:
    """Return the amounts with those of a schedule, which may write a resource by its other name."""
    by_name = {canonicalize(resource): quantity for resource, quantity in others.items()}
    return {resource: by_name.get(canonicalize(resource), quantity) for resource, quantity in hard.items()}
