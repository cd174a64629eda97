"""How requests and Pods fared, as a breaker hears of it."""

from enum import StrEnum

from msgspec import Struct


class Outcomes(Struct, frozen=True):
    """How some requests of a service fared, or one of its Pods: then `uid` says which.

    `latency_us` is the sum over all of them. `generation` is the breaker's when they were let in, None for today's.
    They were had `age_us` ago, and count in the interval of then.
    """

    succeeded: int
    failed: int
    latency_us: int
    uid: str | None = None
    generation: int | None = None
    age_us: int = 0

    @classmethod
    def one(cls, *, ok: bool, latency_us: int, uid: str | None = None, generation: int | None = None) -> "Outcomes":
        """Return what is known of a single one, had just now."""
        return cls(int(ok), int(not ok), latency_us, uid, generation)


class Start(Struct, frozen=True):
    """How one Pod's start went, as whoever watches Pods saw it `age_us` ago. The store knows the rest of the Pod."""

    uid: str
    ok: bool
    latency_us: int
    age_us: int = 0


class Settlement(StrEnum):
    """What became of a Pod's outcome."""

    COUNTED = "counted"
    UNKNOWN = "unknown"
    """The store has no record of the Pod."""
    REPEATED = "repeated"
    """A Pod has one outcome at most."""
    STALE = "stale"
    """The breaker has moved on since the Pod was let in, or waits for it no longer."""
