"""Changes of a rollout that people are told: from two states in a row, whoever wrote them."""

from collections.abc import Iterable, Iterator
from enum import StrEnum

from msgspec import Struct

from webhook.core.policy_fields.rollout import CanaryStep, Rollout
from webhook.core.rollout.state import Phase, Rejection, RolloutState
from webhook.core.rollout.symptoms import Symptom, SymptomReading


class RolloutChangeReason(StrEnum):
    """Reason of the Event, and label of the metric."""

    STARTED = "PolicyRolloutStarted"
    STEP_REACHED = "PolicyStepReached"
    PROMOTED = "PolicyPromoted"
    ROLLED_BACK = "PolicyRolledBack"
    PENDING_ALERT = "PolicyPendingAlert"

    @property
    def is_warning(self) -> bool:
        return self in {RolloutChangeReason.ROLLED_BACK, RolloutChangeReason.PENDING_ALERT}


class RolloutChange(Struct, frozen=True):
    """One change. Those of equal `reason` and `occasion` are the same, whichever leader sees them."""

    reason: RolloutChangeReason
    policy_hash: str
    note: str
    occasion: str


def list_changes(
    former: RolloutState | None, now: RolloutState, rollout: Rollout | None, readings: Iterable[SymptomReading] = ()
) -> tuple[RolloutChange, ...]:
    """Return what has changed. `rollout`: the one that governs the candidate, if it is known."""
    if former is None:
        return ()
    return (
        *_list_rejections(former, now),
        *_list_promotions(former, now),
        *_list_steps(former, now, rollout),
        *_list_alerts(former, now, readings),
    )


def _list_rejections(former: RolloutState, now: RolloutState) -> Iterator[RolloutChange]:
    for rejection in now.rejected:
        if rejection not in former.rejected:
            bad = rejection.hash
            note = (
                f"policy {bad} was taken back, {now.stable} is in force: {_describe(rejection)}: revert it in Git;"
                " it is not tried again until podgate policy retry"
            )
            yield RolloutChange(RolloutChangeReason.ROLLED_BACK, bad, note, f"{bad} {rejection.at}")


def _describe(rejection: Rejection) -> str:
    figures = f": {rejection.figures}" if rejection.figures else ""
    return f"{rejection.reason}{figures}{f', by {rejection.by}' if rejection.by else ''}"


def _list_promotions(former: RolloutState, now: RolloutState) -> Iterator[RolloutChange]:
    """Yield the promotion of a candidate, or by hand. A policy that nothing governs is reported as loaded."""
    is_promoted = former.candidate == now.stable or former.governed
    if now.stable != former.stable and now.pinned is None and is_promoted:
        note = f"policy {now.stable} is in force, before it was {former.stable}"
        yield RolloutChange(RolloutChangeReason.PROMOTED, now.stable, note, f"{former.stable} {former.since}")


def _list_steps(former: RolloutState, now: RolloutState, rollout: Rollout | None) -> Iterator[RolloutChange]:
    if now.phase is Phase.STABLE:
        return
    candidate, occasion = now.candidate, f"{now.candidate} {now.step} {now.since}"
    is_new = former.candidate != candidate
    if is_new:
        note = f"policy {candidate} is the candidate, {now.stable} is in force: {_describe_plan(rollout)}"
        yield RolloutChange(RolloutChangeReason.STARTED, candidate, note, occasion)
    if now.phase is Phase.CANARY and (is_new or (former.phase, former.step) != (now.phase, now.step)):
        steps = () if rollout is None or rollout.canary is None else rollout.canary.steps
        which = f": {describe_step(steps[now.step])}" if now.step < len(steps) else ""
        note = f"candidate {candidate}: step {now.step + 1} of {len(steps) or '?'}{which}"
        yield RolloutChange(RolloutChangeReason.STEP_REACHED, candidate, note, occasion)


def _describe_plan(rollout: Rollout | None) -> str:
    parts = [f"shadow for {rollout.shadow.duration}"] if rollout is not None and rollout.shadow is not None else []
    if rollout is not None and rollout.canary is not None:
        parts.append(f"canary by {rollout.canary.by} in {len(rollout.canary.steps)} steps")
    return ", then ".join(parts) or "as its rollout says"


def describe_step(step: CanaryStep) -> str:
    """Return whom a step reaches, and for how long it lasts."""
    whom = f"namespaces {', '.join(step.namespaces)}" if step.namespaces else f"{step.percent} %"
    return f"{whom} for {step.duration}"


def _list_alerts(
    former: RolloutState, now: RolloutState, readings: Iterable[SymptomReading]
) -> Iterator[RolloutChange]:
    since = now.above_since.get(Symptom.PENDING_ALERT, "")
    if not since or Symptom.PENDING_ALERT in former.above_since:
        return
    for reading in readings:
        if reading.symptom is Symptom.PENDING_ALERT:
            note = f"candidate {now.candidate}: {reading.text}: above {reading.threshold_percent} %"
            yield RolloutChange(RolloutChangeReason.PENDING_ALERT, now.candidate, note, f"{now.candidate} {since}")
