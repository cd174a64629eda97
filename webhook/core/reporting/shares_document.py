"""Shares of a service in the status document and in its ServiceStatus: variants, weights, and states of breakers."""

from collections.abc import Iterable, Mapping
from typing import Any

from webhook.core.breaker import BreakerOwner, BreakerView
from webhook.core.policy.model import Service
from webhook.core.policy_fields import Shares
from webhook.core.quota import ServiceSnapshot
from webhook.core.reporting.status_parts import format_moment, render_breaker

VARIANTS_SHOWN_MAX = 16
"""What the definition of ServiceStatus allows. In a canary both policies together may have more."""


def render_shares(
    service: Service, snapshots: Mapping[str, ServiceSnapshot], candidate: Service | None = None
) -> dict[str, Any] | None:
    """Return the shares that are in force, None without any. `snapshots`: by the names of plans.

    The breaker of a variant is null if its state is unknown; `hasBreaker` is false for the last one, which has none.
    `candidate`: the service as the candidate of a canary has it. What it alone has follows, as `ofCandidate`.
    """
    own, other = _find_shares(service), None if candidate is None else _find_shares(candidate)
    shares = own or other
    if shares is None:
        return None
    base, with_breaker = None if own is None else own.base, {*service.breaker_variants}
    if candidate is not None:
        with_breaker.update(candidate.breaker_variants)
    known = {} if own is None else {variant.name: variant for variant in own.variants}
    added = [variant for variant in (() if other is None else other.variants) if variant.name not in known]
    return {
        "base": None if base is None else {"variant": base.variant, "pods": base.pods},
        "rebalance": shares.rebalance,
        "variants": [
            {
                "name": variant.name,
                "weight": variant.weight or 0,
                "ofCandidate": variant.name not in known,
                "hasBreaker": variant.name in with_breaker,
                "breaker": _render_state(snapshots.get(BreakerOwner(service.name, variant.name).name), shares.probes),
            }
            for variant in (*known.values(), *added)
        ],
    }


def _find_shares(service: Service) -> Shares | None:
    """Return the shares of a service, None if it enforces none."""
    return None if service.placement is None or not service.variants else service.placement.shares


def _render_state(snapshot: ServiceSnapshot | None, probes: int) -> dict[str, Any] | None:
    view = None if snapshot is None else snapshot.breaker
    return None if snapshot is None or view is None else render_breaker(view, snapshot.at_us, probes)


def render_variants(views: Iterable[tuple[str, BreakerView]]) -> list[dict[str, str]]:
    """Return `variants` of a ServiceStatus: each with its breaker's state, and its end if it has one."""
    rows = [
        {"name": name, "state": str(view.state), "until": format_moment(view.open_until_us)} for name, view in views
    ]
    return [{key: value for key, value in row.items() if value is not None} for row in rows[:VARIANTS_SHOWN_MAX]]
