"""A decision holds each field of its evaluation under the right name."""

from typing import Any

import msgspec

from tests.core.reviewing import policy_of
from webhook.core.admission.decision import Decision, Deviation, Finding, Half, StageNote, Verdict, WouldWrite
from webhook.core.admission.evaluation import Evaluation, conclude
from webhook.core.admission.review import Request
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.findings import Code
from webhook.core.kubernetes.pod import Pod, PodMetadata, PodSpec
from webhook.core.patch import Patch, add
from webhook.core.policy_fields import Mode
from webhook.core.quota import Acquire, Receipt
from webhook.core.shares import PodSlot

COMPILED = CompiledPolicy(policy_of("- {name: web, match: {namespaces: [shop]}, placement: {schedulerName: fast}}"))
POD = Pod(PodMetadata(name="web-1", uid="pod-uid"), PodSpec())
REQUEST = Request("uid", "CREATE", "pods", "resize", "shop", "alice", dry_run=True, pod=POD, old_pod=None)
FINDINGS = (Finding(Code.IMMUTABLE, "placement", Mode.WARN, "a finding"),)
EVALUATED: dict[str, Any] = {
    "verdict": Verdict.QUEUE,
    "deviation": Deviation("mirror", "breaker OPEN", would_degrade=True, overload="this server is overloaded"),
    "would_write": (WouldWrite("placement", Mode.AUDIT, ("spec.x",)),),
    "patch": Patch([add("x", "spec")]),
    "receipt": Receipt(1),
    "uncounted": True,
    "asked": Acquire(COMPILED.plans["web"], "shop", "pod-uid", {"pods": 1}, "user:alice"),
    "pod_key": b"key",
    "namespace_values": {"team": "t1"},
    "slot": PodSlot(3, "spot", "on-demand", "claim", "ReplicaSet"),
    "slot_reason": "the lowest that is free",
}
MADE: dict[str, Any] = {
    "half": Half.VALIDATE,
    "review_uid": "uid",
    "operation": "CREATE",
    "sub_resource": "resize",
    "dry_run": True,
    "user": "alice",
    "namespace": "shop",
    "pod": "web-1",
    "pod_uid": "pod-uid",
    "workload": "",
    "depends_on": (),
    "service": "web",
    "policy_hash": COMPILED.hash,
    "findings": FINDINGS,
    "warnings": (str(FINDINGS[0]), "overwritten"),
    "steps": (StageNote("own", "service web"),),
    "annotations_read": (),
    "overrides": "",
}


def evaluation(**changed: Any) -> Evaluation:
    return Evaluation(
        Half.VALIDATE,
        REQUEST,
        COMPILED,
        POD,
        service=COMPILED.services["web"],
        findings=FINDINGS,
        overwritten=("overwritten",),
        steps=(StageNote("own", "service web"),),
        **changed,
    )


def fields(decision: Decision) -> dict[str, Any]:
    """Return the fields of a decision; those of its parts by the names that they have in an evaluation."""
    found: dict[str, Any] = msgspec.structs.asdict(decision)
    for part in ("call", "charge", "inputs"):
        found |= msgspec.structs.asdict(found.pop(part))
    return found


def test_decision_has_each_field_of_its_evaluation() -> None:
    decision = conclude(evaluation(**EVALUATED), "prod-eu-1")
    expected = EVALUATED | MADE
    found = fields(decision)
    assert found == expected | {"status": decision.status, "audit": decision.audit}
    assert decision.allowed
    assert decision.audit["client-id"] == "prod-eu-1"


def test_each_field_changes_only_its_own() -> None:
    plain = fields(conclude(evaluation(), ""))
    for name, value in EVALUATED.items():
        if name in {"uncounted", "slot_reason"}:
            continue  # a Pod is uncounted only if the store was asked, and has no reason without a slot
        decision = fields(conclude(evaluation(**{name: value}), ""))
        assert {key for key in decision if decision[key] != plain[key]} - {"audit"} == {name}


def test_annotations_about_findings_are_not_kept_for_other_reviews() -> None:
    plain = {"decision": "Admit", "policy-hash": COMPILED.hash, "client-id": "prod-eu-1"}
    for findings in (FINDINGS, ()):
        evaluation = Evaluation(Half.VALIDATE, REQUEST, COMPILED, POD, findings=findings)
        found = {"findings": f"{Code.IMMUTABLE}/Warn"} if findings else {}
        assert conclude(evaluation, "prod-eu-1").audit == plain | found
