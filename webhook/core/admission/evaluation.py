"""Evaluation: the mutable state of one review while the stages run, and the Decision made from it."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from webhook.core.admission import denials
from webhook.core.admission.decision import (
    NO_CHARGE,
    USUAL,
    ChargeResult,
    Decision,
    DecisionInputs,
    Dependence,
    Deviation,
    Finding,
    Half,
    ReviewedCall,
    StageNote,
    Verdict,
    WouldWrite,
    select_enforced,
)
from webhook.core.admission.review import Request
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.findings import Code
from webhook.core.kubernetes.admission_request import ALLOWED, ResponseStatus
from webhook.core.kubernetes.pod import Pod, PodMetadata, PodSpec
from webhook.core.patch import NO_PATCH, Patch
from webhook.core.policy.model import Service
from webhook.core.policy_fields import Mode
from webhook.core.quota import Acquire, CounterPlan, Receipt
from webhook.core.shares import PodSlot

_ADMIT = Verdict.ADMIT
NO_POD = Pod(PodMetadata(), PodSpec())


class Evaluation(Struct, gc=False):
    """State of one review: what the stages have found so far."""

    half: Half
    request: Request
    compiled: CompiledPolicy
    pod: Pod
    """The Pod under review; NO_POD for a request without one, which no stage after "exempt" sees."""
    hash_known: bool = True
    is_large: bool = False
    """The Pod could delay other reviews."""
    body: bytes = b""
    """The review, for rules that read more of the Pod; empty if only a record of the Pod is known."""
    verdict: Verdict | None = None
    service: Service | None = None
    namespace_values: Mapping[str, str] = {}
    team: str = ""
    """Of the Namespace, where teams count apart."""
    depends_on: tuple[Dependence, ...] = ()
    deviation: Deviation = USUAL
    is_gated: bool = False
    """The rewrite adds the gate of a Pod that waits."""
    group: str | None = None
    """The membership in a group that the rewrite writes, "" to remove one; None to leave it."""
    slot: PodSlot | None = None
    """The slot that the rewrite writes, or that Podgate wrote before."""
    slot_reason: str = ""
    findings: tuple[Finding, ...] = ()
    would_write: tuple[WouldWrite, ...] = ()
    patch: Patch = NO_PATCH
    overwritten: tuple[str, ...] = ()
    """Warnings about the user's values that the rewrite replaced."""
    qos_change: str = ""
    asked: Acquire | None = None
    receipt: Receipt | None = None
    uncounted: bool = False
    steps: tuple[StageNote, ...] = ()
    results: dict[object, Any] | None = None
    """Cached results for Pods of the same kind; None until they are needed."""
    pod_key: bytes = b""
    """Key of these results; empty until it is needed, and if they are not cached."""

    @property
    def plan(self) -> CounterPlan:
        return self.compiled.plans[(self.service or self.owner).name]

    @property
    def owner(self) -> Service:
        """The service that owns the Pod; stages after "own" run only if there is one."""
        if self.service is None:
            raise LookupError("no service owns this Pod")
        return self.service

    def note(self, stage: str, found: str) -> None:
        self.steps += (StageNote(stage, found),)

    def decide(self, verdict: Verdict, stage: str, found: str) -> None:
        self.verdict = verdict
        self.steps += (StageNote(stage, found),)

    def add_findings(self, stage: str, findings: tuple[Finding, ...]) -> None:
        """Add findings; an enforced one makes the verdict Deny."""
        if not findings:
            return
        self.findings += findings
        self.steps += tuple([StageNote(stage, f"{finding.mode}: {finding}") for finding in findings])
        if select_enforced(findings):
            self.verdict = Verdict.DENY


class _Messages(NamedTuple):
    """The findings as texts of the response: denial, message, warnings, audit annotation."""

    denial: Finding | None
    message: str
    warnings: tuple[str, ...]
    audit: str


@lru_cache(maxsize=1024)  # Pods that are denied together mostly get the same messages
def _build_messages(findings: tuple[Finding, ...]) -> _Messages:
    enforced_findings = select_enforced(findings)
    return _Messages(
        denial=enforced_findings[0] if enforced_findings else None,
        message="; ".join([str(finding) for finding in enforced_findings]),
        warnings=tuple([str(finding) for finding in findings if finding.mode is Mode.WARN]),
        audit=",".join(sorted({f"{finding.code}/{finding.mode}" for finding in findings})),
    )


