"""Amounts of a Pod's resources, under ResourceQuota's names, in exact integers."""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from math import ceil

EXACT_AMOUNT_MAX = 2**53
"""Stores count in doubles (Lua): a larger limit could not be exact."""

HOUR_US = 3_600_000_000

Cost = Mapping[str, int]
"""Amounts of one Pod by canonical resource name: pods, millicores, bytes, or a count."""

_ALIASES = {"cpu": "requests.cpu", "memory": "requests.memory", "ephemeral-storage": "requests.ephemeral-storage"}
_CPU = frozenset({"requests.cpu", "limits.cpu"})


def canonicalize(resource: str) -> str:
    """Return ResourceQuota's full name: `cpu`, `memory`, `ephemeral-storage` alias `requests.*`."""
    return _ALIASES.get(resource, resource)


def is_cpu(resource: str) -> bool:
    """Whether amounts are millicores; an extended resource may end in `.cpu` and counts whole units."""
    return canonicalize(resource) in _CPU


def sum_costs(costs: Iterable[Cost]) -> Cost:
    """Return what Pods ask for together."""
    total: dict[str, int] = {}
    for cost in costs:
        for resource, amount in cost.items():
            total[resource] = total.get(resource, 0) + amount
    return total


def clip_amounts(cost: Cost) -> Cost:
    """Return amounts that a store counts exactly, and the largest instead of any above it, which no limit exceeds."""
    return {resource: min(amount, EXACT_AMOUNT_MAX) for resource, amount in cost.items()}


def convert_amount(resource: str, value: Fraction) -> int:
    """Return an exact integer: millicores for cpu, whole units otherwise, rounded up as Kubernetes does."""
    return ceil(value * 1000) if is_cpu(resource) else ceil(value)
