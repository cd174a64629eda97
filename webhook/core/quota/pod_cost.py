"""Cost of a Pod: the scheduler's totals under ResourceQuota's names, in the units of the counters."""

from collections.abc import Iterable
from functools import lru_cache
from typing import get_args

from webhook.core.kubernetes.effective_resources import apply_status
from webhook.core.kubernetes.pod import Pod
from webhook.core.kubernetes.pod_requests import (
    BYTES,
    HUGE_PAGES,
    NANO,
    Side,
    compute_total,
    format_bytes,
    format_digits,
    format_millicores,
)
from webhook.core.quota import EXACT_AMOUNT_MAX, Cost, CounterPlan, canonicalize, is_cpu

_SIDES: tuple[Side, ...] = get_args(Side)


def list_counted(plan: CounterPlan) -> tuple[str, ...]:
    """Return every resource that the plan limits, by canonical name."""
    return tuple(dict.fromkeys(limit.counts for _, _, limit in plan.limits))


def compute_cost(pod: Pod, names: Iterable[str]) -> Cost:
    """Return the Pod's amount of each resource. ValueError: an unreadable quantity."""
    return {name: 1 if name == "pods" else _compute_amount(pod, name) for name in names}


def compute_live_cost(pod: Pod, names: Iterable[str]) -> Cost | None:
    """Return the cost of what a Pod's node keeps for it; None if the Pod asks for the same. ValueError: see above."""
    kept = apply_status(pod)
    return None if kept is None else compute_cost(kept, names)


def format_amount(resource: str, amount: int) -> int | str:
    """Return an amount as Kubernetes writes it: a number for counts, otherwise a canonical quantity."""
    name = canonicalize(resource)
    if is_cpu(name):
        return format_millicores(amount)
    if name.partition(".")[2] in BYTES or HUGE_PAGES in name:
        return format_bytes(amount)
    return amount if amount <= EXACT_AMOUNT_MAX else format_digits(amount)


def _compute_amount(pod: Pod, resource: str) -> int:
    """Return the amount of one canonical resource: millicores for cpu, whole units otherwise, rounded up."""
    side, name, unit = _parse_resource(resource)
    return -(-compute_total(pod, side, name) // unit)


@lru_cache(maxsize=1024)
def _parse_resource(resource: str) -> tuple[Side, str, int]:
    """Return the side of a container's resources (requests or limits), the name there, and the unit in billionths."""
    side = next((side for side in _SIDES if resource.startswith(f"{side}.")), None)
    name = resource if side is None else resource.removeprefix(f"{side}.")
    return side or "requests", name, NANO // 1000 if is_cpu(resource) else NANO
