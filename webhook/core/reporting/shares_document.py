"""Shares of a service in the status document: its variants, their weights, and the states of their breakers."""

from collections.abc import Mapping
from typing import Any

from webhook.core.breaker import BreakerOwner
from webhook.core.policy.model import Service
from webhook.core.quota import ServiceSnapshot
from webhook.core.reporting.status_parts import render_breaker


def render_shares(service: Service, snapshots: Mapping[str, ServiceSnapshot]) -> dict[str, Any] | None:
    """Return the shares that are in force, None without any. `snapshots`: by the names of plans.

    The breaker of a variant is null if its state is unknown; `hasBreaker` is false for the last one, which has none.
    """
    shares = None if service.placement is None else service.placement.shares
    if shares is None or not service.variants:
        return None
    base, with_breaker = shares.base, service.breaker_variants
    return {
        "base": None if base is None else {"variant": base.variant, "pods": base.pods},
        "rebalance": shares.rebalance,
        "variants": [
            {
                "name": variant.name,
                "weight": variant.weight or 0,
                "hasBreaker": variant.name in with_breaker,
                "breaker": _render_state(snapshots.get(BreakerOwner(service.name, variant.name).name), shares.probes),
            }
            for variant in shares.variants
        ],
    }


def _render_state(snapshot: ServiceSnapshot | None, probes: int) -> dict[str, Any] | None:
    view = None if snapshot is None else snapshot.breaker
    return None if snapshot is None or view is None else render_breaker(view, snapshot.at_us, probes)
