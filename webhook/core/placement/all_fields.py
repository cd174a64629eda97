"""All fields of the placement together, in the order of the patch.

Each field has a module of its own in this folder.
"""

from webhook.core.findings import Violation
from webhook.core.kubernetes.pod import Pod
from webhook.core.patch import PatchOperation
from webhook.core.placement import affinity, allowed, pod_metadata, required, scalar_fields, spread, tolerations
from webhook.core.placement.plan import PlacementPlan
from webhook.core.policy_fields import QosClass

compute_annotations = pod_metadata.compute_annotations
find_contradiction = required.find_contradiction
resolve_namespace_labels = pod_metadata.resolve_namespace_labels
compute_labels = pod_metadata.compute_labels
list_namespace_keys = pod_metadata.list_namespace_keys
reads_field_managers = scalar_fields.reads_field_managers
reduce_managers = scalar_fields.reduce_managers
find_replaced_scalar = scalar_fields.find_replaced_scalar


def build_operations(pod: Pod, plan: PlacementPlan, qos: QosClass | None = None) -> list[PatchOperation]:
    """Return the operations that apply a service's placement to a Pod's spec; none if the Pod has it. f(f(x)) = f(x).

    Labels and annotations are separate. `qos`: the Pod's class after its rewrite, if that differs.
    """
    plan = plan.adapt_to_pod(pod, qos)
    return [
        *scalar_fields.build_operations(pod, plan),
        *affinity.build_operations(pod, plan),
        *spread.build_operations(pod, plan),
        *tolerations.build_operations(pod, plan),
    ]


def find_violations(pod: Pod, plan: PlacementPlan) -> list[Violation]:
    """Return the violations of the required placement by a new Pod."""
    return [*_find_spec_violations(pod, plan), *pod_metadata.find_violations(pod, plan)]


def find_update_violations(old: Pod, new: Pod, plan: PlacementPlan) -> list[Violation]:
    """Return what an UPDATE violates that the old Pod did not; the API server lets only a gated Pod move."""
    check = _find_spec_violations if old.spec.scheduling_gates else _find_toleration_violations
    found = check(new, plan)
    known = {violation.owed for violation in check(old, plan)} if found else set()
    return [
        *(violation for violation in found if violation.owed not in known),
        *pod_metadata.find_changes(old, new, plan),
    ]


def _find_spec_violations(pod: Pod, plan: PlacementPlan) -> list[Violation]:
    plan = plan.adapt_to_pod(pod)
    return [
        *allowed.find_violations(pod, plan),
        *scalar_fields.find_node_name_violations(pod, plan),
        *scalar_fields.find_violations(pod, plan),
        *required.find_violations(pod, plan),
        *affinity.find_violations(pod, plan),
        *spread.find_violations(pod, plan),
        *tolerations.find_violations(pod, plan),
    ]


def _find_toleration_violations(pod: Pod, plan: PlacementPlan) -> list[Violation]:
    return [] if plan.allow.tolerations is None else allowed.find_toleration_violations(pod, plan.adapt_to_pod(pod))


def has_requirements(plan: PlacementPlan) -> bool:
    """Return whether a Pod can violate more than the rule for node names: preferences alone are never checked."""
    return bool(
        plan.labels
        or plan.annotations
        or allowed.has_requirements(plan)
        or plan.scheduler_name
        or plan.priority_class_name
        or plan.runtime_class_name
        or plan.node_selector
        or plan.required
        or plan.pod_affinity.required
        or plan.pod_anti_affinity.required
        or plan.tolerations
        or plan.tolerations_by_class
        or spread.has_requirements(plan)
    )
