"""Reinvocation: the mutating half is called again for a Pod that other webhooks have changed since its first call.

What the first call wrote from fields that have changed is outdated. It is removed, and the rewrite writes it anew. The
API server calls again once: what is outdated later is denied, and its user cannot change it.
"""

from collections.abc import Iterable
from itertools import pairwise

from msgspec.structs import replace

from webhook.core import container_resources, placement
from webhook.core.admission.decision import Finding
from webhook.core.admission.mutation import HASH_ANNOTATION, apply_patch, is_hash_written, predict_qos_class
from webhook.core.kubernetes.pod import Pod
from webhook.core.patch import PatchOperation, parse_pointer
from webhook.core.policy.model import Service
from webhook.core.policy_fields import Mode

_KEYED = frozenset({"labels", "annotations", "nodeSelector", "limits"})
_CAUSE = (
    "the Pod's creator did not send this: another webhook or a plugin did, or Podgate before another webhook changed"
    " the Pod; such webhooks must be called before podgate"
)


def remove_outdated(pod: Pod, service: Service, former: Service) -> list[PatchOperation]:
    """Return the operations that remove what an earlier call wrote for the service `former`, if it is outdated.

    The hash of a policy that the Pod's creator sent is no sign of an earlier call. ValueError: an unreadable quantity.
    """
    if HASH_ANNOTATION not in pod.annotations or not is_hash_written(pod.metadata):
        return []
    found = list[PatchOperation]()
    if service.modes.resources is Mode.ENFORCE and service.range_plan is not None:
        found += container_resources.remove_outdated_limits(pod, service.range_plan.later)
    plan = service.placement_plan
    if plan is not None and service.modes.placement is Mode.ENFORCE:
        former_plan = former.placement_plan if former.modes.placement is Mode.ENFORCE else None
        qos = predict_qos_class(apply_patch(pod, found), service)
        found += placement.remove_outdated(pod, plan, former_plan or plan, qos)
    return found


def explain_outdated(findings: tuple[Finding, ...], pod: Pod, service: Service) -> tuple[Finding, ...]:
    """Return the findings about a new Pod, with the cause of those about outdated values.

    ValueError: an unreadable quantity.
    """
    fields = [_format_field(operation.path) for operation in remove_outdated(pod, service, service)]
    if not fields:
        return findings
    return tuple(
        replace(finding, message=f"{finding.message}; {_CAUSE}") if _is_about(finding, fields) else finding
        for finding in findings
    )


def _is_about(finding: Finding, fields: Iterable[str]) -> bool:
    return any(finding.field == field or field.startswith(f"{finding.field}[") for field in fields)


def _format_field(path: str) -> str:
    tokens = parse_pointer(path)
    named = (f"[{token}]" if token.isdecimal() or of in _KEYED else f".{token}" for of, token in pairwise(tokens))
    return "".join((tokens[0], *named))
