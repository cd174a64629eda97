"""The mutating half's patch: what a Pod lacks of its service's policy, added once and never again."""

from collections.abc import Sequence

import msgspec

from webhook.core import container_resources, placement
from webhook.core.kubernetes.pod import Pod
from webhook.core.patch import PatchOperation, apply, remove, set_keys
from webhook.core.placement import SERVICE_LABEL
from webhook.core.policy.model import Service
from webhook.core.policy_spec import Mode

HASH_ANNOTATION = "podgate.io/policy-hash"
_pod = msgspec.json.Decoder(Pod)
_encoder = msgspec.json.Encoder()
DISOWN = (remove("metadata", "labels", SERVICE_LABEL),)
"""Takes a service's label off a Pod that no service owns: it would pass for theirs later."""


def rewrite(pod: Pod, service: Service, policy_hash: str, *, degraded: bool = False) -> tuple[PatchOperation, ...]:
    """Return the patch that makes the Pod its service's; empty where it already is. f(f(x)) = f(x).

    `degraded`: what the placement only prefers is not looked at. ValueError: an unreadable quantity.
    """
    if service.modes.all_disabled():
        return ()
    operations = set_keys(("metadata", "labels"), pod.metadata.labels, {SERVICE_LABEL: service.name})
    operations += set_keys(("metadata", "annotations"), pod.metadata.annotations, {HASH_ANNOTATION: policy_hash})
    if service.modes.placement is Mode.ENFORCE:
        operations += placed(pod, service, degraded=degraded)
    if service.modes.resources is Mode.ENFORCE:
        operations += ranged(pod, service)
    return tuple(operations)


def placed(pod: Pod, service: Service, *, degraded: bool = False) -> list[PatchOperation]:
    """Return what gives the Pod its service's placement, whatever the mode."""
    plan = service.degraded_placement_plan if degraded else service.placement_plan
    return [] if plan is None else placement.operations(pod, plan)


def ranged(pod: Pod, service: Service) -> list[PatchOperation]:
    """Return what gives the Pod its service's resources, whatever the mode. ValueError: an unreadable quantity."""
    return [] if service.range_plan is None else container_resources.operations(pod, service.range_plan)


def patched(pod: Pod, operations: Sequence[PatchOperation]) -> Pod:
    """Return the Pod that the operations make of it."""
    if not operations:
        return pod
    document = msgspec.json.decode(_encoder.encode(pod))
    apply(operations, document)
    return _pod.decode(_encoder.encode(document))


def qos_change(pod: Pod, service: Service) -> tuple[str, str] | None:
    """Return the QoS class before and after the rewrite, None where it stays: who is evicted first goes by it."""
    plan = service.range_plan
    return (
        None
        if plan is None or service.modes.resources is not Mode.ENFORCE
        else container_resources.qos_change(pod, plan)
    )
