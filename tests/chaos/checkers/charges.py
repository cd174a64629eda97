"""No Pod charged twice, none lost, and no refund without a reason."""

from itertools import takewhile
from math import floor

from tests.chaos.checkers.bounds import REBOOKED_SECONDS, list_ends
from tests.chaos.checkers.counted import OWN_TIME_SECONDS, Counted
from tests.chaos.checkers.facts import US, CreatedPod, Facts
from tests.chaos.checkers.faults import LATE_SECONDS
from tests.chaos.checkers.judging import Judge
from webhook.core.policy_fields import Mode

WITHDRAWN_SECONDS = 7.0
"""By then a replica has taken back what Redis charged for a Pod that it denied."""
SKEW_SECONDS = 30.0
"""By how much clocks may differ where a watch is compared with a charge."""
LEASE_TAKEN, COMPACTION = "lease-taken", "etcd-compaction"
REFUNDED_SECONDS = 180.0
"""By then the controller has refunded what was never created: 60 s of absence, and its rounds."""


def check_charges(facts: Facts, judge: Judge) -> None:
    """Judge the charges of each Pod by the writes of the store."""
    _check_once(facts, judge)
    _check_refunds(facts, judge)
    _check_none_lost(facts, judge)
    _check_returned(facts, judge)
    _check_dry_runs(facts, judge)


def _check_once(facts: Facts, judge: Judge) -> None:
    """Expect one charge of a Pod: of one moment, and of one service."""
    for uid, writes in facts.charges.items():
        moments = list(dict.fromkeys((write.tag, write.charged_us) for write in writes if write.charged_us))
        judge.expect(
            holds=len(moments) == 1 or _was_refunded_between(facts, uid) or _was_lost_between(facts, uid),
            of=f"Pod {uid}",
            field="moments of its charge",
            value=", ".join(f"{tag} {at_us / US:.3f}" for tag, at_us in moments),
            expected="one",
            at=writes[-1].at_us / US,
            since=writes[0].at_us / US,
        )


def _was_refunded_between(facts: Facts, uid: str) -> bool:
    """Return whether an earlier charge was taken back before the last one: then the Pod was asked for again."""
    writes = facts.charges[uid]
    last = writes[-1].charged_us
    # Moments are of the clock of a Redis, which may have been off: what was written first is the earlier one.
    return any(write.refunded for write in takewhile(lambda write: write.charged_us != last, writes))


def _was_lost_between(facts: Facts, uid: str) -> bool:
    """Return whether the store lost the first charge, and the server has submitted it again at its own time.

    They differ if Redis charged the Pod late, after its server had admitted it.
    """
    first, *others = facts.charges[uid]
    later = next((write for write in others if write.charged_us != first.charged_us), first)
    spans = facts.faults.list_store_spans(first.at_us / US, later.at_us / US)
    losses = [span for span in spans if facts.faults.loses_data(span)]
    created = facts.created.get(uid)
    is_own = created is None or created.is_gated or facts.faults.has_clock_steps
    is_own = is_own or (created is not None and _is_own_time(facts, created, later.charged_us / US))
    return bool(losses) and is_own


def _is_own_time(facts: Facts, created: CreatedPod, charged_at: float) -> bool:
    """Return whether a charge is of the time of its request, or as much later as Redis was when it carried it out."""
    # Creation timestamps, by which the controller charges, are whole seconds.
    begin, latest = floor(created.asked_at) - OWN_TIME_SECONDS, created.answered_at + OWN_TIME_SECONDS
    away = facts.faults.list_active(created.asked_at, created.answered_at, of=facts.faults.is_of_store)
    late = facts.faults.list_store_spans(created.asked_at, created.answered_at)
    ends = [span.ended + LATE_SECONDS for span in away] + [span.ended for span in late]
    return begin <= charged_at <= max([latest, *ends])


def _check_refunds(facts: Facts, judge: Judge) -> None:
    """Only a Pod that was never created is refunded."""
    for uid, writes in facts.charges.items():
        if writes[-1].refunded:
            created = facts.created.get(uid)
            judge.expect(
                holds=created is None,
                of=f"Pod {uid}" if created is None else str(created),
                field="refunded",
                value="its charge was taken back",
                expected="kept: it was created" if created is None else f"kept: created at {created.answered_at:.3f}",
                at=writes[-1].at_us / US,
            )


