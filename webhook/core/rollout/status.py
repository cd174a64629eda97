"""Status of a PolicyRollout, for people and for tools that judge health by conditions.

`Progressing` is True while a candidate goes through its steps. `Degraded` is True while what is wished is not in force
because it was taken back, or because a person has pinned another policy.
"""

from collections.abc import Mapping
from typing import Any

from webhook.core.policy_fields.rollout import Rollout
from webhook.core.rollout.changes import describe_step
from webhook.core.rollout.state import Intervention, Phase, Rejection, RolloutState

ROLLOUT_NAME = "podgate-policy"
"""Name of the one PolicyRollout."""
_REJECTED_MAX = 10


def render_rollout_status(state: RolloutState, wished: str, rollout: Rollout | None) -> Mapping[str, Any]:
    """Return the status. `wished`: hash of the wished policy, "" while it is unknown; `rollout`: as it governs."""
    fields = {
        "stable": state.stable,
        "candidate": state.candidate,
        "wished": wished,
        "phase": str(state.phase),
        "step": _format_step(state, rollout),
        "since": state.since,
        "waitsFor": state.waits_for,
        "paused": _render_intervention(state.paused),
        "pinned": _render_intervention(state.pinned),
        "symptoms": [{"name": name, "aboveSince": since} for name, since in state.above_since.items()],
        "rejected": [_render_rejection(rejection) for rejection in reversed(state.rejected[-_REJECTED_MAX:])],
        "conditions": [_render_progressing(state, rollout), _render_degraded(state, wished)],
    }
    return {name: value for name, value in fields.items() if value}


def _format_step(state: RolloutState, rollout: Rollout | None) -> str:
    if state.phase is not Phase.CANARY:
        return ""
    steps = () if rollout is None or rollout.canary is None else rollout.canary.steps
    return f"{state.step + 1}/{len(steps)}" if steps else f"{state.step + 1}"


def _render_progressing(state: RolloutState, rollout: Rollout | None) -> Mapping[str, Any]:
    if state.phase is Phase.STABLE:
        return _build_condition("Progressing", "Stable", f"{state.stable} is in force", "", is_true=False)
    if state.paused is not None:
        message = f"candidate {state.candidate} is paused: {state.paused.reason}"
        return _build_condition("Progressing", "Paused", message, state.paused.at, is_true=True)
    reached = "shadow"
    if state.phase is Phase.CANARY:
        steps = () if rollout is None or rollout.canary is None else rollout.canary.steps
        whom = f": {describe_step(steps[state.step])}" if state.step < len(steps) else ""
        reached = f"step {_format_step(state, rollout)}{whom}"
    held = f"; waits for {state.waits_for}" if state.waits_for else ""
    message = f"candidate {state.candidate}: {reached}{held}"
    reason = "Waiting" if state.waits_for else str(state.phase)
    return _build_condition("Progressing", reason, message, state.since, is_true=True)


def _render_degraded(state: RolloutState, wished: str) -> Mapping[str, Any]:
    rejection = state.find_rejection(wished)
    if state.pinned is not None and wished != state.stable:
        message = f"{state.stable} is pinned, {wished or 'another one'} is wished: {state.pinned.reason}"
        return _build_condition("Degraded", "Pinned", message, state.pinned.at, is_true=True)
    if rejection is not None and wished != state.stable:
        figures = f": {rejection.figures}" if rejection.figures else ""
        message = f"{wished} was taken back: {rejection.reason}{figures}; {state.stable} is in force"
        return _build_condition("Degraded", "RolledBack", message, rejection.at, is_true=True)
    return _build_condition("Degraded", "NotRolledBack", "no wished policy was taken back", "", is_true=False)


def _build_condition(name: str, reason: str, message: str, since: str, *, is_true: bool) -> Mapping[str, Any]:
    condition = {"type": name, "status": "True" if is_true else "False", "reason": reason, "message": message}
    return {**condition, "lastTransitionTime": since} if since else condition


def _render_intervention(found: Intervention | None) -> Mapping[str, str]:
    if found is None:
        return {}
    return {name: value for name, value in (("reason", found.reason), ("by", found.by), ("at", found.at)) if value}


def _render_rejection(rejection: Rejection) -> Mapping[str, str]:
    fields = {
        "hash": rejection.hash,
        "reason": rejection.reason,
        "figures": rejection.figures,
        "by": rejection.by,
        "at": rejection.at,
    }
    return {name: value for name, value in fields.items() if value}
