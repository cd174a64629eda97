"""No admission fails that the documents do not let fail."""

from tests.chaos.checkers.facts import Facts
from tests.chaos.checkers.judging import Judge
from tests.chaos.history import UNKNOWN, AuditEvent, Review
from webhook.core.findings import Code
from webhook.core.policy_fields import WhenStoreUnavailable

GRACE_SECONDS = 3.0
STORE_GRACE_SECONDS = 2.0
"""A replica probes a Redis that has come back every quarter of a second, and in a second ticks."""


def check_failures(facts: Facts, judge: Judge) -> None:
    """Judge each answer of the API server about a Pod, each denial of a server, and each request of the workload."""
    for event in facts.creations:
        _check_answer(facts, judge, event)
    for review in facts.history.reviews:
        if review.decision == "Deny":
            _check_denial(facts, judge, review)
    for act in facts.history.acts:
        active = facts.faults.list_active(act.at, act.answered_at, after=GRACE_SECONDS)
        judge.expect(
            holds=(act.outcome != UNKNOWN and act.code != 500) or bool(active),
            of=f"{act.kind} {act.namespace}/{act.name}",
            field=act.act,
            value=f"{act.outcome} {act.code or ''} {act.message}".strip(),
            expected="an answer",
            at=act.answered_at,
            since=act.at,
        )


def _check_answer(facts: Facts, judge: Judge, event: AuditEvent) -> None:
    if event.code == 503 and _is_decision(event.message):
        return  # the review is judged
    active = facts.faults.list_active(event.at, event.answered_at, after=GRACE_SECONDS)
    judge.expect(
        holds=event.code < 500 or bool(active),
        of=f"Pod {event.namespace}/{event.name}",
        field="answer to create",
        value=f"{event.code} {event.message[:200]}",
        expected="no failure without a fault",
        at=event.answered_at,
        since=event.at,
    )


def _is_decision(message: str) -> bool:
    return any(code in message for code in (Code.STORE_UNAVAILABLE, Code.BREAKER_OPEN, Code.BREAKER_PROBING))


def _admits_without_store(facts: Facts, review: Review) -> bool:
    plans = [policy.plans.get(review.service) for policy in facts.list_policies(review.at, review.at)]
    return any(plan is not None and plan.when_unavailable is WhenStoreUnavailable.ALLOW for plan in plans)


def _check_denial(facts: Facts, judge: Judge, review: Review) -> None:
    """Expect that a Pod is denied for want of the store only while the store is away."""
    codes = set(review.record.get("codes") or ())
    of = f"Pod {review.namespace}/{review.name} ({review.uid})"
    if Code.STORE_UNAVAILABLE in codes:
        active = [
            span
            for span in facts.faults.list_active(review.at, review.at, after=STORE_GRACE_SECONDS)
            if facts.faults.is_of_store(span) or span.ends_process
        ] or facts.faults.list_store_spans(review.at, review.at)
        judge.expect(
            holds=bool(active) and not _admits_without_store(facts, review),
            of=of,
            field="denied",
            value=review.message[:200],
            expected="only while the store is away, and never with Allow",
            at=review.at,
        )
    judge.expect(
        holds=review.code != 500,
        of=of,
        field="status",
        value=review.code,
        expected="no internal error",
        at=review.at,
    )
    if Code.MUTATION_MISSING in codes:
        asked_at = _find_asked_at(facts, review)
        skipped = facts.faults.list_active(asked_at, review.at, after=GRACE_SECONDS, of=facts.faults.is_of_calls)
        judge.expect(
            holds=bool(skipped),
            of=of,
            field="denied",
            value=Code.MUTATION_MISSING,
            expected="only where the mutating half could not be called",
            at=review.at,
        )


def _find_asked_at(facts: Facts, review: Review) -> float:
    """Return when the request began whose mutating half came before this review; it may be a dry run."""
    times = [
        event.at
        for event in facts.history.audit
        if (event.verb, event.resource, event.namespace) == ("create", "pods", review.namespace)
        and event.name in {"", review.name}
        and event.at <= review.at <= event.answered_at
    ]
    return min(times, default=review.at)
