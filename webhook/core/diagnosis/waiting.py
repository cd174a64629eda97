"""End of a Pod's wait in the queue: it has waited longer than `queue.maxWait` of its service."""

from webhook.core.admission.decision import Verdict
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.diagnosis.facts import PodFacts, Surroundings
from webhook.core.diagnosis.report import AdmissionReport
from webhook.core.policy_spec import WhenExpired
from webhook.core.quota import QueuePlan
from webhook.core.reporting.decision_record import DecisionRecord

_LATE_US = 10_000_000
"""The controller ends a wait within this time."""


def expired_gone(record: DecisionRecord, facts: PodFacts, policy: CompiledPolicy | None, now_us: int) -> str:
    """Return how the wait of a Pod ended that does not exist any more; "" if it did not wait, or not for too long."""
    queue = _queue(policy, record.service)
    if record.decision is not Verdict.QUEUE or queue is None or queue.when_expired is not WhenExpired.DELETE:
        return ""
    is_released = any(one.operation == "UPDATE" and one.uid == record.uid for one in facts.records)
    waited_us = now_us - int(record.at.timestamp() * 1_000_000)
    return "" if is_released or waited_us < queue.max_wait_us else f"{_text(queue)} is Delete: it does not exist"


def expired_kept(since_us: int, admission: AdmissionReport | None, around: Surroundings) -> str:
    """Return that the wait of a gated Pod has ended by the policy in force; "" if it may still be released."""
    queue = None if admission is None else _queue(around.in_force, admission.service)
    if queue is None or queue.when_expired is not WhenExpired.KEEP:
        return ""
    if around.now_us - since_us < queue.max_wait_us + _LATE_US:
        return ""
    return f"{_text(queue)} is Keep: it stays gated until it is deleted"


def _queue(policy: CompiledPolicy | None, service: str) -> QueuePlan | None:
    plan = None if policy is None else policy.plans.get(service)
    return None if plan is None else plan.queue


def _text(queue: QueuePlan) -> str:
    return f"it has waited longer than queue.maxWait, {queue.max_wait_us // 1_000_000} s, and queue.whenExpired"
