"""Rewrite check: one Pod of the corpus under one service's rules, rewritten, rewritten again, and validated."""

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
_DEFECT = "this is a defect of Podgate: report it, and use simpler rules until it is fixed"

_pod = msgspec.json.Decoder(Pod)


class RewriteFailure(NamedTuple):
    """A failure; each `kind` is reported once."""

    kind: str
    reason: str
    remedy: str


def rewrite_failure(sample: Sample, service: Service) -> RewriteFailure | None:
    """Return the failure of this Pod under these rules, None without one."""
    try:
        return _trouble(sample, service)
    except MemoryError:  # not caused by a rule
        raise
    except Exception as error:  # noqa: BLE001  any defect: a review of such a Pod would hit it, too
        return RewriteFailure("failed", f"{sample.name} cannot be rewritten: {error!r}", _DEFECT)


def _trouble(sample: Sample, service: Service) -> RewriteFailure | None:
    first = rewrite(sample.pod, service, _HASH)
    rewritten = _patched(sample, first)
    again = rewrite(rewritten, service, _HASH)
    if again:
        at = again[0].path
        text = f"{sample.name} is changed again by every rewrite, each time at {at}"
        return RewriteFailure("diverged", text, _DEFECT)
    findings = check(rewritten, service, hash_known=True)
    serious = (found for found in findings if sample.is_plain or found.code not in USERS_OWN)
    return next((_unfulfilled(sample, service, found) for found in serious), None)


def _patched(sample: Sample, operations: tuple[PatchOperation, ...]) -> Pod:
    document: Any = msgspec.json.decode(sample.raw)
    # Neither side is shared, so no copy is needed.
    patched = jsonpatch.JsonPatch(msgspec.to_builtins(operations)).apply(document, in_place=True)
    return _pod.decode(msgspec.json.encode(patched))


def _unfulfilled(sample: Sample, service: Service, found: Finding) -> RewriteFailure:
    said = found.message.removeprefix(f"service {service.name}: ")
    kind = f"{found.code} {found.field}"
    if sample.is_plain:
        remedy = "fix these rules, which contradict each other: no Pod can satisfy them"
        return RewriteFailure(
            kind, f"{sample.name}, which sets none of these fields, cannot satisfy it: {found.code}: {said}", remedy
        )
    return RewriteFailure(kind, f"{sample.name} does not satisfy it after a rewrite: {found.code}: {said}", _DEFECT)
