"""Editor of the rollout's state: a person's commands, written only as long as the state is the one that was read."""

from collections.abc import Awaitable, Callable

from msgspec import Struct

from webhook.core.policy_fields.rollout import Rollout
from webhook.core.rollout import commands
from webhook.core.rollout.commands import RefusedCommandError
from webhook.core.rollout.state import Intervention, RolloutState
from webhook.errors import UserError
from webhook.operations.rollout_facts import RolloutFacts
from webhook.operations.stored_policies import StoredPolicies, convert_rollout_errors

_TRIES = 10


class StateChange(Struct, frozen=True):
    """A written change: what was read before it, and the new state."""

    facts: RolloutFacts
    state: RolloutState


class RolloutEditor:
    """Carries out commands. If the leader or another person was first, a command is judged again by what they wrote."""

    def __init__(self, policies: StoredPolicies, now: Callable[[], str], *, dry_run: bool = False) -> None:
        self._policies = policies
        self._now = now
        self._dry_run = dry_run

    async def promote(self) -> StateChange:
        async def act(facts: RolloutFacts, state: RolloutState) -> RolloutState:
            promoted = commands.choose_promoted(state, facts.wished.hash)
            if not self._dry_run and not facts.find_number(promoted):
                # A server that starts later finds it, whatever the ConfigMap has by then.
                await self._policies.revisions.keep(promoted, await self._policies.read_document(promoted, facts))
            return commands.promote(state, promoted, governed=await self._is_governing(promoted, facts))

        return await self._change(act)

    async def pause(self, reason: str) -> StateChange:
        async def act(facts: RolloutFacts, state: RolloutState) -> RolloutState:
            return commands.pause(state, facts.wished.hash, await self._build_action(reason))

        return await self._change(act)

    async def retry(self) -> StateChange:
        async def act(facts: RolloutFacts, state: RolloutState) -> RolloutState:
            return commands.retry(state, facts.wished.hash, self._now())

        return await self._change(act)

    async def roll_back(self, revision: str | None, reason: str) -> StateChange:
        """Put a revision into force, None for the one that was in force before, and pin it."""

        async def act(facts: RolloutFacts, state: RolloutState) -> RolloutState:
            kept = {found.hash: found.was_in_force for found in facts.revisions}
            target = (
                commands.choose_rollback(state, facts.wished.hash, kept)
                if revision is None
                else facts.require_hash(revision)
            )
            governed = await self._is_governing(target, facts)
            action = await self._build_action(reason)
            return commands.roll_back(state, facts.wished.hash, target, action, governed=governed)

        return await self._change(act)

    async def _change(self, act: Callable[[RolloutFacts, RolloutState], Awaitable[RolloutState]]) -> StateChange:
        for _ in range(_TRIES):
            facts = await self._policies.read_facts()
            try:
                with convert_rollout_errors():
                    state = await act(facts, facts.require_state())
                    if await self._policies.states.write(state):
                        return StateChange(facts, state)
            except RefusedCommandError as refused:
                raise UserError(str(refused), refused.remedy) from None
        raise UserError("the state of the rollout changes all the time: nothing was written", "run the command again")

    async def _build_action(self, reason: str) -> Intervention:
        return Intervention(reason, by=await self._policies.read_user(), at=self._now())

    async def _is_governing(self, policy_hash: str, facts: RolloutFacts) -> bool:
        rollout: Rollout | None = (await self._policies.load(policy_hash, facts)).rollout
        return rollout is not None and rollout.governs
