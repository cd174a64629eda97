"""Cost of a Pod: the scheduler's totals under ResourceQuota's names, in the units of the counters."""

from collections.abc import Iterable
from functools import lru_cache
from typing import get_args

from webhook.core.kubernetes.pod import Pod
from webhook.core.kubernetes.pod_requests import (
    BYTES,
    HUGE_PAGES,
    NANO,
    Side,
    in_bytes,
    in_digits,
    in_millicores,
    total,
)
from webhook.core.quota import LARGEST_EXACT, Cost, CounterPlan, canonical, is_cpu

_SIDES: tuple[Side, ...] = get_args(Side)


def counted(plan: CounterPlan) -> tuple[str, ...]:
    """Return every resource that the plan limits, by canonical name."""
    return tuple(dict.fromkeys(limit.counts for _, _, limit in plan.limits))


def taken(pod: Pod, names: Iterable[str]) -> Cost:
    """Return the Pod's amount of each resource. ValueError: an unreadable quantity."""
    return {name: 1 if name == "pods" else _one(pod, name) for name in names}


def shown(resource: str, amount: int) -> int | str:
    """Return an amount as Kubernetes writes it: a number for counts, otherwise a canonical quantity."""
    name = canonical(resource)
    if is_cpu(name):
        return in_millicores(amount)
    if name.partition(".")[2] in BYTES or HUGE_PAGES in name:
        return in_bytes(amount)
    return amount if amount <= LARGEST_EXACT else in_digits(amount)


def _one(pod: Pod, resource: str) -> int:
    """Return the amount of one canonical resource: millicores for cpu, whole units otherwise, rounded up."""
    side, name, unit = _meaning(resource)
    return -(-total(pod, side, name) // unit)


@lru_cache(maxsize=1024)
def _meaning(resource: str) -> tuple[Side, str, int]:
    """Return the side of a container's resources (requests or limits), the name there, and the unit in billionths."""
    side = next((side for side in _SIDES if resource.startswith(f"{side}.")), None)
    name = resource if side is None else resource.removeprefix(f"{side}.")
    return side or "requests", name, NANO // 1000 if is_cpu(resource) else NANO
