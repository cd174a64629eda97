"""Document of `podgate policy candidate`: how far a rollout is, its symptoms, and what its shadow has found."""

from collections.abc import Iterator

from msgspec import Struct

from webhook.core.kubernetes.timestamps import format_rfc3339, parse_microseconds
from webhook.core.policy_fields.rollout import Rollout
from webhook.core.reporting.rollout_reports import RevisionEntry
from webhook.core.rollout.state import InForce, Phase, Rejection, RolloutState
from webhook.core.rollout.symptoms import Figures, read_symptoms


class SymptomEntry(Struct, frozen=True, rename="camel"):
    """A symptom that takes the candidate back when it is above the threshold for `duration`."""

    name: str
    threshold_percent: int
    duration: str
    above_since: str = ""
    """"" while it is not above."""


class ShadowEntry(Struct, frozen=True):
    """Pods of a service, "" for none, for which the policies differ, of those that the shadow has judged."""

    service: str
    difference: str
    pods: int


class ShadowReport(Struct, frozen=True, rename="camel"):
    """What the shadow has found, summed over `servers`. `unseen`: why others were not asked, "" if all were."""

    judged: int
    differences: tuple[ShadowEntry, ...]
    servers: int
    unseen: str = ""


class RolloutDocument(Struct, frozen=True, rename="camel"):
    """The rollout at one moment. `steps`: of the canary, 0 without one; `next_at`: when the phase ends at the earliest.

    `rejection`: why the wished policy is not tried. `shadow` only in that phase.
    """

    in_force: str
    candidate: str
    wished: str
    phase: str
    steps: int
    next_at: str
    state: RolloutState
    rejection: Rejection | None = None
    symptoms: tuple[SymptomEntry, ...] = ()
    shadow: ShadowReport | None = None

    @classmethod
    def build(cls, wished: str, in_force: InForce, state: RolloutState, stanza: Rollout | None) -> "RolloutDocument":
        """`stanza`: the rollout of the policy in force, which governs the candidate."""
        canary = None if stanza is None else stanza.canary
        return cls(
            in_force=in_force.stable,
            candidate=in_force.candidate,
            wished=wished,
            phase=state.phase.value,
            steps=0 if canary is None else len(canary.steps),
            next_at=_find_end(state, stanza),
            state=state,
            rejection=state.find_rejection(wished) if wished != in_force.stable else None,
            symptoms=tuple(_list_symptoms(state, stanza)) if state.phase is Phase.CANARY else (),
        )


class StoredRollout(Struct, frozen=True):
    """What the cluster keeps: the history of policies, and the rollout; `obstacle` is why there is none."""

    entries: tuple[RevisionEntry, ...]
    rollout: RolloutDocument | None
    obstacle: str = ""
    warnings: tuple[str, ...] = ()


def _list_symptoms(state: RolloutState, stanza: Rollout | None) -> Iterator[SymptomEntry]:
    for reading in read_symptoms(None if stanza is None else stanza.rollback, Figures()):
        if reading.takes_back:
            since = state.above_since.get(reading.symptom, "")
            yield SymptomEntry(str(reading.symptom), reading.threshold_percent, reading.duration, since)


def _find_end(state: RolloutState, stanza: Rollout | None) -> str:
    """Return when the phase or step ends at the earliest, "" if that is not known, or it does not end by itself."""
    duration = None
    if stanza is not None and state.phase is Phase.SHADOW and stanza.shadow is not None:
        duration = stanza.shadow.duration
    elif stanza is not None and stanza.canary is not None and state.phase is Phase.CANARY:
        duration = stanza.canary.steps[state.step].duration if state.step < len(stanza.canary.steps) else None
    if duration is None or state.paused is not None or not state.since:
        return ""
    return format_rfc3339(parse_microseconds(state.since) + duration.us)
