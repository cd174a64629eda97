"""Reinvocation: the mutating half is called again for a Pod that other webhooks have changed since its first call.

What the first call wrote from fields that have changed is outdated. It is removed, and the rewrite writes it anew. The
API server calls again once: what is outdated later is denied, and its user cannot change it.
"""

from collections.abc import Iterable
from itertools import pairwise

from msgspec import Raw
from msgspec.structs import replace

from webhook.core import container_resources, placement
from webhook.core.admission import slots
from webhook.core.admission.decision import Finding
from webhook.core.admission.mutation import DISOWN, apply_patch, is_written_before, predict_qos_class
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.kubernetes.pod import Pod
from webhook.core.kubernetes.sent_fields import is_sent
from webhook.core.patch import Patch, PatchOperation, add, parse_pointer
from webhook.core.placement import VARIANT_LABEL
from webhook.core.policy.model import Match, Service
from webhook.core.policy_fields import Mode, Placement

_KEYED = frozenset({"labels", "annotations", "nodeSelector", "limits"})
_NO_SERVICE = Service("", Match())
_NO_PLACEMENT = placement.PlacementPlan.from_placement("", Placement())
_CAUSE = (
    "the Pod's creator did not send this: another webhook or a plugin did, or Podgate before another webhook changed"
    " the Pod; such webhooks must be called before podgate"
)

_FOREIGN_CAUSE = (
    "the Pod's creator did not send this: a webhook that is called before podgate did, or a plugin of the API server,"
    " as by a LimitRange"
)
FOREIGN_ANNOTATION = "podgate.io/foreign-values"
"""Of a new Pod that had such values before the first call: nothing of it is outdated."""
_MARK = add("true", "metadata", "annotations", FOREIGN_ANNOTATION)
_NOTHING_SENT = Raw(b'[{"fieldsV1":{"f:spec":{"f:containers":{}}}}]')


def find_former(pod: Pod, compiled: CompiledPolicy) -> Service | None:
    """Return the service that a new Pod carries the label of, as it is for the variant that the Pod carries."""
    former = compiled.find_by_label(pod)
    return former and former.variants.get(pod.labels.get(VARIANT_LABEL, ""), former)


def remove_outdated(pod: Pod, service: Service, former: Service) -> list[PatchOperation]:
    """Return the operations that remove what an earlier call wrote for the service `former`, if it is outdated.

    All is outdated that the service does not ask for, if it is another one. The hash of a policy that the Pod's creator
    sent is no sign of an earlier call. ValueError: an unreadable quantity.
    """
    if not is_written_before(pod) or (former.name == service.name and _is_marked(pod)):
        return []
    return _list_outdated(pod, service, former)


def _list_outdated(pod: Pod, service: Service, former: Service) -> list[PatchOperation]:
    found = _remove_former(pod, former) if former.name != service.name else []
    left = apply_patch(pod, found)
    if service.modes.resources is Mode.ENFORCE and service.range_plan is not None:
        found += container_resources.remove_outdated_limits(left, service.range_plan.later)
    plan, former_plan = _find_plan(service), _find_plan(former)
    if plan is not _NO_PLACEMENT or former_plan is not _NO_PLACEMENT:
        qos = predict_qos_class(apply_patch(pod, found), service)
        found += placement.remove_outdated(left, plan, former_plan, qos)
    return found


def _remove_former(pod: Pod, former: Service) -> list[PatchOperation]:
    """Return the operations that remove amounts and slot that were written for the service that the Pod has left."""
    found = slots.remove_slot(pod)
    if former.modes.resources is Mode.ENFORCE and former.range_plan is not None:
        found += container_resources.remove_written_amounts(pod, former.range_plan)
    return found


def _find_plan(service: Service) -> placement.PlacementPlan:
    plan = service.placement_plan if service.modes.placement is Mode.ENFORCE else None
    return plan or _NO_PLACEMENT


def disown(pod: Pod, former: Service) -> Patch:
    """Return the patch of a Pod of no service that carries the label of `former`: the label would later count.

    ValueError: an unreadable quantity.
    """
    outdated = remove_outdated(pod, _NO_SERVICE, former)
    return Patch([*outdated, *DISOWN]) if outdated else DISOWN


def may_have_foreign(pod: Pod, service: Service) -> bool:
    """Return whether a new Pod has values that another call would take for Podgate's, whoever sent them.

    ValueError: an unreadable quantity.
    """
    unsent = replace(pod, metadata=replace(pod.metadata, managed_fields=_NOTHING_SENT))
    return bool(_list_outdated(unsent, service, service))


def mark_foreign(pod: Pod, service: Service, patch: Patch) -> Patch:
    """Return the patch of the first call, with a mark if another call would take values for Podgate's that are not.

    An earlier webhook or a plugin wrote them. ValueError: an unreadable quantity.
    """
    once = apply_patch(pod, patch)
    if FOREIGN_ANNOTATION in pod.annotations or not is_written_before(once):
        return patch
    return patch.extend([_MARK]) if _list_outdated(once, service, service) else patch


def _is_marked(pod: Pod) -> bool:
    path = ("metadata", "annotations", FOREIGN_ANNOTATION)
    return FOREIGN_ANNOTATION in pod.annotations and not is_sent(pod.metadata, *path)


def explain_outdated(findings: tuple[Finding, ...], pod: Pod, service: Service) -> tuple[Finding, ...]:
    """Return the findings about a new Pod, with the cause of those about outdated values.

    ValueError: an unreadable quantity.
    """
    outdated = _list_outdated(pod, service, service) if is_written_before(pod) else ()
    fields = [_format_field(operation.path) for operation in outdated]
    if not fields:
        return findings
    cause = _FOREIGN_CAUSE if _is_marked(pod) else _CAUSE
    return tuple(
        replace(finding, message=f"{finding.message}; {cause}") if _is_about(finding, fields) else finding
        for finding in findings
    )


def _is_about(finding: Finding, fields: Iterable[str]) -> bool:
    return any(finding.field == field or field.startswith(f"{finding.field}[") for field in fields)


def _format_field(path: str) -> str:
    tokens = parse_pointer(path)
    named = (f"[{token}]" if token.isdecimal() or of in _KEYED else f".{token}" for of, token in pairwise(tokens))
    return "".join((tokens[0], *named))
