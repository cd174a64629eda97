"""Advance of a rollout: the next state, from the state, the rollout in force, and what the leader knows.

Each call makes at most one transition, and all that must outlive a leader is in the state: another leader that goes on
from any state comes to the same end.

| from | when | to |
|---|---|---|
| no state | a policy is wished | it is stable |
| not governed | another policy is wished | it is stable at once |
| stable | another one is wished; not rejected, paused or pinned | it is the candidate, in shadow or step 0 |
| shadow, a step | its time is over, nothing is above or lacks data | next step; after the last it is stable |
| a step | a symptom lasted | the candidate is rejected |
| a candidate | the stable policy is wished again | there is no candidate |
| a candidate | a third policy is wished | that one is the candidate, from the beginning |
| pinned | the stable policy is wished | not pinned |

While a rollout is paused, or no wish is known, its symptoms still take it back. `podgate policy retry` begins the
paused step again.
"""

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from webhook.core.kubernetes.quantity import UnreadableTextError
from webhook.core.kubernetes.timestamps import format_rfc3339, parse_microseconds
from webhook.core.policy_fields.rollout import Rollout, WhenNoData
from webhook.core.rollout.state import Phase, Rejection, RolloutState
from webhook.core.rollout.symptoms import Figures, Symptom, SymptomReading, read_symptoms

_SKEW_US = 60_000_000
"""Times of the state may be so far in the future: the clocks of two leaders differ."""
_NO_WISH = "a wished policy: the ConfigMap has no valid one"
_REASONS = {
    Symptom.PENDING: "too many Pending Pods",
    Symptom.DENIED: "too many denied Pods",
    Symptom.START_ERRORS: "too many failed starts",
}


class Facts(Struct, frozen=True):
    """What the leader knows at one moment.

    `wished`: hash of the newest valid policy that is wished, "" while none is known. `wished_governs`: it has a rollout
    that makes its successor wait.
    """

    wished: str = ""
    wished_governs: bool = False
    figures: Figures = Figures()


def advance(state: RolloutState | None, rollout: Rollout | None, facts: Facts, now_us: int) -> RolloutState | None:
    """Return the next state, or the same one. `rollout`: that of the stable policy."""
    wished = facts.wished
    if state is None:
        return RolloutState(wished, governed=facts.wished_governs) if wished else None
    governs = rollout is not None and rollout.governs
    is_tried = governs and state.phase is not Phase.STABLE and state.pinned is None
    if state.governed != governs or not (wished or is_tried):
        return replace(state, governed=governs)
    if state.pinned is not None:
        return _stay_pinned(state, wished)
    if rollout is None or not governs:
        return _follow_wish(state, facts)
    if is_tried and wished in {state.candidate, ""}:
        return _advance_candidate(state, rollout, facts, now_us)
    return _choose_candidate(state, rollout, wished, now_us)


def _stay_pinned(state: RolloutState, wished: str) -> RolloutState:
    if wished == state.stable:
        return replace(state, pinned=None, waits_for="")
    dropped = state.drop_candidate() if state.phase is not Phase.STABLE else state
    return replace(dropped, waits_for=f"pinned: {wished} is wished, and waits for podgate policy retry")


def _follow_wish(state: RolloutState, facts: Facts) -> RolloutState:
    """Return the state without a rollout in force: the wished policy is stable at once, unless it is rejected."""
    dropped = state.drop_candidate() if state.phase is not Phase.STABLE else state
    if facts.wished == state.stable:
        return replace(dropped, waits_for="")
    if state.find_rejection(facts.wished) is not None:
        return replace(dropped, waits_for=_describe_rejected(facts.wished))
    return replace(dropped, stable=facts.wished, governed=facts.wished_governs, waits_for="")


def _choose_candidate(state: RolloutState, rollout: Rollout, wished: str, now_us: int) -> RolloutState:
    """Return the state with the wished policy as its candidate, or with why it is not."""
    dropped = state.drop_candidate()
    if wished == state.stable:
        return dropped
    if state.find_rejection(wished) is not None:
        return replace(dropped, waits_for=_describe_rejected(wished))
    if state.paused is not None:
        return replace(dropped, waits_for=_describe_pause(state))
    phase = Phase.SHADOW if rollout.shadow is not None else Phase.CANARY
    now = format_rfc3339(now_us)
    return replace(dropped, phase=phase, candidate=wished, since=now, began=now)


