"""Counters that a change of the policy resets, because it changes the key under which the store keeps them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from webhook.core.policy.model import Policy, Pool, Service
from webhook.core.policy_fields import Mode, Per, PerLabel, Scope, Window
from webhook.core.quota import canonicalize, list_guaranteed_amounts


class _Kept(NamedTuple):
    """Key of a service's counters. It is built for every service at each change, so it has only cheap fields."""

    tag: str
    fleet: bool
    per: str | PerLabel
    windows: Sequence[Window]
    has_breaker: bool

    @classmethod
    def from_service(cls, service: Service, pools: Mapping[str, Pool]) -> "_Kept":
        quota = service.quota if service.modes.quota is not Mode.DISABLED else None
        pool = pools.get(service.pool or "")
        scope = pool.scope if pool else quota.scope if quota else Scope.CLUSTER
        return cls(
            service.tag,
            scope is Scope.FLEET,
            quota.per if quota else Per.SERVICE,
            quota.windows if quota else (),
            service.breaker is not None and service.modes.breaker is not Mode.DISABLED,
        )


def find_resets(old: Policy, new: Policy) -> Iterator[str]:
    """Yield a line for each limit of `new` that starts empty although `old` had counted."""
    pools_before, pools_after = ({pool.name: pool for pool in policy.pools} for policy in (old, new))
    have_same_pools = pools_before == pools_after
    before = {service.name: service for service in old.services}
    names = {service.name for service in new.services}
    gone = {str(service.match): name for name, service in before.items() if name not in names}
    for service in new.services:
        former = before.get(service.name)
        if former is service and have_same_pools:
            continue
        if former is not None:
            yield from _find_service_resets(
                _Kept.from_service(former, pools_before), _Kept.from_service(service, pools_after), service
            )
            yield from _find_guarantee_resets(former, service)
        elif gone and (renamed := gone.get(str(service.match))) is not None:
            yield f"services[{service.name}]: starts empty: no rename of {renamed} carries its counters"
    for pool in new.pools:
        known = pools_before.get(pool.name)
        if known is not None:
            yield from _find_pool_resets(known, pool)


def _find_service_resets(old: _Kept, new: _Kept, service: Service) -> Iterator[str]:
    path = f"services[{service.name}]"
    counted = bool(old.windows and new.windows)
    if old.tag != new.tag:
        lost = ["its windows start empty"] * counted + ["its breaker closes"] * (old.has_breaker and new.has_breaker)
        if lost:
            yield f"{path}.pool: {service.pool or 'none'}: {', '.join(lost)}: counters do not move between pools"
    elif not counted:
        return
    elif old.fleet != new.fleet:
        where = "all clusters on this Redis count together" if new.fleet else "this cluster counts for itself"
        yield f"{path}.quota.scope: {'Fleet' if new.fleet else 'Cluster'}: its windows start empty: {where}"
    elif _read_counters(old.per) != _read_counters(new.per):
        who = "each namespace" if new.per == Per.NAMESPACE else "the service"
        if isinstance(new.per, PerLabel):
            who = f"each value of the Namespaces' label {new.per.namespace_label}"
        shown = new.per if isinstance(new.per, str) else "namespaceLabel"
        yield f"{path}.quota.per: {shown}: its windows start empty: {who} counts for itself"
    else:
        yield from _find_window_resets(f"{path}.quota", old.windows, new.windows)


def _find_guarantee_resets(former: Service, service: Service) -> Iterator[str]:
    """Yield the windows of a new guarantee: what the service used before counts as use of what all share."""
    if service.guaranteed is not None and former.tag == service.tag:
        before = {key for key, _ in list_guaranteed_amounts(former.guaranteed.windows if former.guaranteed else ())}
        for window in service.guaranteed.windows:
            if any(key not in before for key, _ in list_guaranteed_amounts((window,))):
                path = f"services[{service.name}].guaranteed.windows[{window.window}]"
                yield f"{path}: its own use starts empty: what it has used counts as a use of what all share"


def _read_counters(per: str | PerLabel) -> str:
    """Return what decides the counters of a Pod; the number of values is no part of it."""
    return f"label {per.namespace_label}" if isinstance(per, PerLabel) else per


def _find_pool_resets(old: Pool, new: Pool) -> Iterator[str]:
    path = f"pools[{new.name}]"
    if old.scope is not new.scope:
        yield f"{path}.scope: {new.scope}: its windows start empty: Fleet and Cluster count apart"
    else:
        yield from _find_window_resets(path, old.windows, new.windows)


def _find_window_resets(path: str, old: Sequence[Window], new: Sequence[Window]) -> Iterator[str]:
    """Compare windows by the key of their counters: the window's length and the resource."""
    before = {window.window.us: window.hard for window in old}
    for window in new:
        known = before.get(window.window.us)
        if known is None:
            yield f"{path}.windows[{window.window}]: starts empty: no window of this length counted before"
        elif window.hard.keys() != known.keys():
            counted = {canonicalize(resource) for resource in known}
            for resource in window.hard:
                if canonicalize(resource) not in counted:
                    field = f"windows[{window.window}].hard.{resource}"
                    yield f"{path}.{field}: starts empty: not counted in this window before"