def _check_none_lost(facts: Facts, judge: Judge) -> None:
    """Each stored Pod of a service with limits is charged in the end, at its own time."""
    end = facts.history.end
    if end is None or not facts.history.charges:
        return
    counted = Counted(facts)
    for uid, created in facts.created.items():
        plan = facts.find_plan(uid)
        if plan is None or not plan.limits or plan.quota_mode is Mode.DISABLED or not facts.has_answer(uid):
            continue
        if facts.faults.list_store_spans(end.at - 1, end.at) or counted.was_queued(uid):
            continue
        charged_at = facts.find_charged_at(uid)
        if charged_at is None:
            is_known = facts.is_recorded(created.asked_at, created.answered_at + WITHDRAWN_SECONDS)
            if is_known and not _may_be_lost(facts, counted.find_replica(uid), created.answered_at):
                judge.expect(
                    holds=False,
                    of=str(created),
                    field="charge",
                    value="none",
                    expected=f"one in service {plan.service}",
                    at=created.answered_at,
                )
            continue
        judge.expect(
            holds=_is_own_time(facts, created, charged_at) or facts.faults.has_clock_steps,
            of=str(created),
            field="charged at",
            value=f"{charged_at:.3f}",
            expected=f"its own time, {created.asked_at:.3f} to {created.answered_at:.3f}",
            at=created.answered_at,
        )


def _may_be_lost(facts: Facts, replica: str, admitted_at: float) -> bool:
    """Return whether the documents allow the charge of an admitted Pod to be lost."""
    for span in facts.faults.store_spans:
        if facts.faults.loses_data(span) and admitted_at < span.began - REBOOKED_SECONDS:
            return True
        ends = list_ends(facts, span.began - REBOOKED_SECONDS, span.ended)
        if ends and admitted_at <= span.ended and _ended(facts, replica, max(end.ended for end in ends)):
            return True
    return False


def _ended(facts: Facts, replica: str, at: float) -> bool:
    """Return whether a process judged nothing after a moment; one that left no record may have ended."""
    return not any(review.replica == replica and review.at > at for review in facts.history.reviews)


def _check_returned(facts: Facts, judge: Judge) -> None:
    """Expect that a Pod that was denied, or never created, holds no place in the end."""
    end = facts.history.end
    if end is None or not facts.history.charges:
        return
    has_controller = "controller" in facts.history.plan.parts.values()
    for uid, writes in facts.charges.items():
        if uid in facts.created or facts.find_charged_at(uid) is None:
            continue
        if any(map(facts.faults.loses_data, facts.faults.list_store_spans(writes[-1].at_us / US, end.at))):
            continue  # the charge may be gone, too
        reviews = facts.judged.get(uid, ())
        is_denied = bool(reviews) and all(review.decision == "Deny" for review in reviews)
        waited = end.at - max(writes[-1].at_us / US, max((span.ended for span in facts.faults.spans), default=0))
        if not (is_denied and waited > WITHDRAWN_SECONDS) and not (has_controller and waited > REFUNDED_SECONDS):
            continue
        if not is_denied and _is_unproven(facts, writes[0].charged_us / US):
            continue
        ended = _ended(facts, reviews[-1].replica, end.at - WITHDRAWN_SECONDS) if reviews else False
        judge.expect(
            holds=ended and not has_controller,
            of=f"Pod {uid}",
            field="charge",
            value=f"kept since {writes[-1].charged_us / US:.3f}",
            expected="taken back: it was denied" if is_denied else "refunded: it was never created",
            at=end.at,
        )


def _is_unproven(facts: Facts, charged_at: float) -> bool:
    """Return whether no leader can tell that a Pod was never created: its watch began after the charge.

    So it is, too, where the store has lost data and somebody else held the Lease meanwhile. A watch goes on without
    etcd, and is resumed but for versions that it has compacted.
    """
    faults = facts.faults
    active = faults.list_active(charged_at - SKEW_SECONDS, charged_at + REFUNDED_SECONDS)
    is_changed = any(span.kind == LEASE_TAKEN for span in active) and any(map(faults.loses_data, active))
    return is_changed or any(
        span.kind == COMPACTION or faults.is_of(span, {"controller", "kube-apiserver"}) for span in active
    )


def _check_dry_runs(facts: Facts, judge: Judge) -> None:
    """Expect that a dry run charges nothing."""
    for review in facts.history.reviews:
        if review.is_dry_run and review.half == "validate" and review.uid and facts.history.charges:
            judge.expect(
                holds=review.uid not in facts.charges,
                of=f"Pod {review.namespace}/{review.name} ({review.uid})",
                field="charge of a dry run",
                value="one" if review.uid in facts.charges else "none",
                expected="none",
                at=review.at,
            )
