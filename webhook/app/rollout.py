"""Composition of what follows a candidate in a server: counts of decisions by policy, and the shadow."""

from dataclasses import dataclass

from webhook.app.cluster import Sources
from webhook.app.store import StoreBackend
from webhook.app.supervision import Loop
from webhook.app.telemetry import Telemetry
from webhook.policy_in_force.candidate_watch import CandidateWatch
from webhook.policy_in_force.decision_counts import DecisionCounts
from webhook.policy_in_force.shadow import Shadow


@dataclass(frozen=True, slots=True)
class CandidateParts:
    """The shadow of a candidate, and the loops that judge and send."""

    shadow: Shadow
    loops: tuple[Loop, ...]


def open_candidate_parts(telemetry: Telemetry, sources: Sources, store: StoreBackend) -> CandidateParts:
    """Return the parts, which observe reviews while there is a candidate."""
    observer, counts = telemetry.observer, DecisionCounts(store.counts)
    shadow = Shadow(sources.policies.active, store.counters, sources.namespaces, counts.add)
    observer.join(CandidateWatch((observer.join, observer.leave), counts, shadow))
    telemetry.metrics.rollout.watch_shadow(lambda: shadow.totals)
    return CandidateParts(shadow, (counts.run, shadow.run))
