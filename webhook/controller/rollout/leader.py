"""Leader of the rollout: reads the state each second, advances it, and writes it when it changes.

Another leader, or a command, may write at the same time: a state is replaced only as it was read. A document is kept
before the state names it, so that all processes find it.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from webhook.controller.rollout.reports import RolloutInputs, RolloutReports, RolloutTiming, WishedPolicy
from webhook.core.policy.model import LoadedPolicy
from webhook.core.policy_fields.rollout import HISTORY_DEFAULT, Rollout
from webhook.core.rollout.advance import Facts, advance
from webhook.core.rollout.changes import list_changes
from webhook.core.rollout.state import Phase, RolloutState
from webhook.core.rollout.status import render_rollout_status
from webhook.core.rollout.symptoms import read_symptoms
from webhook.errors import RolloutError
from webhook.support.backoff import Backoff
from webhook.support.condition import Condition


class RolloutLeader:
    """Created for each term of leadership."""

    def __init__(
        self,
        inputs: RolloutInputs,
        reports: RolloutReports,
        timing: RolloutTiming = RolloutTiming(),  # noqa: B008  frozen
    ) -> None:
        self.status: Mapping[str, Any] | None = None
        """What people are shown, as a PolicyRollout's status; None before the first state."""
        self._inputs = inputs
        self._reports = reports
        self._timing = timing
        self._seen: RolloutState | None = None
        """The newest state that was reported."""
        self._tidied: tuple[str, str, str, int] | None = None
        self._failure = Condition(reports.on_trouble, reports.on_over)
        self._backoff = Backoff(timing.round_seconds, timing.pause_seconds_max, jitter=0)

    async def run(self) -> None:
        """Advance until cancelled."""
        try:
            while True:
                pause_seconds = await self.run_round()
                await asyncio.sleep(pause_seconds)
        finally:
            self._reports.on_end()

    async def run_round(self) -> float:
        """Make at most one transition; return the delay before the next round, in seconds."""
        try:
            is_settled = await self._advance()
        except RolloutError as error:
            self._failure.enter(str(error))
            return self._backoff.next_seconds(error.retry_after_seconds)
        self._failure.leave()
        self._backoff.reset()
        return self._timing.round_seconds if is_settled else 0.0

    async def _advance(self) -> bool:
        """Return whether there is nothing more to do now."""
        inputs = self._inputs
        state, wished, in_force = await inputs.states.read(), inputs.wished(), inputs.in_force()
        is_known = state is not None and in_force is not None and in_force.hash == state.stable
        rollout = in_force.policy.rollout if is_known and in_force is not None else None
        inputs.figures.follow(state, rollout)
        facts = Facts(
            "" if wished is None else wished.loaded.hash,
            wished_governs=wished is not None and _governs(wished.loaded),
            figures=await inputs.figures.read(state),
        )
        self._report(state, rollout, facts)
        if state is not None and state.governed and not is_known:
            return True  # this process has yet to follow the state; without the rollout there is nothing to decide by
        following = advance(state, rollout, facts, inputs.now_us())
        if following is None or following == state:
            await self._tidy(following, facts.wished, rollout)
            return True
        inputs.figures.follow(following, rollout)
        await self._keep(following, wished)
        if await inputs.states.write(following):
            self._report(following, rollout, facts)
        return False

    # --- what others see ---

    def _report(self, state: RolloutState | None, rollout: Rollout | None, facts: Facts) -> None:
        if state is None:
            return
        rules = rollout.rollback if rollout is not None and state.phase is Phase.CANARY else None
        readings = read_symptoms(rules, facts.figures)
        if state != self._seen:
            for change in list_changes(self._seen, state, rollout, readings):
                self._reports.on_change(change)
            self._seen = state
        self.status = render_rollout_status(state, facts.wished, rollout)
        self._reports.on_round(state, facts.wished, readings)

    # --- documents ---

    async def _keep(self, state: RolloutState, wished: WishedPolicy | None) -> None:
        """Keep the wished document if the state names it."""
        if wished is not None and wished.loaded.hash in {state.stable, state.candidate}:
            await self._inputs.revisions.keep(wished.loaded.hash, wished.raw)

    async def _tidy(self, state: RolloutState | None, wished: str, rollout: Rollout | None) -> None:
        """Mark the document in force, and delete those beyond `history`, once after each change.

        First those go that were candidates alone: a rollback never leads to them, and they must not push out the
        policies to which it does. The candidate and what is wished are kept beside.
        """
        history = HISTORY_DEFAULT if rollout is None else rollout.history
        if state is None or self._tidied == (state.stable, state.candidate, wished, history):
            return
        revisions = self._inputs.revisions
        kept = await revisions.list_all()
        if any(revision.hash == state.stable and not revision.was_in_force for revision in kept):
            await revisions.mark_in_force(state.stable)
        used = {state.stable, state.candidate, wished}
        others = sorted((found for found in kept if found.hash not in used), key=lambda found: not found.was_in_force)
        for revision in others[max(1, history) - 1 :]:
            await revisions.delete(revision.hash)
        self._tidied = state.stable, state.candidate, wished, history


def _governs(loaded: LoadedPolicy) -> bool:
    return loaded.policy.rollout is not None and loaded.policy.rollout.governs
