"""Limits under a factor: rounded down to what is counted, so that a factor never grants more than it states."""

from collections.abc import Mapping
from fractions import Fraction
from math import floor

from webhook.core.kubernetes.quantity import Quantity
from webhook.core.quota.amounts import EXACT_AMOUNT_MAX, is_cpu


def convert_to_units(resource: str, quantity: Quantity) -> Fraction:
    """Return an amount in the counters' unit, exactly: millicores for cpu, else whole units."""
    return quantity.value * 1000 if is_cpu(resource) else quantity.value


def build_quantity(resource: str, units: Fraction) -> Quantity:
    """Return a countable limit: clamped, and rounded down."""
    counted = min(floor(units), EXACT_AMOUNT_MAX)
    return Quantity.parse(f"{counted}m" if is_cpu(resource) else str(counted))


def scale(hard: Mapping[str, Quantity], factor: Fraction) -> dict[str, Quantity]:
    return {
        resource: build_quantity(resource, convert_to_units(resource, quantity) * factor)
        for resource, quantity in hard.items()
    }
