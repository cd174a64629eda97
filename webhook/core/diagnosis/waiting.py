"""End of a Pod's wait in the queue: it has waited longer than `queue.maxWait` of its service, or was dropped."""

from webhook.core.admission.decision import Verdict
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.diagnosis.facts import PodFacts, Surroundings
from webhook.core.diagnosis.objects import ReportedEvent, ReportedPod
from webhook.core.diagnosis.pending_causes import parse_created_us
from webhook.core.diagnosis.report import AdmissionReport, Fate
from webhook.core.quota import QueuePlan
from webhook.core.reporting.decision_record import DecisionRecord
from webhook.core.reporting.queue_document import DROPPED, EXPIRED, describe_expiry

_LATE_US = 10_000_000
"""The controller ends a wait at most this late."""
_ENDINGS = {(EXPIRED, "Delete"): Fate.EXPIRED, (DROPPED, "Drop"): Fate.DROPPED}
"""By reason and action of the Event."""


def find_ending_event(facts: PodFacts, uid: str = "") -> ReportedEvent | None:
    """Return the newest Event by which a waiting Pod was deleted; None without one, or if it is about another uid."""
    found = [event for event in facts.events if _is_ending(event) and uid in {"", event.involved_object.uid}]
    return max(found, key=lambda event: event.at, default=None)


def describe_ending(event: ReportedEvent) -> tuple[Fate, str]:
    """Return how a Pod's wait ended, by an Event that `find_ending_event` returned."""
    return _ENDINGS[event.reason or "", event.action or ""], f"{event.message}; deleted at {event.at}"


def infer_expiry(record: DecisionRecord, facts: PodFacts, policy: CompiledPolicy | None, now_us: int) -> str:
    """Infer that a Pod that no longer exists waited for too long; "" if it did not wait, or not too long."""
    queue = _find_queue_plan(policy, record.service)
    if record.decision is not Verdict.QUEUE or queue is None or queue.keeps_expired:
        return ""
    is_released = any(other.operation == "UPDATE" and other.uid == record.uid for other in facts.records)
    waited_us = now_us - int(record.at.timestamp() * 1_000_000)
    return "" if is_released or waited_us < queue.max_wait_us else f"{_describe_queue_expiry(queue)}: it does not exist"


def describe_kept_expiry(
    facts: PodFacts, pod: ReportedPod, admission: AdmissionReport | None, around: Surroundings
) -> str:
    """Return that a gated Pod has waited for too long, by the policy in force, and still waits; "" otherwise."""
    queue = None if admission is None else _find_queue_plan(around.in_force, admission.service)
    if queue is None or not queue.keeps_expired:
        return ""
    is_known = any(event.reason == EXPIRED and event.involved_object.uid == pod.metadata.uid for event in facts.events)
    if not is_known and around.now_us - parse_created_us(pod) < queue.max_wait_us + _LATE_US:
        return ""
    place = f", {facts.waiting.summary}" if facts.waiting is not None else ""
    return f"{_describe_queue_expiry(queue)}: it waits on{place}"


def _is_ending(event: ReportedEvent) -> bool:
    return (event.reason or "", event.action or "") in _ENDINGS


def _find_queue_plan(policy: CompiledPolicy | None, service: str) -> QueuePlan | None:
    plan = None if policy is None else policy.plans.get(service)
    return None if plan is None else plan.queue


def _describe_queue_expiry(queue: QueuePlan) -> str:
    return describe_expiry(queue.max_wait_us, is_kept=queue.keeps_expired)
