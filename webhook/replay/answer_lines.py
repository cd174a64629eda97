"""Fields of a replay's output lines: limits of the service and its pool, and the breaker."""

from typing import Any

from webhook.core.quota import CounterPlan, ServiceSnapshot, Use
from webhook.core.quota.pod_cost import shown

_SECOND_US = 1_000_000


def breaker_of(snapshot: ServiceSnapshot) -> dict[str, Any]:
    view = snapshot.breaker
    return {"breaker": view.state if view else None, "generation": view.generation if view else None}


def remaining_of(snapshot: ServiceSnapshot) -> float | int:
    """Return the remaining open time in seconds, 0 if there is none."""
    remaining_us = snapshot.breaker.open_remaining_us(snapshot.at_us) if snapshot.breaker else 0
    return remaining_us // _SECOND_US if remaining_us % _SECOND_US == 0 else remaining_us / _SECOND_US


def used_of(plan: CounterPlan, snapshot: ServiceSnapshot, namespace: str | None) -> list[dict[str, Any]]:
    """Return the usage of each window; with `per: Namespace` for `namespace`, or for every namespace with usage."""
    wanted = {namespace} if plan.per_namespace and namespace is not None else set(snapshot.uses)
    of_the_service = [_use(use, plan.service, key) for key in sorted(wanted) for use in snapshot.uses.get(key, ())]
    return of_the_service + [_use(use, use.name, "") for use in snapshot.pool]


def _use(use: Use, name: str, namespace: str) -> dict[str, Any]:
    return {
        "window": use.window,
        "resource": use.resource,
        "used": shown(use.resource, use.used),
        "hard": shown(use.resource, use.hard),
        "of": use.of,
        "name": name,
        "namespace": namespace or None,
    }
