"""Symptoms of a candidate: figures of its Pods beside those of the policy in force, and whether they are too bad.

A share of fewer Pods than `minPods` says nothing. Neither does one that is not known, since the watch of Pods or the
store is away.
"""

from enum import StrEnum

from msgspec import Struct

from webhook.core.policy_fields.rollout import DeniedRules, PendingRules, RollbackRules, StartErrorRules


class Symptom(StrEnum):
    """What is compared with a threshold; also the key under which the state says since when it is above."""

    PENDING_ALERT = "pendingAlert"
    """Reported at once; it takes nothing back."""
    PENDING = "pending"
    DENIED = "denied"
    START_ERRORS = "startErrors"


class Share(Struct, frozen=True):
    """`part` of `total` Pods."""

    part: int
    total: int

    @property
    def percent(self) -> float:
        return 100 * self.part / self.total if self.total else 0.0


class Figures(Struct, frozen=True):
    """Figures of a candidate, and of the policy in force; None for what is not known.

    `pending`: of the Pods that are older than `grace`, have no scheduling gate, and are not being deleted, those in
    phase Pending: not scheduled, or scheduled and not started. `unscheduled` of them have no node. Pods that have ended
    are among all, since they did not wait: of a batch service only those that wait would be left otherwise.
    `denied`: of the reviews of new Pods, those that were denied. `start_errors`: of the Pods whose start has a result,
    those that failed.
    """

    pending: Share | None = None
    unscheduled: int = 0
    denied: Share | None = None
    stable_denied: Share | None = None
    start_errors: Share | None = None
    stable_start_errors: Share | None = None


class SymptomReading(Struct, frozen=True):
    """One symptom against its threshold.

    `is_above` is None without data; `lack` says why, and `is_blind` that the figure is not known at all. `percent` is
    what is compared with `threshold_percent`, and may be negative where it is a difference.
    """

    symptom: Symptom
    text: str
    threshold_percent: int
    duration: str
    duration_us: int
    percent: float = 0.0
    is_above: bool | None = None
    lack: str = ""
    is_blind: bool = False

    @property
    def takes_back(self) -> bool:
        """Return whether the symptom, if it lasts, takes the candidate back."""
        return self.symptom is not Symptom.PENDING_ALERT


def read_symptoms(rules: RollbackRules | None, figures: Figures) -> tuple[SymptomReading, ...]:
    """Return each symptom against its threshold; without rules none."""
    if rules is None:
        return ()
    return (
        *_read_pending(rules.pending, figures),
        _compare(Symptom.DENIED, rules.denied, figures.denied, figures.stable_denied),
        _compare(Symptom.START_ERRORS, rules.start_errors, figures.start_errors, figures.stable_start_errors),
    )


def _read_pending(rules: PendingRules, figures: Figures) -> tuple[SymptomReading, SymptomReading]:
    share, lack = figures.pending, _find_lack(figures.pending, rules.min_pods, "Pods")
    text = ""
    if share is not None:
        started = share.part - figures.unscheduled
        text = f"{_format_share(share)} Pods Pending ({figures.unscheduled} not scheduled, {started} not started)"

    def read(symptom: Symptom, threshold: str, duration: str, duration_us: int) -> SymptomReading:
        percent = _read_percent(threshold)
        is_known = share is not None and not lack
        return SymptomReading(
            symptom,
            text,
            percent,
            duration,
            duration_us,
            percent=0.0 if share is None else share.percent,
            is_above=share is not None and share.part * 100 > percent * share.total if is_known else None,
            lack=lack,
            is_blind=share is None,
        )

    return (
        read(Symptom.PENDING_ALERT, rules.alert_above, "", 0),
        read(Symptom.PENDING, rules.above, rules.duration.text, rules.duration.us),
    )


_WHAT = {Symptom.DENIED: "new Pods denied", Symptom.START_ERRORS: "starts failed"}
_OF = {Symptom.DENIED: "new Pods", Symptom.START_ERRORS: "finished starts"}


def _compare(
    symptom: Symptom, rules: DeniedRules | StartErrorRules, share: Share | None, stable: Share | None
) -> SymptomReading:
    """Compare a share with that of the policy in force, which counts as 0 while it has too few Pods."""
    base = stable if stable is not None and stable.total >= max(1, rules.min_pods) else Share(0, 1)
    known = share if stable is not None else None  # a share beside nothing known would be compared with nothing
    lack = _find_lack(known, rules.min_pods, _OF[symptom])
    threshold, text, difference, is_above = _read_percent(rules.above_stable), "", 0.0, None
    if known is not None:
        text = f"{_format_share(known)} {_WHAT[symptom]}, {base.percent:.1f} % under the policy in force"
        difference = known.percent - base.percent
        if not lack:
            gained = known.part * base.total - base.part * known.total
            is_above = gained * 100 > threshold * known.total * base.total
    return SymptomReading(
        symptom,
        text,
        threshold,
        rules.duration.text,
        rules.duration.us,
        percent=difference,
        is_above=is_above,
        lack=lack,
        is_blind=known is None,
    )


def _find_lack(share: Share | None, pods_min: int, what: str) -> str:
    """Return why a share says nothing; "" if it says something."""
    if share is None:
        return f"the number of {what} of the candidate is not known"
    return f"{share.total} {what} of the candidate, minPods is {pods_min}" if share.total < max(1, pods_min) else ""


def _format_share(share: Share) -> str:
    return f"{share.part} of {share.total} ({share.percent:.1f} %)"


def _read_percent(text: str) -> int:
    return int(text.removesuffix("%"))
