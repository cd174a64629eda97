"""Judgement of windows of which a part is kept for members of a pool. Why so: docs/design/guarantees.md."""

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


def _find_free_at_us(
    ring: Ring | None, limit: Limit, guarantees: LimitGuarantees | None, asked: int, now_us: int
) -> int | None:
    most = limit.hard if guarantees is None else guarantees.compute_most(limit.hard)
    if ring is None or asked > most:
        return None
    return ring.find_fit_us(now_us, lambda left: _fits(left, limit, guarantees, asked))


def _fits(amounts: Mapping[str, int], limit: Limit, guarantees: LimitGuarantees | None, asked: int) -> bool:
    kept = 0 if guarantees is None else guarantees.compute_kept(amounts, asked)
    return amounts.get(limit.counts, 0) + asked <= limit.hard - kept


def _build_guarantee_use(guarantees: LimitGuarantees, amounts: Mapping[str, int]) -> GuaranteeUse:
    own, kept = amounts.get(guarantees.counter, 0), guarantees.compute_kept_for_others(amounts)
    return GuaranteeUse(guarantees.hard, own, kept)
