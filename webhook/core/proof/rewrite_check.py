"""One Pod of the corpus under one service's rules: rewritten, patched, rewritten again, checked."""

from typing import Any, NamedTuple

import jsonpatch
import msgspec

from webhook.core.admission.decision import Finding
from webhook.core.admission.mutation import rewrite
from webhook.core.admission.validation import USERS_OWN, check
from webhook.core.kubernetes.pod import Pod
from webhook.core.patch import PatchOperation
from webhook.core.policy.model import Service
from webhook.core.proof.corpus import Sample

_HASH = "0" * 16
_DEFECT = "this is a defect of Podgate: report it, and write these rules in a simpler way meanwhile"

_pod = msgspec.json.Decoder(Pod)


class RewriteFailure(NamedTuple):
    """What is wrong; of one `kind` once is enough."""

    kind: str
    reason: str
    remedy: str


def rewrite_failure(sample: Sample, service: Service) -> RewriteFailure | None:
    """Return what is wrong with this Pod under these rules; None where all is well."""
    try:
        return _trouble(sample, service)
    except MemoryError:  # of the whole check, and no rule's fault
        raise
    except Exception as error:  # noqa: BLE001  whatever the defect is: a review of such a Pod would run into it, too
        return RewriteFailure("failed", f"{sample.name} cannot be rewritten: {error!r}", _DEFECT)


def _trouble(sample: Sample, service: Service) -> RewriteFailure | None:
    first = rewrite(sample.pod, service, _HASH)
    rewritten = _patched(sample, first)
    again = rewrite(rewritten, service, _HASH)
    if again:
        at = again[0].path
        return RewriteFailure("diverged", f"{sample.name} is changed by every rewrite anew, each time at {at}", _DEFECT)
    findings = check(rewritten, service, hash_known=True)
    serious = (found for found in findings if sample.is_plain or found.code not in USERS_OWN)
    return next((_unfulfilled(sample, service, found) for found in serious), None)


def _patched(sample: Sample, operations: tuple[PatchOperation, ...]) -> Pod:
    document: Any = msgspec.json.decode(sample.raw)
    # Both sides are ours alone, so that nothing needs to be copied first.
    patched = jsonpatch.JsonPatch(msgspec.to_builtins(operations)).apply(document, in_place=True)
    return _pod.decode(msgspec.json.encode(patched))


def _unfulfilled(sample: Sample, service: Service, found: Finding) -> RewriteFailure:
    said = found.message.removeprefix(f"service {service.name}: ")
    kind = f"{found.code} {found.field}"
    if sample.is_plain:
        remedy = "make these rules agree with each other: they leave no room for any Pod"
        return RewriteFailure(
            kind, f"{sample.name}, which asks for nothing itself, cannot fulfil it: {found.code}: {said}", remedy
        )
    return RewriteFailure(kind, f"{sample.name} does not fulfil it after a rewrite: {found.code}: {said}", _DEFECT)
