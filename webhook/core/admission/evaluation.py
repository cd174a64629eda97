"""Evaluation: the mutable state of one review while the stages run, and the Decision made from it."""

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from msgspec import Struct

from webhook.core.admission.decision import (
    Decision,
    Dependence,
    Finding,
    Half,
    StageNote,
    Verdict,
    WouldWrite,
    enforced,
)
from webhook.core.admission.messages import denials
from webhook.core.admission.review import Request
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.findings import Code
from webhook.core.kubernetes.admission_request import BadReviewError
from webhook.core.kubernetes.admission_response import ALLOWED, ResponseStatus
from webhook.core.kubernetes.pod import Pod
from webhook.core.patch import NO_PATCH, Patch
from webhook.core.policy.model import Service
from webhook.core.policy_spec import Mode
from webhook.core.quota import Acquire, CounterPlan, Receipt


class Evaluation(Struct, gc=False):
    """State of one review: what the stages have found so far."""

    half: Half
    request: Request
    compiled: CompiledPolicy
    hash_known: bool = True
    is_large: bool = False
    """The Pod could delay other reviews."""
    verdict: Verdict | None = None
    service: Service | None = None
    namespace_values: Mapping[str, str] = {}
    depends_on: tuple[Dependence, ...] = ()
    exemption: str = ""
    degraded: str = ""
    would_degrade: bool = False
    is_gated: bool = False
    """The rewrite adds the gate of a Pod that waits."""
    overload: str = ""
    """Why the Pod is gated without being judged, "" if it is judged."""
    findings: list[Finding] = []
    would_write: tuple[WouldWrite, ...] = ()
    patch: Patch = NO_PATCH
    overwritten: tuple[str, ...] = ()
    """Warnings about the user's values that the rewrite replaced."""
    qos_change: str = ""
    asked: Acquire | None = None
    receipt: Receipt | None = None
    uncounted: bool = False
    steps: list[StageNote] = []
    pod_key: bytes | None = b""
    """Key of the Pod's results; empty before it is needed, None if they are not cached."""

    @property
    def pod(self) -> Pod:
        """The Pod under review."""
        if self.request.pod is None:
            raise BadReviewError("AdmissionReview.request.object is missing: CREATE and UPDATE of pods need it")
        return self.request.pod

    @property
    def plan(self) -> CounterPlan:
        service = self.service or self.owner
        return self.compiled.plans[service.name]

    @property
    def owner(self) -> Service:
        """The service that owns the Pod; stages after "own" run only if there is one."""
        if self.service is None:
            raise LookupError("no service owns this Pod")
        return self.service

    def note(self, stage: str, found: str) -> None:
        self.steps.append(StageNote(stage, found))

    def decide(self, verdict: Verdict, stage: str, found: str) -> None:
        self.verdict = verdict
        self.note(stage, found)

    def add_findings(self, stage: str, findings: tuple[Finding, ...]) -> None:
        """Add findings; an enforced one makes the verdict Deny."""
        if not findings:
            return
        self.findings += findings
        for finding in findings:
            self.note(stage, f"{finding.mode}: {finding}")
        if enforced(findings):
            self.verdict = Verdict.DENY


class _Messages(NamedTuple):
    """The findings as texts of the response: denial, message, warnings, audit annotation."""

    denial: Finding | None
    message: str
    warnings: tuple[str, ...]
    audit: str


_NO_MESSAGES = _Messages(None, "", (), "")


@lru_cache(maxsize=1024)  # Pods that are denied together mostly get the same messages
def _messages(findings: tuple[Finding, ...]) -> _Messages:
    enforced_findings = enforced(findings)
    return _Messages(
        denial=enforced_findings[0] if enforced_findings else None,
        message="; ".join([str(finding) for finding in enforced_findings]),
        warnings=tuple([str(finding) for finding in findings if finding.mode is Mode.WARN]),
        audit=",".join(sorted({f"{finding.code}/{finding.mode}" for finding in findings})),
    )


def _note(evaluation: Evaluation, would_write: tuple[WouldWrite, ...]) -> tuple[str, ...]:
    """Return the one warning about fields that Enforce would write, of concerns in Warn."""
    fields = [field for write in would_write if write.mode is Mode.WARN for field in write.fields]
    if not fields:
        return ()
    of_workload = f"in Pods of {evaluation.request.workload.name}: " if evaluation.request.workload is not None else ""
    text = f"{of_workload}service {evaluation.owner.name}: Enforce would write {', '.join(fields)}"
    return (f"{Code.WOULD_REWRITE}: {text}",)


def _denied(evaluation: Evaluation, denial: Finding, message: str) -> ResponseStatus:
    status = denials.status_of(denial, evaluation.service, evaluation.receipt, evaluation.request.user)
    return ResponseStatus(status.code, status.reason, message, status.retry_after_seconds)


def _audit(evaluation: Evaluation, verdict: Verdict, findings: str, client_id: str) -> dict[str, str]:
    """Return the audit annotations."""
    audit = {"decision": str(verdict), "policy-hash": evaluation.compiled.hash, "client-id": client_id}
    if evaluation.service is not None:
        audit["service"] = evaluation.service.name
    if evaluation.depends_on:
        audit["depends-on"] = ",".join(map(str, evaluation.depends_on))
    if evaluation.exemption:
        audit["exemption"] = evaluation.exemption
    if evaluation.degraded:
        audit["degraded"] = evaluation.degraded
    if evaluation.overload:
        audit["overload"] = evaluation.overload
    if evaluation.qos_change:
        audit["qos-class"] = evaluation.qos_change
    if findings:
        audit["findings"] = findings
    return audit


def conclude(evaluation: Evaluation, client_id: str) -> Decision:
    """Return the decision record of a finished evaluation."""
    request, pod = evaluation.request, evaluation.request.pod
    findings = tuple(evaluation.findings)
    messages = _messages(findings) if findings else _NO_MESSAGES
    status = ALLOWED if messages.denial is None else _denied(evaluation, messages.denial, messages.message)
    verdict = evaluation.verdict or Verdict.ADMIT
    name = evaluation.service.name if evaluation.service else None
    audit = _audit(evaluation, verdict, messages.audit, client_id)
    would_write = evaluation.would_write if status is ALLOWED else ()
    warnings = messages.warnings + evaluation.overwritten
    if would_write:
        warnings = (*messages.warnings, *_note(evaluation, would_write), *evaluation.overwritten)
        audit["would-rewrite"] = ",".join([f"{write.concern}/{write.mode}" for write in would_write])
    # In the order of the fields: by keyword it takes 1.4 us instead of 0.2.
    return Decision(
        evaluation.half,
        request.uid,
        verdict,
        request.operation,
        request.sub_resource,
        request.dry_run,
        request.user,
        request.namespace,
        pod.shown_name if pod else "",
        pod.metadata.uid if pod else "",
        "",  # workload
        name,
        evaluation.compiled.hash,
        evaluation.exemption,
        evaluation.degraded,
        evaluation.would_degrade,
        would_write,
        evaluation.depends_on,
        status,
        findings,
        warnings,
        evaluation.patch,
        audit,
        evaluation.receipt,
        evaluation.uncounted,
        tuple(evaluation.steps),
        evaluation.asked,
        evaluation.pod_key or b"",
        evaluation.compiled.loaded.overrides.get(name, "") if name is not None else "",
        evaluation.namespace_values,
        evaluation.service.annotations_read if evaluation.service else (),
        evaluation.overload,
    )
