"""Judgement of a pool's windows, and of its limits on live Pods, of which a part is kept for members.

Why so: docs/design/guarantees.md.
"""

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from webhook.core.ledger.window_ring import Ring
from webhook.core.quota import Account, Cost, GuaranteeUse, Holder, Limit, LimitGuarantees, Use, WindowPlan

_NO_COST: Cost = {}


def list_pool_uses(
    account: Account, window: WindowPlan, ring: Ring | None, cost: Cost, now_us: int
) -> Iterator[tuple[Use, bool]]:
    """Yield the use of each limit of a pool's window, and whether `cost` would exceed it."""
    amounts = _NO_COST if ring is None else ring.used(now_us)
    for limit in window.limits:
        found, asked, has = window.find_guarantees(limit), cost.get(limit.counts, 0), amounts.get(limit.counts, 0)
        is_over = not _fits(amounts, limit, found, asked)
        free_at_us: int | None = 0
        if is_over:
            free_at_us = _find_free_at_us(ring, limit, found, asked, now_us)
        use = Use(window.name, limit.resource, has, limit.hard, asked, free_at_us, Holder.POOL, account[1])
        if found is not None:
            use = replace(use, guarantee=_build_guarantee_use(found, amounts))
        yield use, is_over and asked > 0


def list_live_uses(
    pool: str, standing: WindowPlan, amounts: Mapping[str, int], cost: Cost
) -> Iterator[tuple[Use, bool]]:
    """Yield the use of each limit on the live Pods of a pool, and whether `cost` would exceed it.

    Live Pods free room when they end, at an unknown time.
    """
    for limit in standing.limits:
        found, asked, has = standing.find_guarantees(limit), cost.get(limit.counts, 0), amounts.get(limit.counts, 0)
        is_over = asked > 0 and not _fits(amounts, limit, found, asked)
        free_at_us = None if is_over and asked > _compute_most(limit, found) else 0
        use = Use(standing.name, limit.resource, has, limit.hard, asked, free_at_us, Holder.POOL, pool)
        if found is not None:
            use = replace(use, guarantee=_build_guarantee_use(found, amounts))
        yield use, is_over


def _compute_most(limit: Limit, guarantees: LimitGuarantees | None) -> int:
    """Return the most that a single Pod can have of a limit."""
    return limit.hard if guarantees is None else guarantees.compute_most(limit.hard)


def _find_free_at_us(
    ring: Ring | None, limit: Limit, guarantees: LimitGuarantees | None, asked: int, now_us: int
) -> int | None:
    if ring is None or asked > _compute_most(limit, guarantees):
        return None
    return ring.find_fit_us(now_us, lambda left: _fits(left, limit, guarantees, asked))


def _fits(amounts: Mapping[str, int], limit: Limit, guarantees: LimitGuarantees | None, asked: int) -> bool:
    kept = 0 if guarantees is None else guarantees.compute_kept(amounts, asked)
    return amounts.get(limit.counts, 0) + asked <= limit.hard - kept


def _build_guarantee_use(guarantees: LimitGuarantees, amounts: Mapping[str, int]) -> GuaranteeUse:
    own, kept = amounts.get(guarantees.counter, 0), guarantees.compute_kept_for_others(amounts)
    return GuaranteeUse(guarantees.hard, own, kept)
