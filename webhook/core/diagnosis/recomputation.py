"""Recomputation of a recorded decision: the finding of each stage and the effect of each rule, from its policy.

Decisions are pure, so a record keeps only the Pod and the figures from outside: usage and breaker.
"""

from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from webhook.core.admission import ownership, queueing, stages
from webhook.core.admission.decision import Decision, Deviation, Finding, Half, Verdict
from webhook.core.admission.evaluation import Evaluation, conclude
from webhook.core.admission.exemptions import PODGATE_USERS
from webhook.core.admission.mutation import HASH_ANNOTATION
from webhook.core.admission.review import Request
from webhook.core.compiled_policy import CompiledPolicy, compile_services, replace_services
from webhook.core.overrides import apply_overrides
from webhook.core.reporting.decision_record import DecisionRecord, RecordedFinding
from webhook.core.rule_notes import Note, explain
from webhook.core.shares import PodSlot

_FROM_OUTSIDE = frozenset({"quota", "breaker"})
"""Concerns whose findings depend on more than the Pod and the policy."""


class NotRecomputableError(Exception):
    """The record lacks the Pod: it was too large, or the review was about something else."""


def recompute(record: DecisionRecord, policy: CompiledPolicy, *, is_gated: bool = False) -> Decision:
    """Return the decision of a record with the finding of each stage.

    `policy` is the one that decided, without the overrides of that time, which the record has.
    `is_gated`: the mutating half wrote the gate of the queue, which the record of the validating half shows.
    """
    evaluation = _make_evaluation(record, _apply_overrides(policy, record))
    ownership.exempt(PODGATE_USERS.__contains__, evaluation)
    if evaluation.verdict is None:
        ownership.find_owner(evaluation, record.namespace_labels)
    if evaluation.verdict is None and record.half is Half.MUTATE:
        _rewrite(evaluation, record, is_gated=is_gated)
    elif evaluation.verdict is None:
        _validate(evaluation, record)
    return conclude(evaluation, "")


def list_rule_notes(record: DecisionRecord, policy: CompiledPolicy) -> tuple[Note, ...]:
    """Return what each entry of the policy did to a new Pod; `record` is of its mutating half."""
    service = _apply_overrides(policy, record).services.get(record.service)
    is_new = record.operation == "CREATE" and not record.sub_resource and not record.workload
    if service is None or not is_new or record.pod is None:
        return ()
    variant = "" if record.slot is None else record.slot.variant
    return explain(msgspec.json.decode(record.recorded), service, policy.hash, record.namespace_labels, variant)


def _apply_overrides(policy: CompiledPolicy, record: DecisionRecord) -> CompiledPolicy:
    """Return the policy with the service of the record as the overrides of that time made it."""
    entries = record.override_entries
    if not entries or record.service not in policy.services:
        return policy
    # The record has what applied to this Pod, exceptions too: here they apply to the service as a whole.
    whole = tuple(replace(entry, workload=None, pods=None) for entry in entries)
    loaded = apply_overrides(policy.loaded, {record.service: whole})
    changed = {part.service.name: part for part in compile_services(loaded, {record.service})}
    return replace_services(policy, loaded, changed)


def _make_evaluation(record: DecisionRecord, policy: CompiledPolicy) -> Evaluation:
    pod = record.pod
    if pod is None or record.workload:
        raise NotRecomputableError("the record does not hold the Pod")
    request = Request(
        uid="",
        operation=record.operation,
        resource="pods",
        sub_resource=record.sub_resource,
        namespace=record.namespace,
        user=record.user,
        dry_run=record.dry_run,
        pod=pod,
        old_pod=record.old_pod,
    )
    carried, recorded = pod.annotations.get(HASH_ANNOTATION), record.slot
    slot = None
    if recorded is not None:
        slot = PodSlot(recorded.number, recorded.variant, recorded.intended or recorded.variant)
    return Evaluation(record.half, request, policy, pod, carried in {None, policy.hash}, slot=slot)


def _rewrite(evaluation: Evaluation, record: DecisionRecord, *, is_gated: bool) -> None:
    if is_gated:
        queueing.add_gate(evaluation, record.overload or "quota or breaker had no room")
    if record.slot is not None:
        evaluation.note("rewrite", record.slot.reason)
    if record.degraded:
        evaluation.deviation = Deviation(degraded=record.degraded)
        evaluation.note("rewrite", f"{record.degraded}: preferred terms are left out")
    stages.rewrite(evaluation)


def _list_recorded(record: DecisionRecord, is_wanted: Callable[[RecordedFinding], bool]) -> tuple[Finding, ...]:
    return tuple(
        Finding(finding.code, finding.concern, finding.mode, finding.message, finding.field)
        for finding in record.findings
        if is_wanted(finding)
    )


def _validate(evaluation: Evaluation, record: DecisionRecord) -> None:
    found = _list_recorded(record, lambda finding: finding.concern in _FROM_OUTSIDE)
    ran = [name for name, _ in record.stages]
    if "breaker" in ran and "check" not in ran:
        evaluation.note("breaker", "" if record.breaker is None else record.breaker.state)
        evaluation.add_findings("breaker", found)
        return
    stages.check(evaluation)
    _add_unjudged(evaluation, record)
    if evaluation.verdict is None:
        evaluation.add_findings("charge", found)
    if evaluation.verdict is None and record.decision is Verdict.QUEUE:
        evaluation.decide(Verdict.QUEUE, "queue", queueing.WAITS)
    if evaluation.verdict is None:
        evaluation.decide(Verdict.ADMIT, "charge", _describe_charge(record))


def _add_unjudged(evaluation: Evaluation, record: DecisionRecord) -> None:
    """Add the recorded findings of rules that read more of the Pod than its record keeps."""
    unjudged = {f"rules[{rule.rule.name}]" for rule in evaluation.owner.rule_plan.rules if rule.unrecorded}
    if unjudged:
        evaluation.add_findings("check", _list_recorded(record, lambda finding: finding.field in unjudged))


def _describe_charge(record: DecisionRecord) -> str:
    if record.uncounted:
        return "not counted: the counters were unavailable"
    if record.dry_run:
        return "not charged (dry run)"
    return "charged" if record.limits else "nothing to charge"
