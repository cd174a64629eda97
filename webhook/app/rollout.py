"""Composition of a rollout: in a server what follows a candidate, its counts and shadow; in the leader its loops."""

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from webhook.adapters.clocks import WallClock
from webhook.app.cluster import Sources
from webhook.app.policy_source import RolloutClients
from webhook.app.store import StoreBackend
from webhook.app.supervision import Loop
from webhook.app.telemetry import Telemetry
from webhook.app.telemetry.loop_reports import build_rollout_reports, build_status_reports
from webhook.controller import StatusWriter
from webhook.controller.rollout.figure_reader import FigureReader
from webhook.controller.rollout.leader import RolloutLeader
from webhook.controller.rollout.pod_figures import PodFiguresObserver
from webhook.controller.rollout.reports import RolloutInputs, WishedPolicy
from webhook.core.policy.model import LoadedPolicy
from webhook.core.rollout.status import ROLLOUT_NAME
from webhook.policy_in_force.candidate_watch import CandidateWatch
from webhook.policy_in_force.decision_counts import DecisionCounts
from webhook.policy_in_force.shadow import Shadow
from webhook.ports import RolloutCounts

_WALL = WallClock()
"""Times of the rollout's state are read by other processes and people."""


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


def find_candidate(sources: Sources) -> LoadedPolicy | None:
    """Return the candidate, which is the wished policy while it is tried."""
    follower = sources.policies.rollout
    state, wished = follower.view.state, follower.wished
    is_tried = state is not None and wished is not None and state.candidate == wished.loaded.hash
    return wished.loaded if is_tried and wished is not None else None


def build_rollout_loops(
    sources: Sources,
    clients: RolloutClients,
    pods: PodFiguresObserver,
    counts: RolloutCounts,
    telemetry: Telemetry,
) -> tuple[Callable[[], Coroutine[Any, Any, None]], ...]:
    """Return the loops that bring a changed policy into force, and show how far it has come."""
    follower = sources.policies.rollout

    def find_wished() -> WishedPolicy | None:
        wished = follower.wished
        return None if wished is None else WishedPolicy(wished.raw, wished.loaded)

    def is_watching() -> bool:
        watch = telemetry.watches.get("pods")
        return watch is not None and not watch.error

    inputs = RolloutInputs(
        clients.states,
        clients.revisions,
        find_wished,
        sources.policies.get_loaded,
        FigureReader(pods, counts, is_watching, _WALL.now_us),
        _WALL.now_us,
    )
    leader = RolloutLeader(inputs, build_rollout_reports(telemetry))

    def find_wanted() -> dict[str, Mapping[str, Any] | None] | None:
        return None if leader.status is None else {ROLLOUT_NAME: leader.status}

    reports = build_status_reports(telemetry, "PolicyRollouts", "policyrollouts")
    return leader.run, StatusWriter(clients.board, find_wanted, reports).run
