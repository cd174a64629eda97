"""One review on its way to a Decision: what the stages found so far, and the finished record."""

from functools import lru_cache
from typing import NamedTuple

from msgspec import Struct

from webhook.core.admission import denials
from webhook.core.admission.decision import (
    ALLOWED,
    Decision,
    Dependence,
    Finding,
    Half,
    ResponseStatus,
    StageNote,
    Verdict,
    WouldWrite,
    enforced,
)
from webhook.core.admission.review import BadReviewError, Request
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.findings import Code
from webhook.core.kubernetes.pod import Pod
from webhook.core.patch import PatchOperation
from webhook.core.policy.model import Service
from webhook.core.policy_spec import Mode
from webhook.core.quota import CounterPlan, Receipt


class Evaluation(Struct):
    """One review on its way to a Decision."""

    half: Half
    request: Request
    compiled: CompiledPolicy
    hash_known: bool = True
    is_large: bool = False
    """Its body is."""
    verdict: Verdict | None = None
    service: Service | None = None
    depends_on: tuple[Dependence, ...] = ()
    exemption: str = ""
    degraded: str = ""
    would_degrade: bool = False
    findings: list[Finding] = []
    would_write: tuple[WouldWrite, ...] = ()
    patch: tuple[PatchOperation, ...] = ()
    overwritten: tuple[str, ...] = ()
    """Warnings about what the rewrite replaced of the user's own."""
    qos_change: str = ""
    receipt: Receipt | None = None
    uncounted: bool = False
    steps: list[StageNote] = []

    @property
    def pod(self) -> Pod:
        """The Pod under review; `own` has made sure that there is one."""
        if self.request.pod is None:
            raise BadReviewError("AdmissionReview.request.object is missing: CREATE and UPDATE of pods need it")
        return self.request.pod

    @property
    def plan(self) -> CounterPlan:
        return self.compiled.plans[self.owner.name]

    @property
    def owner(self) -> Service:
        """The service that `own` found; a later stage runs only where there is one."""
        if self.service is None:
            raise LookupError("no service owns this Pod")
        return self.service

    def note(self, stage: str, found: str) -> None:
        self.steps.append(StageNote(stage, found))

    def settle(self, verdict: Verdict, stage: str, found: str) -> None:
        self.verdict = verdict
        self.note(stage, found)

    def object_to(self, stage: str, findings: tuple[Finding, ...]) -> None:
        """Take findings in: an enforced one settles a denial, others only speak."""
        if not findings:
            return
        self.findings += findings
        for finding in findings:
            self.note(stage, f"{finding.mode}: {finding}")
        if enforced(findings):
            self.verdict = Verdict.DENY


class _Messages(NamedTuple):
    """What an answer says of its findings: to whom it refuses or warns, and in the audit log."""

    denial: Finding | None
    message: str
    warnings: tuple[str, ...]
    audit: str


_NOTHING = _Messages(None, "", (), "")


@lru_cache(maxsize=1024)  # of many Pods that are refused at one time, most are told the same
def _told(findings: tuple[Finding, ...]) -> _Messages:
    enforced_findings = enforced(findings)
    return _Messages(
        denial=enforced_findings[0] if enforced_findings else None,
        message="; ".join([str(finding) for finding in enforced_findings]),
        warnings=tuple([str(finding) for finding in findings if finding.mode is Mode.WARN]),
        audit=",".join(sorted({f"{finding.code}/{finding.mode}" for finding in findings})),
    )


def _note(evaluation: Evaluation, would_write: tuple[WouldWrite, ...]) -> tuple[str, ...]:
    """Return the one warning about what is in Warn, and Enforce would write."""
    fields = [field for write in would_write if write.mode is Mode.WARN for field in write.fields]
    if not fields:
        return ()
    of_workload = f"in Pods of {evaluation.request.workload.name}: " if evaluation.request.workload is not None else ""
    said = f"{of_workload}service {evaluation.owner.name}: Enforce would write {', '.join(fields)}"
    return (f"{Code.WOULD_REWRITE}: {said}",)


def conclude(evaluation: Evaluation, client_id: str) -> Decision:
    """Return the finished record."""
    request, pod = evaluation.request, evaluation.request.pod
    findings = tuple(evaluation.findings)
    told = _told(findings) if findings else _NOTHING
    status = ALLOWED
    if told.denial is not None:
        status = denials.status_of(told.denial, evaluation.service, evaluation.receipt, request.user)
        status = ResponseStatus(status.code, status.reason, told.message, status.retry_after_seconds)
    verdict = evaluation.verdict or Verdict.ADMIT
    name = evaluation.service.name if evaluation.service else None
    audit = {"decision": str(verdict), "policy-hash": evaluation.compiled.hash, "client-id": client_id}
    if name is not None:
        audit["service"] = name
    if evaluation.depends_on:
        audit["depends-on"] = ",".join(map(str, evaluation.depends_on))
    if evaluation.exemption:
        audit["exemption"] = evaluation.exemption
    if evaluation.degraded:
        audit["degraded"] = evaluation.degraded
    if evaluation.qos_change:
        audit["qos-class"] = evaluation.qos_change
    if findings:
        audit["findings"] = told.audit
    would_write = evaluation.would_write if status is ALLOWED else ()
    if would_write:
        audit["would-rewrite"] = ",".join([f"{write.concern}/{write.mode}" for write in would_write])
    return Decision(
        half=evaluation.half,
        review_uid=request.uid,
        verdict=verdict,
        operation=request.operation,
        sub_resource=request.sub_resource,
        dry_run=request.dry_run,
        user=request.user,
        namespace=request.namespace,
        pod=pod.shown_name if pod else "",
        pod_uid=pod.metadata.uid if pod else "",
        service=name,
        policy_hash=evaluation.compiled.hash,
        exemption=evaluation.exemption,
        degraded=evaluation.degraded,
        would_degrade=evaluation.would_degrade,
        depends_on=evaluation.depends_on,
        status=status,
        findings=findings,
        would_write=would_write,
        warnings=(*told.warnings, *_note(evaluation, would_write), *evaluation.overwritten),
        patch=evaluation.patch,
        audit=audit,
        receipt=evaluation.receipt,
        uncounted=evaluation.uncounted,
        steps=tuple(evaluation.steps),
    )
