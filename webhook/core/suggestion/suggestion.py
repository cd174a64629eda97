"""Suggestion of a policy: the numbers of each service and pool with their evidence, and what was not seen."""

from collections.abc import Mapping

from msgspec import Struct

from webhook.core.policy.model import Pool, Service
from webhook.core.suggestion.limits import LimitSuggestion
from webhook.core.suggestion.observed_outcomes import BreakerSuggestion, ObservedOutcomes
from webhook.core.suggestion.seen_time import SeenTime


class ReplayProof(Struct, frozen=True, rename="camel"):
    """The past Pods that a replay of the suggested policy judged, and those that its limits and breaker denied."""

    pods: int = 0
    denied: int = 0
    """Denied or made to wait."""
    example: str = ""


class SuggestedPool(Struct, frozen=True):
    """The limits of a pool; none if its members were not seen."""

    pool: Pool
    limits: tuple[LimitSuggestion, ...]

    @property
    def is_changed(self) -> bool:
        return any(limit.is_changed for limit in self.limits)


class SuggestedService(Struct, frozen=True):
    """What was seen of a service, and what to write. Without requests and outcomes there are no numbers."""

    service: Service
    requests: int = 0
    denied: int = 0
    """Requests that were denied in the past; they are no use, as they may be attempts for the same Pod."""
    unfinished: int = 0
    """Requests that others have refused."""
    limits: tuple[LimitSuggestion, ...] = ()
    outcomes: ObservedOutcomes | None = None
    breaker: BreakerSuggestion | None = None
    proof: ReplayProof = ReplayProof()
    notes: tuple[str, ...] = ()

    @property
    def is_changed(self) -> bool:
        return any(limit.is_changed for limit in self.limits) or self.breaker is not None


class Suggestion(Struct, frozen=True):
    """What was seen of all services that were asked for, and what to write."""

    source: str
    requests: int
    headroom_percent: int
    services: tuple[SuggestedService, ...]
    pools: tuple[SuggestedPool, ...] = ()
    time: SeenTime | None = None
    """None: nothing was seen."""
    history: SeenTime | None = None
    """The time of what Prometheus has measured; None: it was not asked, or has nothing."""
    left_out: Mapping[str, int] = {}
    """Reasons for which requests were not judged, with their number."""
    exempts_daemon_sets: bool = True
    """As the policy: with `false`, services may select Pods of DaemonSets."""
    unowned: Mapping[str, int] = {}
    """Requests of no service, by namespace."""
    notes: tuple[str, ...] = ()
