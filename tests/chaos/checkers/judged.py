"""No Pod of an enforced service unjudged, and none stored that was denied or not rewritten."""

from collections.abc import Sequence

from tests.chaos.checkers.calls import Calling, was_left_out
from tests.chaos.checkers.facts import CreatedPod, Facts
from tests.chaos.checkers.judging import Judge
from tests.chaos.history import Review
from webhook.core.placement import SERVICE_LABEL
from webhook.core.policy.model import FailureMode, Service
from webhook.core.policy_fields import Mode

OPEN_STATES = frozenset({"OPEN", "FORCED_OPEN"})
AGAIN_SECONDS = 59.0
"""For so long a server remembers what it has admitted."""


def check_judged(facts: Facts, judge: Judge) -> None:
    """Judge each Pod that was stored."""
    for uid, created in facts.created.items():
        owned, compiled = facts.owned.get(uid), facts.find_policy(created)
        if owned is None or compiled is None or owned.service not in compiled.services:
            continue
        service = compiled.services[owned.service]
        is_judged = facts.has_answer(uid)
        judge.expect(
            holds=is_judged or _may_lack(facts, created, service, Calling.VALIDATING),
            of=str(created),
            field="review by the validating half",
            value="none" if not is_judged else "one",
            expected=f"one: service {service.name} fails {service.failure_mode}",
            at=created.answered_at,
            since=created.asked_at,
        )
        if is_judged:
            _check_verdict(facts, judge, created)
            _check_rewrite(facts, judge, created, service)
    for reviews in facts.judged.values():
        _check_repeats(facts, judge, reviews)


def _may_lack(facts: Facts, created: CreatedPod, service: Service, calling: Calling) -> bool:
    """Return whether no server could be asked for a half, and the service lets Pods pass then."""
    return service.failure_mode is FailureMode.OPEN and was_left_out(
        facts.faults, created.annotations, calling, created.asked_at, created.answered_at
    )


def _check_verdict(facts: Facts, judge: Judge, created: CreatedPod) -> None:
    """Expect that records and the API server's annotations have the verdict by which the Pod was stored."""
    verdicts = {review.decision for review in facts.judged.get(created.uid, ())}
    told = {created.decision} if created.decision else set()
    judge.expect(
        holds=bool((verdicts | told) - {"Deny"}) and (not told or not verdicts or told <= verdicts),
        of=str(created),
        field="verdict",
        value=", ".join(sorted(verdicts | told)),
        expected="one that admits, the same in record and annotation",
        at=created.answered_at,
    )


def _check_rewrite(facts: Facts, judge: Judge, created: CreatedPod, service: Service) -> None:
    """Expect in a stored Pod the label of its service, and what the policy writes in Enforce."""
    if all(mode is Mode.DISABLED for mode in (service.modes.placement, service.modes.quota, service.modes.breaker)):
        return
    label = created.labels.get(SERVICE_LABEL, "")
    judge.expect(
        holds=label == service.name or (not label and _may_lack(facts, created, service, Calling.MUTATING)),
        of=str(created),
        field=f"label {SERVICE_LABEL}",
        value=label or "none",
        expected=service.name,
        at=created.answered_at,
    )
    scheduler = service.placement.scheduler_name if service.placement else None
    if scheduler and service.modes.placement is Mode.ENFORCE and label:
        found = created.document.get("spec", {}).get("schedulerName", "")
        judge.expect(
            holds=found == scheduler,
            of=str(created),
            field="spec.schedulerName",
            value=found,
            expected=scheduler,
            at=created.answered_at,
        )


def _check_repeats(facts: Facts, judge: Judge, reviews: Sequence[Review]) -> None:
    """Expect that an admitted Pod is admitted again, by the same server also without the store.

    A breaker that has opened since then denies it: the Pod does not exist yet.
    """
    admitted = next((review for review in reviews if review.decision == "Admit"), None)
    for review in reviews:
        if admitted is None or review.at <= admitted.at or review.at - admitted.at > AGAIN_SECONDS:
            continue
        if review.breaker_state in OPEN_STATES:
            continue
        away = facts.faults.list_store_spans(admitted.at, review.at)
        if away and (review.replica != admitted.replica or any(map(facts.faults.loses_data, away))):
            continue
        judge.expect(
            holds=review.decision == "Admit",
            of=f"Pod {review.namespace}/{review.name} ({review.uid})",
            field=f"asked again after it was admitted at {admitted.at:.3f}",
            value=f"{review.decision} {review.message[:200]}".strip(),
            expected="Admit",
            at=review.at,
        )
