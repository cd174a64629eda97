"""Shadow: one new Pod judged by a policy from its mutating request alone, without an effect on it or on counters."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from webhook.core.admission import charging, ownership, slots, stages
from webhook.core.admission.decision import Half, Verdict
from webhook.core.admission.evaluation import NO_POD, Evaluation, conclude
from webhook.core.admission.pod_results import get_or_compute
from webhook.core.admission.review import Request
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.json_depth import decode_foreign
from webhook.core.kubernetes.pod import Pod
from webhook.core.patch import apply
from webhook.core.quota import Acquire, Receipt
from webhook.core.rollout.differences import Difference, JudgedPod, find_differences
from webhook.core.shares import PodSlot

_encode = msgspec.json.Encoder().encode
_decode_pod = msgspec.json.Decoder(Pod).decode


class _Rewritten(Struct, frozen=True, gc=False):
    """A Pod as it would be stored, decoded, and as JSON for a comparison."""

    pod: Pod
    document: Mapping[str, Any]


class ShadowReview:
    """The review of a new Pod under one policy: rewritten, checked, and charged only if `record` is called."""

    def __init__(
        self, request: Request, compiled: CompiledPolicy, namespace_labels: Mapping[str, str], slot: int = 1
    ) -> None:
        """Judge a CREATE of a Pod. `slot`: the one that it has got, if any. BadReviewError: it cannot be judged."""
        mutating = Evaluation(Half.MUTATE, request, compiled, request.pod or NO_POD)
        self._find_owner(mutating, namespace_labels)
        taken = None
        if mutating.verdict is None:
            taken = _divide(mutating, slot)
            stages.rewrite(mutating)
            rewritten = get_or_compute(mutating, _apply)
        else:
            rewritten = _Rewritten(mutating.pod, _build_document(mutating.pod))
        self._document = rewritten.document
        request = replace(request, pod=rewritten.pod)
        self._evaluation = Evaluation(Half.VALIDATE, request, compiled, rewritten.pod, slot=taken)
        self._find_owner(self._evaluation, namespace_labels)
        if self._evaluation.verdict is None:
            stages.check(self._evaluation)

    @staticmethod
    def _find_owner(evaluation: Evaluation, namespace_labels: Mapping[str, str]) -> None:
        ownership.exempt(_releases_nothing, evaluation)
        if evaluation.verdict is None:
            ownership.find_owner(evaluation, namespace_labels)

    def build_peek(self) -> Acquire | None:
        """Return the question whether the Pod would be admitted by its limits; None if it is decided without them."""
        evaluation = self._evaluation
        if evaluation.verdict is not None:
            return None
        evaluation.asked = charging.build_acquire(evaluation, peek=True)
        return evaluation.asked

    def record(self, receipt: Receipt) -> None:
        """Decide by the store's answer."""
        charging.record_receipt(self._evaluation, receipt)

    def conclude(self) -> JudgedPod:
        """Return the decision. A Pod of which the store was not asked is admitted."""
        if self._evaluation.verdict is None:
            self._evaluation.verdict = Verdict.ADMIT
        return JudgedPod(conclude(self._evaluation, ""), self._document)


def list_peeks(before: ShadowReview, after: ShadowReview) -> tuple[Acquire, ...]:
    """Return what to ask the store about each review: nothing if both count alike, since the answer is the same."""
    first, second = before.build_peek(), after.build_peek()
    if first is None or second is None or first.plan == second.plan:
        return ()
    return first, second


def compare(before: ShadowReview, after: ShadowReview) -> tuple[str, tuple[Difference, ...]]:
    """Return the service, by the policy in force if it has an owner, and how the decisions differ."""
    former, new = before.conclude(), after.conclude()
    return former.decision.service or new.decision.service or "", tuple(find_differences(former, new))


def _divide(evaluation: Evaluation, number: int) -> PodSlot | None:
    """Let a Pod be rewritten as one of its slot's own variant; None if its service divides no such Pods."""
    shares = evaluation.compiled.shares.get(evaluation.owner.name)
    if shares is None or slots.find_dividable(evaluation) is None:
        return None
    variant = shares.split.names[shares.split.find_variant(number)]
    evaluation.service = evaluation.owner.variants[variant]
    return PodSlot(number, variant, variant)


def _apply(evaluation: Evaluation) -> _Rewritten:
    document = _build_document(evaluation.pod)
    apply(evaluation.patch, document)
    return _Rewritten(_decode_pod(_encode(document)), document)


def _build_document(pod: Pod) -> dict[str, Any]:
    return decode_foreign(_encode(pod), dict[str, Any])  # managedFields are as their writer likes


def _releases_nothing(_: str) -> bool:
    return False
