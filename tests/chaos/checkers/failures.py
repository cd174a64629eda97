"""No admission fails that the documents do not let fail."""

from tests.chaos.checkers.calls import GRACE_SECONDS, Calling, was_left_out
from tests.chaos.checkers.facts import SEEN_SECONDS, Facts
from tests.chaos.checkers.faults import SETTLE_SECONDS
from tests.chaos.checkers.judging import Judge
from tests.chaos.checkers.late_answers import STORE_FAILED
from tests.chaos.checkers.log_lines import list_log_lines, parse_moment
from tests.chaos.history import UNKNOWN, AuditEvent, Review
from webhook.core.findings import Code
from webhook.core.policy_fields import WhenStoreUnavailable
from webhook.errors import StoreFault

STORE_GRACE_SECONDS = 2.0
"""A replica probes a Redis that has come back every quarter of a second, and in a second ticks."""

MEMORY_FULL = "redis-memory-full"
UNCAUSED = frozenset({StoreFault.AUTHENTICATION, StoreFault.SCRIPT, StoreFault.OTHER})
"""Reasons of failures of the store that no fault of a run gives."""


def check_failures(facts: Facts, judge: Judge) -> None:
    """Judge each answer of the API server about a Pod, each denial of a server, and each request of the workload."""
    for event in facts.creations:
        _check_answer(facts, judge, event)
    for review in facts.history.reviews:
        if review.decision == "Deny":
            _check_denial(facts, judge, review)
    _check_reasons(facts, judge)
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
        tags = facts.list_tags(review.service)
        active = [
            span
            for span in facts.faults.list_active(review.at, review.at, after=STORE_GRACE_SECONDS)
            if facts.faults.reaches(span, tags) and (facts.faults.is_of_store(span) or span.ends_process)
        ] or facts.faults.list_store_spans(review.at, review.at, tags)
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
        judge.expect(
            holds=_was_mutation_left_out(facts, review),
            of=of,
            field="denied",
            value=Code.MUTATION_MISSING,
            expected="only where the mutating half could not be called",
            at=review.at,
        )


def _was_mutation_left_out(facts: Facts, review: Review) -> bool:
    """Return whether the API server says so of the request of this review, which may be a dry run."""
    off = SEEN_SECONDS if facts.faults.has_clock_steps else 0.0
    events = [
        event
        for event in facts.history.audit
        if (event.verb, event.resource, event.namespace) == ("create", "pods", review.namespace)
        and event.name in {"", review.name}
        and event.at - off <= review.at <= event.answered_at + off
    ]
    if not events:  # an API server that ends may not have written it
        return bool(facts.faults.list_active(review.at, review.at, after=GRACE_SECONDS, of=facts.faults.is_of_calls))
    return any(
        was_left_out(facts.faults, event.annotations, Calling.MUTATING, event.at, event.answered_at) for event in events
    )


def _check_reasons(facts: Facts, judge: Judge) -> None:
    """Expect that a server names each failure of the store as docs/redis.md does, for a fault that can cause it."""
    for part in (name for name, kind in facts.history.plan.parts.items() if kind == "server"):
        for line in list_log_lines(facts.history.logs.get(part, "")):
            if not str(line.get("msg", "")).startswith(STORE_FAILED):
                continue
            reason, at = str(line.get("reason", "")), parse_moment(str(line["time"]))
            judge.expect(
                holds=_has_cause(facts, reason.partition(":")[0], at),
                of=part,
                field="failure of the store",
                value=reason[:200],
                expected="a reason with a cause",
                at=at,
            )


def _has_cause(facts: Facts, reason: str, at: float) -> bool:
    spans = facts.faults.spans
    if not facts.faults.has_clock_steps:  # else the server's clock may be off
        spans = facts.faults.list_active(at, at, after=SETTLE_SECONDS)
    if reason == StoreFault.FULL:
        return any(span.kind == MEMORY_FULL for span in spans)
    if reason == StoreFault.READONLY:
        return any(map(facts.faults.is_of_store, spans))
    return reason not in UNCAUSED
