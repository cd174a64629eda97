"""States of a breaker, the causes that change them, and the values that callers see."""

from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct


class State(StrEnum):
    """A breaker's state. An override sets the FORCED ones."""

    CLOSED = "CLOSED"
    OPEN = "OPEN"
    HALF_OPEN = "HALF_OPEN"
    FORCED_OPEN = "FORCED_OPEN"
    FORCED_CLOSED = "FORCED_CLOSED"

    @property
    def is_forced(self) -> bool:
        """Whether an override set this state."""
        return self is State.FORCED_OPEN or self is State.FORCED_CLOSED

    @property
    def is_tripped(self) -> bool:
        """Whether the breaker has tripped and not recovered. breakerGuard counts these."""
        return self is State.OPEN or self is State.HALF_OPEN

    @property
    def is_open(self) -> bool:
        """Whether Pods are denied until a known moment."""
        return self is State.OPEN or self is State.FORCED_OPEN


class TransitionCause(StrEnum):
    """Cause of a transition, as one fixed word. The first four are the triggers of the policy."""

    ERROR_RATE = "errorRate"
    LATENCY = "latency"
    QUOTA_EXCEEDED = "quotaExceeded"
    UNSCHEDULABLE = "unschedulable"
    OPEN_FOR_PASSED = "openForPassed"
    PROBES_SUCCEEDED = "probesSucceeded"
    PROBE_FAILED = "probeFailed"
    FORCED_OPEN = "forcedOpen"
    FORCED_CLOSED = "forcedClosed"
    RELEASED = "released"
    RESET = "reset"
    PROBE_EXPIRED = "probeExpired"
    """The outcome of a probe did not arrive within `probeTimeout`; the state stays."""

    @property
    def is_trigger(self) -> bool:
        return self in TRIGGERS


TRIGGERS = (
    TransitionCause.ERROR_RATE,
    TransitionCause.LATENCY,
    TransitionCause.QUOTA_EXCEEDED,
    TransitionCause.UNSCHEDULABLE,
)

HELD = "held back by breakerGuard: "
"""Prefix of the reason of a trip that breakerGuard held back; the reason of the trip follows."""

EXPIRED = "a probe's lease expired"


class BreakerOwner(NamedTuple):
    """What a breaker is of: a service, or one variant of its shares."""

    service: str
    variant: str = ""

    @classmethod
    def parse(cls, name: str) -> "BreakerOwner":
        """Return the owner of the breaker whose plan has this name. Neither part contains a slash."""
        service, _, variant = name.partition("/")
        return cls(service, variant)

    @property
    def name(self) -> str:
        """The name of the breaker's plan: SERVICE or SERVICE/VARIANT."""
        return f"{self.service}/{self.variant}" if self.variant else self.service

    def __str__(self) -> str:
        return f"service {self.service}, variant {self.variant}" if self.variant else f"service {self.service}"


class Transition(Struct, frozen=True):
    """One change of state at `at_us`, which may be earlier than the moment it was detected.

    `service` is the name of the breaker's plan, which `owner` takes apart.
    Two transitions keep the state: a trip that breakerGuard held back, and a probe that expired.
    `reason` is text for people. Programs read `cause`.
    """

    service: str
    old: State
    new: State
    at_us: int
    reason: str
    generation: int
    cause: TransitionCause

    @property
    def owner(self) -> BreakerOwner:
        return BreakerOwner.parse(self.service)

    @property
    def is_change(self) -> bool:
        return self.old is not self.new

    @property
    def is_held_back(self) -> bool:
        """Whether it is a trip that breakerGuard held back."""
        return self.old is self.new and self.cause.is_trigger


class BreakerView(Struct, frozen=True, gc=False):
    """A breaker as callers see it at one moment. `open_until_us` is when OPEN or a FORCED state ends, else 0.

    `tripped_at_us` and `tripped_by` are of the newest trip; 0 and "" before the first. In OPEN, `early` more Pods may
    probe early, of controllers that are not in `failed`.
    """

    state: State
    generation: int
    since_us: int
    open_until_us: int = 0
    reason: str = ""
    probes_leased: int = 0
    probes_succeeded: int = 0
    tripped_at_us: int = 0
    tripped_by: str = ""
    early: int = 0
    failed: tuple[str, ...] = ()
    passed: int = 0
    """Generations since its newest decision: transitions by time alone, and numbers of discarded branches."""
    alone: int = 0
    """Decisions by a replica without the store, after the last one of the store that it knew; 0 for the store's."""

    @property
    def decided(self) -> int:
        """Return the generation of its newest transition that time alone does not cause."""
        return self.generation - self.passed

    def compute_open_remaining_us(self, now_us: int) -> int:
        """Return microseconds until probes are admitted, or the override ends; 0 unless it is open."""
        return max(0, self.open_until_us - now_us) if self.state.is_open else 0
