"""Reinvocation: the mutating half is called again for a Pod that other webhooks have changed since its first call.

What the first call wrote from fields that have changed is outdated. It is removed, and the rewrite writes it anew.
"""

from webhook.core import container_resources, placement
from webhook.core.admission.mutation import apply_patch, is_hash_written, predict_qos_class
from webhook.core.kubernetes.pod import Pod
from webhook.core.patch import PatchOperation
from webhook.core.policy.model import Service
from webhook.core.policy_fields import Mode


def remove_outdated(pod: Pod, service: Service, former: Service) -> list[PatchOperation]:
    """Return the operations that remove what an earlier call wrote for the service `former`, if it is outdated.

    The hash of a policy that the Pod's creator sent is no sign of an earlier call. ValueError: an unreadable quantity.
    """
    if not is_hash_written(pod.metadata):
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
