"""Callbacks for what happens to the Pods of variants, and the bounds of their evictions."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from webhook.controller.shares.variant_pods import VariantKey
from webhook.core.breaker import Transition
from webhook.core.pods.variant_pod import VariantPod


class EvictionCause(StrEnum):
    """Why a Pod is evicted; the reason of the Event on it."""

    OPEN = "VariantOpen"
    """The breaker of its variant is open, and it has no node."""
    BACK = "VariantBack"
    """It fell back from a variant that is to be had again."""
    HOLE = "VariantHole"
    """Slots below it are free, and the split of its workload is off."""


@dataclass(frozen=True, slots=True)
class VariantReports:
    """Callbacks, each for one event, except `on_counted`, which reports current values."""

    on_evicted: Callable[[VariantPod, EvictionCause, str], None]
    """A Pod was evicted; with a note for people."""
    on_counted: Callable[[Mapping[VariantKey, int], Mapping[VariantKey, int]], None]
    """Pods of each variant, and those that were to get it, and got another one."""
    on_transition: Callable[[Transition], None]
    on_trouble: Callable[[str], None]
    """Evictions fail; until `on_over`."""
    on_over: Callable[[str], None]


@dataclass(frozen=True, slots=True)
class VariantTiming:
    """Interval and bounds of the evictions."""

    round_seconds: float = 1.0
    evictions_per_round_max: int = 50
    concurrent_evictions_max: int = 8
    blocked_us: int = 10_000_000
    """How long a Pod is left alone that a disruption budget protects."""
    refused_us: int = 60_000_000
    """How long a Pod is left alone whose eviction is refused, or has no answer."""
    replacement_us: int = 600_000_000
    """How long the replacement of a moved Pod is waited for, before another one is moved."""
    hole_us: int = 10_000_000
    """How long a workload has had a hole among its slots, before a Pod is moved into it."""