def _advance_candidate(state: RolloutState, rollout: Rollout, facts: Facts, now_us: int) -> RolloutState:
    since_us = _read_time(state.since, now_us)
    if since_us is None:
        return replace(state, since=format_rfc3339(now_us))
    # Nothing of a candidate in shadow has an effect, so it has no symptoms.
    readings = read_symptoms(rollout.rollback, facts.figures) if state.phase is Phase.CANARY else ()
    seen = replace(state, above_since=_update_above(state.above_since, readings, now_us))
    for reading in readings:
        if reading.takes_back and _has_lasted(seen, reading, now_us):
            return _reject(seen, reading, now_us)
    if state.paused is not None or not facts.wished:
        return replace(seen, waits_for=_NO_WISH if state.paused is None else _describe_pause(state))
    if now_us - since_us < _find_duration_us(state, rollout):
        return replace(seen, waits_for="")
    if obstacle := _find_obstacle(seen, readings, rollout.when_no_data):
        return replace(seen, waits_for=obstacle)
    return _begin_next(seen, rollout, facts, now_us)


def _begin_next(state: RolloutState, rollout: Rollout, facts: Facts, now_us: int) -> RolloutState:
    """Return the state in its next step; after the last one the candidate is stable, and its own rollout governs."""
    steps = () if rollout.canary is None else rollout.canary.steps
    index = 0 if state.phase is Phase.SHADOW else state.step + 1
    if index >= len(steps):
        return replace(state.drop_candidate(), stable=state.candidate, governed=facts.wished_governs)
    return replace(state, phase=Phase.CANARY, step=index, since=format_rfc3339(now_us), waits_for="")


def _find_duration_us(state: RolloutState, rollout: Rollout) -> int:
    """Return for how long the phase or step lasts; 0 for one that the rollout in force does not have."""
    if state.phase is Phase.SHADOW:
        return 0 if rollout.shadow is None else rollout.shadow.duration.us
    steps = () if rollout.canary is None else rollout.canary.steps
    return steps[state.step].duration.us if state.step < len(steps) else 0


def _update_above(above: dict[str, str], readings: Iterable[SymptomReading], now_us: int) -> dict[str, str]:
    """Return since when each symptom is above. What a blind leader does not see stays as it was seen last."""
    now = format_rfc3339(now_us)
    found = {}
    for reading in readings:
        since = above.get(reading.symptom, "")
        if reading.is_above or (reading.is_blind and since):
            found[str(reading.symptom)] = since if _read_time(since, now_us) is not None else now
    return found


def _has_lasted(state: RolloutState, reading: SymptomReading, now_us: int) -> bool:
    since_us = _read_time(state.above_since.get(reading.symptom, ""), now_us)
    return bool(reading.is_above) and since_us is not None and now_us - since_us >= reading.duration_us


def _reject(state: RolloutState, reading: SymptomReading, now_us: int) -> RolloutState:
    figures = f"{reading.text}: above {reading.threshold_percent} % for {reading.duration}"
    return state.reject(
        Rejection(state.candidate, _REASONS[reading.symptom], figures=figures, at=format_rfc3339(now_us))
    )


def _find_obstacle(state: RolloutState, readings: Iterable[SymptomReading], when_no_data: WhenNoData) -> str:
    """Return why a step whose time is over does not end; "" if it ends."""
    taken = [reading for reading in readings if reading.takes_back]
    for reading in taken:
        since = state.above_since.get(reading.symptom, "")
        above = f"{reading.symptom}: above {reading.threshold_percent} % since {since}"
        if reading.is_above:
            return above
        if reading.is_blind and since:
            return f"{above} when seen last: {reading.lack}"
    if when_no_data is WhenNoData.ADVANCE:
        return ""
    return next((f"{reading.symptom}: no data: {reading.lack}" for reading in taken if reading.lack), "")


def _read_time(text: str, now_us: int) -> int | None:
    """Return a time of the state; None for one that is unreadable or far in the future: it begins anew."""
    try:
        at_us = parse_microseconds(text)
    except UnreadableTextError:
        return None
    return at_us if at_us <= now_us + _SKEW_US else None


def _describe_rejected(policy_hash: str) -> str:
    return f"{policy_hash} is wished and was taken back: it is not tried until podgate policy retry"


def _describe_pause(state: RolloutState) -> str:
    return "paused" if state.paused is None else f"paused: {state.paused.reason}"
