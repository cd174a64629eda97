"""Reader of the figures of a candidate, and of the policy in force: Pods from the watch, denials from the store."""

from collections.abc import Callable
from dataclasses import dataclass

from msgspec.structs import replace

from webhook.controller.rollout.pod_figures import PodFiguresObserver
from webhook.core.kubernetes.quantity import UnreadableTextError
from webhook.core.kubernetes.timestamps import parse_microseconds
from webhook.core.policy_fields.rollout import PendingRules, Rollout
from webhook.core.rollout.counting import BUCKET_US, DENIALS, KEPT_BUCKETS, REVIEWS
from webhook.core.rollout.state import Phase, RolloutState
from webhook.core.rollout.symptoms import Figures, Share
from webhook.errors import StoreUnavailableError
from webhook.ports import RolloutCounts

_AGE_US = 5_000_000
"""Counts are read again after this time: the store keeps them in steps of ten seconds."""

_ROUNDED_US = 1_000_000
"""A rollout or a step began at most so long before the time in the state, which is rounded up to whole seconds.

The creation of a Pod is rounded down: one of the rollout's first second counts, too.
"""


@dataclass(frozen=True, slots=True)
class _Counted:
    occasion: str
    at_us: int
    denied: Share
    stable_denied: Share


class FigureReader:
    """A figure is None while it is not known: before the first list of Pods, or while watch or store are away."""

    def __init__(
        self,
        pods: PodFiguresObserver,
        counts: RolloutCounts,
        is_watching: Callable[[], bool],
        now_us: Callable[[], int],
    ) -> None:
        """Create it. `is_watching`: whether the watch of Pods has no trouble now. `now_us`: the wall clock."""
        self._pods = pods
        self._counts = counts
        self._is_watching = is_watching
        self._now_us = now_us
        self._counted: _Counted | None = None

    def follow(self, state: RolloutState | None, rollout: Rollout | None) -> None:
        """Count Pods of the candidate and of the policy in force; without a candidate none.

        Pods that the candidate has judged before this rollout, when it was in force or a candidate, say nothing of it.
        """
        if state is None or state.phase is Phase.STABLE:
            self._pods.follow({}, PendingRules().grace.us)
        elif rollout is not None:
            rules = rollout.rollback.pending if rollout.rollback is not None else PendingRules()
            self._pods.follow({state.stable: 0, state.candidate: _read_begin_us(state)}, rules.grace.us)

    async def read(self, state: RolloutState | None) -> Figures:
        """Return the figures; nothing of a candidate in shadow has an effect, so it has none."""
        if state is None or state.phase is not Phase.CANARY:
            return Figures()
        figures = await self._read_counts(state)
        candidate, stable = self._pods.read(state.candidate), self._pods.read(state.stable)
        if candidate is None or stable is None or not self._is_watching():
            return figures
        return replace(
            figures,
            pending=candidate.pending,
            unscheduled=candidate.unscheduled,
            start_errors=candidate.start_errors,
            stable_start_errors=stable.start_errors,
        )

    async def _read_counts(self, state: RolloutState) -> Figures:
        """Return the shares of denied Pods since the step began, at most an hour ago."""
        now_us, occasion, found = self._now_us(), f"{state.candidate} {state.since}", self._counted
        if found is None or found.occasion != occasion or not 0 <= now_us - found.at_us < _AGE_US:
            try:
                began_us = parse_microseconds(state.since) - _ROUNDED_US
                since_us = max(began_us, now_us - KEPT_BUCKETS * BUCKET_US)
                denied = await self._read_denied(state.candidate, since_us)
                stable = await self._read_denied(state.stable, since_us)
            except (StoreUnavailableError, UnreadableTextError):  # the leader corrects a time that is unreadable
                self._counted = None
                return Figures()
            found = self._counted = _Counted(occasion, now_us, denied, stable)
        return Figures(denied=found.denied, stable_denied=found.stable_denied)

    async def _read_denied(self, policy_hash: str, since_us: int) -> Share:
        counts = await self._counts.read(policy_hash, since_us)
        return Share(counts.get(DENIALS, 0), counts.get(REVIEWS, 0))


def _read_begin_us(state: RolloutState) -> int:
    """Return when the candidate became one; 0 if the state does not say it, so that all its Pods count.

    It is not after the step began, which the leader corrects where a clock was wrong.
    """
    try:
        return min(parse_microseconds(state.began), parse_microseconds(state.since)) - _ROUNDED_US
    except UnreadableTextError:
        return 0
