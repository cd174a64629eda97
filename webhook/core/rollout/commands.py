"""Commands of people: what each does to a rollout's state, and when it is refused."""

from collections.abc import Mapping

from msgspec.structs import replace

from webhook.core.rollout.state import Intervention, Phase, Rejection, RolloutState, decide_in_force


class RefusedCommandError(ValueError):
    """A command would do nothing, or not what was meant; `remedy` says what to do instead."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.remedy = remedy


def find_successor(state: RolloutState, wished: str) -> str:
    """Return the policy that is to follow the one in force: the candidate, or one that the leader has yet to try."""
    if state.phase is not Phase.STABLE:
        return state.candidate
    is_held = state.pinned is not None or state.find_rejection(wished) is not None
    return wished if state.governed and wished != state.stable and not is_held else ""


def choose_promoted(state: RolloutState, wished: str) -> str:
    """Return the policy that `promote` puts into force: the candidate, or without one the wished policy."""
    if state.phase is not Phase.STABLE:
        return state.candidate
    if not wished:
        raise RefusedCommandError(
            "there is no candidate, and the ConfigMap has no valid policy", "correct it: podgate policy lint FILE"
        )
    if wished == decide_in_force(wished, state).stable:
        raise RefusedCommandError(f"there is no candidate: {wished}, the wished policy, is in force", "nothing to do")
    rejection = state.find_rejection(wished)
    if rejection is not None:
        raise RefusedCommandError(
            f"{wished}, the wished policy, was taken back: {describe_rejection(rejection)}",
            "podgate policy retry forgets that, and lets it be tried again",
        )
    return wished


def promote(state: RolloutState, promoted: str, *, governed: bool) -> RolloutState:
    """Put a policy into force at once. This ends the candidate, a pause and a pin.

    `governed`: the promoted policy has a rollout of its own.
    """
    return replace(state.drop_candidate(), stable=promoted, governed=governed, paused=None, pinned=None)


def pause(state: RolloutState, wished: str, action: Intervention) -> RolloutState:
    """Hold the candidate where it is, or the next one before it begins."""
    if state.paused is not None:
        raise RefusedCommandError(
            f"the rollout is paused already: {describe_intervention(state.paused)}",
            "podgate policy retry lets it go on",
        )
    if state.phase is Phase.STABLE and not state.governed:
        in_force = decide_in_force(wished, state).stable
        raise RefusedCommandError(
            f"nothing to pause: {in_force}, in force, has no rollout with shadow or canary, so a change is in force at"
            " once",
            f"to keep it whatever is wished: podgate policy rollback --to {in_force} --reason TEXT",
        )
    return replace(state, paused=action)


def retry(state: RolloutState, wished: str, now: str) -> RolloutState:
    """Let the wished policy be tried again: forget that it was taken back, and end a pin and a pause.

    A candidate that was paused stays where it is, and its step begins again.
    """
    was_rejected = state.find_rejection(wished) is not None
    if not was_rejected and state.pinned is None and state.paused is None:
        in_force = decide_in_force(wished, state).stable
        reason = f"{wished}, the wished policy, is in force" if in_force == wished else "nothing holds the rollout"
        raise RefusedCommandError(f"nothing to retry: {reason}", "podgate policy candidate shows the rollout")
    rejected = tuple(rejection for rejection in state.rejected if rejection.hash != wished)
    freed = replace(state, rejected=rejected, pinned=None, paused=None, waits_for="")
    if state.paused is None or state.phase is Phase.STABLE:
        return freed
    return replace(freed, since=now, above_since={})


def choose_rollback(state: RolloutState, wished: str, kept: Mapping[str, bool]) -> str:
    """Return the policy to which a rollback without a target leads.

    `kept`: the revisions, the newest first, each with whether it is known to have been in force. With a candidate, it
    is the policy in force; without one, the newest earlier revision that was in force and was not taken back. One that
    was a candidate alone may be what somebody has corrected, and would be in force everywhere at once.
    """
    in_force = decide_in_force(wished, state).stable
    if find_successor(state, wished):
        return in_force
    hashes = tuple(kept)
    earlier = hashes[hashes.index(in_force) + 1 :] if in_force in kept else hashes
    free = [policy_hash for policy_hash in earlier if state.find_rejection(policy_hash) is None]
    for policy_hash in free:
        if kept[policy_hash] or policy_hash == state.stable:
            return policy_hash
    unknown = f"; it is not recorded that {free[0]}, the one before, was ever in force" if free else ""
    raise RefusedCommandError(
        f"no revision before {in_force}, the policy in force, that was in force and not taken back{unknown}",
        "podgate policy history lists what is kept: name one with --to REV",
    )


def roll_back(state: RolloutState, wished: str, target: str, action: Intervention, *, governed: bool) -> RolloutState:
    """Put an earlier policy into force and pin it.

    A successor is rejected, and the policy in force too if it is another one, so that neither is tried again.
    `governed`: the target has a rollout of its own.
    """
    in_force = decide_in_force(wished, state).stable
    bad = [found for found in (in_force, find_successor(state, wished)) if found and found != target]
    if not bad and state.pinned is not None:
        raise RefusedCommandError(
            f"{target} is in force and pinned already: {describe_intervention(state.pinned)}",
            "podgate policy history lists the revisions: name another one with --to REV",
        )
    after = state
    for policy_hash in bad:
        after = after.reject(Rejection(policy_hash, action.reason, by=action.by, at=action.at))
    rejected = tuple(rejection for rejection in after.rejected if rejection.hash != target)
    dropped = replace(after, rejected=rejected).drop_candidate()
    return replace(dropped, stable=target, governed=governed, paused=None, pinned=action)


def describe_intervention(action: Intervention) -> str:
    """Return what a person did: the reason, by whom and when."""
    return _join(action.reason, action.by, action.at)


def describe_rejection(rejection: Rejection) -> str:
    """Return why a policy was taken back: the reason, the figures, by whom and when."""
    figures = f" ({rejection.figures})" if rejection.figures else ""
    return _join(f"{rejection.reason}{figures}", rejection.by, rejection.at)


def _join(reason: str, by: str, at: str) -> str:
    return f"{reason}{f', by {by}' if by else ''}{f', at {at}' if at else ''}"
