"""Progress of a rollout in words, and whether a policy that a pipeline waits for has come into force."""

from enum import Enum
from typing import NamedTuple

from webhook.core.rollout.commands import describe_intervention, describe_rejection
from webhook.core.rollout.state import Phase, RolloutState, decide_in_force


class RolloutVerdict(Enum):
    """What became of the awaited policy."""

    PENDING = "pending"
    PROMOTED = "promoted"
    TAKEN_BACK = "taken back"


class RolloutProgress(NamedTuple):
    """The awaited policy at one moment, in words."""

    verdict: RolloutVerdict
    text: str


def judge(awaited: str, wished: str, state: RolloutState | None, *, was_wished: bool = False) -> RolloutProgress:
    """Return what has become of a policy. `was_wished`: it has been the wished one before."""
    if state is None:
        return RolloutProgress(RolloutVerdict.PENDING, "there is no state of a rollout: no leader has written one yet")
    rejection = state.find_rejection(awaited)
    if rejection is not None and state.stable != awaited:
        return RolloutProgress(RolloutVerdict.TAKEN_BACK, f"{awaited} was taken back: {describe_rejection(rejection)}")
    in_force = decide_in_force(wished, state)
    if in_force.stable == awaited:
        return RolloutProgress(RolloutVerdict.PROMOTED, f"{awaited} is in force")
    if in_force.candidate == awaited:
        return RolloutProgress(RolloutVerdict.PENDING, f"{awaited}: {describe_phase(state)}")
    return _judge_untried(awaited, wished, state, was_wished=was_wished)


def _judge_untried(awaited: str, wished: str, state: RolloutState, *, was_wished: bool) -> RolloutProgress:
    if wished != awaited:
        text = f"the ConfigMap wishes {wished or 'nothing valid'}, not {awaited}"
        return RolloutProgress(RolloutVerdict.TAKEN_BACK if was_wished else RolloutVerdict.PENDING, text)
    if state.pinned is not None:
        held = f"{state.stable} is pinned: {describe_intervention(state.pinned)}"
        return RolloutProgress(RolloutVerdict.TAKEN_BACK, f"{awaited} is not tried: {held}")
    return RolloutProgress(RolloutVerdict.PENDING, f"{awaited} waits for the leader to begin")


def describe_phase(state: RolloutState, steps: int = 0) -> str:
    """Return how far the candidate has come. `steps`: of the canary, 0 if that is not known."""
    text = {Phase.STABLE: "no candidate", Phase.SHADOW: "shadow", Phase.CANARY: f"canary step {state.step + 1}"}
    parts = [text[state.phase]]
    if state.phase is Phase.CANARY and steps:
        parts[0] += f" of {steps}"
    if state.phase is not Phase.STABLE and state.since:
        parts.append(f"since {state.since}")
    if state.paused is not None:
        parts.append(f"paused: {describe_intervention(state.paused)}")
    if state.waits_for:
        parts.append(f"waits: {state.waits_for}")
    return ", ".join(parts)
