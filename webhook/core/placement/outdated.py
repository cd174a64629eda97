"""Outdated values: what an earlier call of the same admission wrote into a new Pod, and the policy no longer asks for.

Between the calls another webhook may have changed the labels that values are read from, the Pod's QoS class, or the
service that owns it. No field says whether Podgate or another webhook wrote it. So a value counts as Podgate's if an
earlier call may have written it, and its creator did not send it. Where managedFields do not show single values, it
also does if the Pod has come to another service or class, and would be denied for it.
"""

from collections.abc import Iterable, Iterator

from webhook.core.kubernetes.pod import Pod
from webhook.core.kubernetes.sent_fields import SentFields
from webhook.core.kubernetes.types import Toleration
from webhook.core.patch import PatchOperation, remove
from webhook.core.placement import allowed, outdated_terms, pod_metadata, scalar_fields, tolerations
from webhook.core.placement.plan import PlacementPlan
from webhook.core.placement.toleration_match import covers, find_overlap, shortens
from webhook.core.policy_fields import LabelSource, OnConflict, QosClass


def remove_outdated(
    pod: Pod, plan: PlacementPlan, former: PlacementPlan, qos: QosClass | None = None
) -> list[PatchOperation]:
    """Return the operations that remove the outdated values from a new Pod that an earlier call has rewritten.

    `former`: the plan of that call. `qos`: the Pod's class after its rewrite, if a class decides its placement.
    """
    sent = SentFields(pod.metadata)
    return [
        *_remove_metadata(pod, plan, former, sent, "labels"),
        *_remove_metadata(pod, plan, former, sent, "annotations"),
        *_remove_scalars(pod, plan, former, sent),
        *_remove_node_labels(pod, plan, former, sent),
        *_remove_tolerations(pod, plan, former, sent, qos),
        *(() if former is plan else outdated_terms.remove_terms(pod, plan, former, sent)),
    ]


def _remove_metadata(
    pod: Pod, plan: PlacementPlan, former: PlacementPlan, sent: SentFields, kind: str
) -> Iterator[PatchOperation]:
    both: list[pod_metadata.Values] = [getattr(each, kind) for each in (plan, former)]
    wanted, own = pod_metadata.resolve_values(both[0], pod.labels), getattr(pod, kind)
    may_replace = plan.find_rule(kind) is not OnConflict.KEEP
    for key in {**both[0], **both[1]}:
        has = own.get(key)
        if has is None or has == wanted.get(key):
            continue
        # What the service that the Pod has left read from a label may have been another value then.
        is_read_anew = may_replace if key in wanted else former is not plan
        may_be_ours = any(_may_have_written(values, key, has, is_read_anew=is_read_anew) for values in both)
        if may_be_ours and not sent.has("metadata", kind, key):
            yield remove("metadata", kind, key)


def _may_have_written(values: pod_metadata.Values, key: str, has: str, *, is_read_anew: bool) -> bool:
    """Return whether Podgate may have written a value: a literal, or the label as it was in the earlier call."""
    value = values.get(key)
    return is_read_anew if isinstance(value, LabelSource) else has == value


def _remove_scalars(pod: Pod, plan: PlacementPlan, former: PlacementPlan, sent: SentFields) -> Iterator[PatchOperation]:
    for name, attribute in scalar_fields.FIELDS.items():
        own, wanted = getattr(pod.spec, attribute), getattr(plan, attribute)
        if own is None or own != getattr(former, attribute) or own == wanted:
            continue
        is_conflict = wanted is not None and plan.find_rule(attribute) is OnConflict.DENY
        is_denied = is_conflict or allowed.forbids_scalar(plan, name, own)
        if is_denied or not sent.has("spec", name):
            yield remove("spec", name)
            yield from scalar_fields.remove_companions(pod, name)


def _remove_node_labels(
    pod: Pod, plan: PlacementPlan, former: PlacementPlan, sent: SentFields
) -> Iterator[PatchOperation]:
    own, wanted = pod.spec.node_selector or {}, plan.node_selector
    outdated = [key for key, value in former.node_selector.items() if own.get(key) == value != wanted.get(key)]
    if outdated and sent.has("spec", "nodeSelector"):
        is_denied, listed = plan.find_rule("node_selector") is OnConflict.DENY, plan.allow.node_selector_keys
        outdated = [
            key for key in outdated if (is_denied if key in wanted else listed is not None and key not in listed)
        ]
    for key in outdated:
        yield remove("spec", "nodeSelector", key)


def _remove_tolerations(
    pod: Pod, plan: PlacementPlan, former: PlacementPlan, sent: SentFields, qos: QosClass | None
) -> Iterator[PatchOperation]:
    written = {*_list_tolerations(plan), *_list_tolerations(former)}
    own, listed = pod.spec.tolerations or (), plan.allow.tolerations
    # Of a toleration, only the part that stands before a shorter one may have been inserted.
    parts = {find_overlap(shorter, each) for each in written for shorter in own if shortens(shorter, each)}
    kept = (*(planned.entry for planned in plan.choose_tolerations(qos)), *allowed.API_SERVER_TOLERATIONS)
    outdated = [
        index
        for index, found in enumerate(own)
        if (found in written or found in parts) and not _is_covered(found, kept)
    ]
    if outdated and sent.has("spec", "tolerations"):
        # The first call has written all of the class that the Pod had then.
        has_moved = former is not plan or tolerations.find_violations(pod, plan.adapt_to_pod(pod, qos))
        is_free = listed is None or not has_moved
        outdated = [index for index in outdated if not (is_free or _is_covered(own[index], listed or ()))]
    for index in reversed(outdated):
        yield remove("spec", "tolerations", index)


def _is_covered(own: Toleration, by: Iterable[Toleration]) -> bool:
    return any(covers(toleration, own) for toleration in by)


def _list_tolerations(plan: PlacementPlan) -> Iterator[Toleration]:
    for entries in (plan.tolerations, *plan.tolerations_by_class.values()):
        for planned in entries:
            yield planned.entry
