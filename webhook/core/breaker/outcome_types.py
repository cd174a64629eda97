"""Values of outcomes of requests and of Pod starts, as reported to a breaker."""

from enum import StrEnum

from msgspec import Struct


class Outcomes(Struct, frozen=True):
    """Outcomes of some requests of a service, or of one of its Pods, identified by `uid`.

    `latency_us` is their sum. `generation` is the breaker's at their admission, None for the current one. They occurred
    `age_us` ago and count in the interval of that time.
    """

    succeeded: int
    failed: int
    latency_us: int
    uid: str | None = None
    generation: int | None = None
    age_us: int = 0

    @classmethod
    def from_single(
        cls, *, ok: bool, latency_us: int, uid: str | None = None, generation: int | None = None
    ) -> "Outcomes":
        """Return a single outcome that occurred just now."""
        return cls(int(ok), int(not ok), latency_us, uid, generation)


class Start(Struct, frozen=True):
    """Outcome of one Pod's start, observed `age_us` ago. The store has the Pod's other data."""

    uid: str
    ok: bool
    latency_us: int
    age_us: int = 0


class Settlement(StrEnum):
    """Result of reporting a Pod's outcome."""

    COUNTED = "counted"
    UNKNOWN = "unknown"
    """The store has no record of the Pod."""
    REPEATED = "repeated"
    """A Pod has one outcome at most."""
    STALE = "stale"
    """The breaker has changed since the Pod's admission, or no longer waits for the outcome."""
