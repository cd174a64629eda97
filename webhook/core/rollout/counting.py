"""Counts of decisions by policy: their names, and the buckets of time that a store keeps them in."""

from collections import Counter

BUCKET_US = 10_000_000
KEPT_BUCKETS = 360
"""An hour."""
REVIEWS = "reviews"
"""New Pods that the validating call has decided, without dry runs."""
DENIALS = "denials"
"""Those of them that were denied."""
SHADOW_REVIEWS = "shadow"
"""New Pods that a candidate has judged beside the policy in force."""
_SHADOW_PREFIX = "shadow/"


class ShadowTotals:
    """What the shadow of one candidate has judged in one process, and left out."""

    def __init__(self) -> None:
        self.judged = self.left_out = 0
        self.differences: Counter[tuple[str, str]] = Counter()
        """Pods by service and kind of difference."""


def bucket_of(at_us: int) -> int:
    return at_us // BUCKET_US


def make_shadow_name(service: str, difference: str) -> str:
    """Return the name of the count of one kind of difference; `service` is "" for Pods of none."""
    return f"{_SHADOW_PREFIX}{service}/{difference}"


def parse_shadow_name(name: str) -> tuple[str, str] | None:
    """Return service and difference; None for another count."""
    if not name.startswith(_SHADOW_PREFIX):
        return None
    service, _, difference = name.removeprefix(_SHADOW_PREFIX).partition("/")
    return service, difference
