"""Status document of a server as the console reads it: typed, and without what no page shows."""

from collections.abc import Mapping
from fractions import Fraction

from msgspec import Struct, field

from webhook.core.kubernetes.quantity import parse_quantity

_FULL_PERCENT = 100


def _read_amount(amount: int | str) -> int | Fraction:
    return amount if isinstance(amount, int) else parse_quantity(amount)


class LimitStatus(Struct, frozen=True, rename="camel"):
    """One limit: of a window, or of live Pods; `used` is None while it is unknown."""

    window: str
    resource: str
    hard: int | str
    namespace: str | None = None
    used: int | str | None = None
    full: bool | None = None
    next_free: str | None = None
    next_free_seconds: int | None = None
    surge: int | str | None = None
    enforced: bool | None = None

    @property
    def percent(self) -> int | None:
        """Return how full it is; None if that is unknown."""
        if self.used is None:
            return None
        hard = _read_amount(self.hard) + _read_amount(self.surge or 0)
        return int(_FULL_PERCENT * _read_amount(self.used) / hard) if hard else _FULL_PERCENT


class ProbeStatus(Struct, frozen=True):
    """Probes of a breaker: admitted, succeeded, needed; `early` are those before it was half open."""

    leased: int = 0
    succeeded: int = 0
    needed: int | None = None
    early: int = 0


class BreakerStatus(Struct, frozen=True, rename="camel"):
    """State of a breaker."""

    state: str
    reason: str = ""
    since: str | None = None
    generation: int = 0
    tripped_at: str | None = None
    tripped_by: str | None = None
    open_until: str | None = None
    open_remaining_seconds: int = 0
    probes: ProbeStatus = ProbeStatus()
    failed: tuple[str, ...] = ()


class VariantStatus(Struct, frozen=True, rename="camel"):
    """One variant of a service's shares; its breaker is None if it has none, or if that is not known."""

    name: str
    weight: int = 0
    of_candidate: bool = False
    has_breaker: bool = False
    breaker: BreakerStatus | None = None


class SharesStatus(Struct, frozen=True):
    """How the Pods of a service are divided."""

    variants: tuple[VariantStatus, ...] = ()


class OverrideStatus(Struct, frozen=True, rename="camel"):
    """What is overridden of a service, until when and why."""

    until: str = ""
    reason: str = ""
    by: str | None = None
    remaining_seconds: int = 0


class ServiceRow(Struct, frozen=True, rename="camel"):
    """One service with its limits and its breaker; not `known`: its counters were not read yet."""

    name: str
    sla_class: str
    pool: str | None = None
    scope: str = ""
    failure_mode: str = ""
    known: bool = False
    windows: tuple[LimitStatus, ...] = ()
    breaker: BreakerStatus | None = None
    shares: SharesStatus | None = None
    override: OverrideStatus | None = None
    modes: Mapping[str, str] = {}


class PoolRow(Struct, frozen=True):
    """One pool with its limits, which its members share."""

    name: str
    members: tuple[str, ...] = ()
    windows: tuple[LimitStatus, ...] = ()


class StoreHealth(Struct, frozen=True):
    """The kind of store, its error, and what applies meanwhile."""

    kind: str
    healthy: bool
    error: str | None = None
    mode: str | None = None


class PolicyLine(Struct, frozen=True, rename="camel"):
    """The policy in force, and the errors of a newer document."""

    source: str = ""
    hash: str | None = None
    loaded_at: str | None = None
    errors: tuple[str, ...] = ()


class QueueLine(Struct, frozen=True, rename="camel"):
    """Waiting Pods of one service."""

    service: str
    waiting: int
    oldest_seconds: int = 0
    paused: str | None = None


class QueueLines(Struct, frozen=True):
    """The queues of the services that have waiting Pods or are paused."""

    services: tuple[QueueLine, ...] = ()


class ServerPage(Struct, frozen=True, rename="camel"):
    """The status document."""

    version: str
    time: str
    services: tuple[ServiceRow, ...]
    not_ready: tuple[str, ...] = ()
    policy: PolicyLine = PolicyLine()
    store: StoreHealth = field(default_factory=lambda: StoreHealth("memory", healthy=True))
    queues: QueueLines | None = None
    pools: tuple[PoolRow, ...] = ()