def _build_write_warnings(evaluation: Evaluation, would_write: tuple[WouldWrite, ...]) -> tuple[str, ...]:
    """Return the warning about fields that Enforce would write for concerns in Warn; empty without such fields."""
    fields = [field for write in would_write if write.mode is Mode.WARN for field in write.fields]
    if not fields:
        return ()
    of_workload = f"in Pods of {evaluation.request.workload.name}: " if evaluation.request.workload is not None else ""
    text = f"{of_workload}service {evaluation.owner.name}: Enforce would write {', '.join(fields)}"
    return (f"{Code.WOULD_REWRITE}: {text}",)


def _build_denial_status(evaluation: Evaluation, denial: Finding, message: str) -> ResponseStatus:
    status = denials.status_of(denial, evaluation.service, evaluation.receipt, evaluation.request.user)
    return ResponseStatus(status.code, status.reason, message, status.retry_after_seconds)


@lru_cache(maxsize=1024)  # most reviews of one client have the same annotations
def _build_audit(
    verdict: Verdict, policy_hash: str, client_id: str, service: str, deviation: Deviation, qos_change: str
) -> Mapping[str, str]:
    """Return the audit annotations except those about findings. The mapping is shared: add others to a copy."""
    always = {"decision": str(verdict), "policy-hash": policy_hash, "client-id": client_id}
    seldom = {
        "service": service,
        "exemption": deviation.exemption,
        "degraded": deviation.degraded,
        "overload": deviation.overload,
        "qos-class": qos_change,
    }
    return always | {key: value for key, value in seldom.items() if value}


def _add_slot(decision: Decision, slot: PodSlot, reason: str) -> Decision:
    """Return a decision about a Pod with a slot, which few services give."""
    told = {"slot": str(slot.slot), "variant": slot.variant}
    if slot.fell_back:
        told["intended-variant"] = slot.intended
    inputs = replace(decision.inputs, slot=slot, slot_reason=reason)
    return replace(decision, audit={**decision.audit, **told}, inputs=inputs)


class _Objections(NamedTuple):
    """Parts of the response that follow from findings, and from fields that Enforce would write."""

    status: ResponseStatus
    would_write: tuple[WouldWrite, ...]
    warnings: tuple[str, ...]
    audit: dict[str, str]


def _build_objections(evaluation: Evaluation) -> _Objections:
    messages, status, would_write = _build_messages(evaluation.findings), ALLOWED, evaluation.would_write
    warnings, audit = messages.warnings, {}
    if messages.audit:
        audit["findings"] = messages.audit
    if messages.denial is not None:
        status, would_write = _build_denial_status(evaluation, messages.denial, messages.message), ()
    if would_write:
        warnings += _build_write_warnings(evaluation, would_write)
        audit["would-rewrite"] = ",".join([f"{write.concern}/{write.mode}" for write in would_write])
    return _Objections(status, would_write, warnings + evaluation.overwritten, audit)


def conclude(evaluation: Evaluation, client_id: str) -> Decision:
    """Return the decision record of a finished evaluation."""
    request, compiled, metadata = evaluation.request, evaluation.compiled, evaluation.pod.metadata
    service, verdict = evaluation.service, evaluation.verdict or _ADMIT
    name = "" if service is None else service.name
    audit = _build_audit(verdict, compiled.hash, client_id, name, evaluation.deviation, evaluation.qos_change)
    status, would_write, warnings = ALLOWED, evaluation.would_write, evaluation.overwritten
    if would_write or evaluation.findings:
        status, would_write, warnings, objections_audit = _build_objections(evaluation)
        audit = {**audit, **objections_audit}
    # CPython packs all arguments into a dict if, with keywords counted twice, there are more than 30.
    decision = Decision(
        evaluation.half,
        request.uid,
        verdict,
        ReviewedCall(request.operation, request.sub_resource, request.dry_run, request.user, request.namespace),
        name or None,
        compiled.hash,
        metadata.name or ("" if evaluation.pod is NO_POD else evaluation.pod.shown_name),
        metadata.uid,
        deviation=evaluation.deviation,
        would_write=would_write,
        status=status,
        findings=evaluation.findings,
        warnings=warnings,
        patch=evaluation.patch,
        audit=audit,
        charge=NO_CHARGE
        if evaluation.asked is None and evaluation.receipt is None
        else ChargeResult(evaluation.asked, evaluation.receipt, evaluation.uncounted),
        steps=evaluation.steps,
        inputs=DecisionInputs(
            evaluation.pod_key,
            compiled.overrides[name] if name in compiled.overrides else "",  # noqa: SIM401  less work for each review
            evaluation.namespace_values,
            () if service is None else service.annotations_read,
        ),
    )
    return decision if evaluation.slot is None else _add_slot(decision, evaluation.slot, evaluation.slot_reason)
