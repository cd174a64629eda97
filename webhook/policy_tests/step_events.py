"""Step events: the events of a sequence's steps, as `replay` plays them."""

from webhook.commands.manifests import Subject
from webhook.commands.simulator import USER
from webhook.core.kubernetes.quantity import Duration
from webhook.policy_tests.document import SequenceStep
from webhook.replay.events import (
    NamespacesChange,
    OutcomeFields,
    OutcomeSeen,
    OutcomesSeen,
    PodAsks,
    PodBound,
    PodDeleted,
    PodRefused,
    PodUnschedulable,
    PolicyChange,
    ReplayEvent,
    StatusAsked,
    StoreChange,
    SumFields,
)


def build_step_events(step: SequenceStep, subject: Subject | None, user: str | None) -> list[ReplayEvent]:
    """Return the events of a step; `subject` is its object, and `user` the case's user, who requests bare Pods."""
    if subject is None:
        return [_build_event(step)]
    own = None if subject.template_at else step.user or user
    return [
        PodAsks(
            at=step.at_seconds,
            pod=subject.pod,
            namespace=subject.namespace,
            uid=f"{step.uid}-{number}" if step.uid and step.count > 1 else step.uid,
            user=own or subject.user or USER,
        )
        for number in range(1, step.count + 1)
    ]


def _build_event(step: SequenceStep) -> ReplayEvent:
    """Return the event of a step without an object."""
    at = step.at_seconds
    candidates: tuple[ReplayEvent | None, ...] = (
        _build_outcome(step),
        PodDeleted(at=at, deleted=step.deleted) if step.deleted is not None else None,
        PodRefused(at=at, refused=step.refused) if step.refused is not None else None,
        PodUnschedulable(at=at, unschedulable=step.unschedulable) if step.unschedulable is not None else None,
        PodBound(at=at, bound=step.bound) if step.bound is not None else None,
        StatusAsked(at=at, status=step.status) if step.status is not None else None,
        NamespacesChange(at=at, namespace_labels=step.namespace_labels) if step.namespace_labels is not None else None,
        PolicyChange(at=at, policy=step.policy) if step.policy is not None else None,
        StoreChange(at=at, store=step.store) if step.store is not None else None,
    )
    return next(event for event in candidates if event is not None)


def _build_outcome(step: SequenceStep) -> ReplayEvent | None:
    if (outcome := step.outcome) is not None:
        fields = OutcomeFields(outcome.service, outcome.ok, _read_seconds(outcome.latency), outcome.uid)
        return OutcomeSeen(at=step.at_seconds, outcome=fields)
    if (sums := step.outcomes) is not None:
        sum_fields = SumFields(sums.service, sums.succeeded, sums.failed, _read_seconds(sums.latency))
        return OutcomesSeen(at=step.at_seconds, outcomes=sum_fields)
    return None


def _read_seconds(duration: Duration | None) -> float:
    return 0.0 if duration is None else duration.us / 1_000_000
