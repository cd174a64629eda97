"""Placement of a service's Pods: for each Pod field, the patch operations and the violations. One module per field.

Fields are in the order of the patch.
"""

from webhook.core.findings import Violation
from webhook.core.kubernetes.pod import Pod
from webhook.core.patch import PatchOperation
from webhook.core.placement import affinity, node_name, required, scalar_fields, spread, tolerations
from webhook.core.placement.plan import SERVICE_LABEL, PlacementPlan

__all__ = [
    "SERVICE_LABEL",
    "PlacementPlan",
    "contradiction",
    "operations",
    "reads_field_managers",
    "recorded_managers",
    "replaced_single",
    "requires",
    "violations",
]

contradiction = required.contradiction
reads_field_managers = scalar_fields.reads_field_managers
recorded_managers = scalar_fields.recorded_managers
replaced_single = scalar_fields.replaced_scalar


def operations(pod: Pod, plan: PlacementPlan) -> list[PatchOperation]:
    """Return the operations that apply a service's placement; empty if the Pod has it. f(f(x)) = f(x)."""
    return [
        *scalar_fields.operations(pod, plan),
        *affinity.operations(pod, plan),
        *spread.operations(pod, plan),
        *tolerations.operations(pod, plan),
    ]


def violations(pod: Pod, plan: PlacementPlan) -> list[Violation]:
    """Return the violations of the required placement."""
    return [
        *node_name.violations(pod, plan),
        *scalar_fields.violations(pod, plan),
        *required.violations(pod, plan),
        *affinity.violations(pod, plan),
        *spread.violations(pod, plan),
        *tolerations.violations(pod, plan),
    ]


def requires(plan: PlacementPlan) -> bool:
    """Return whether `violations` may find anything besides the name of a node: preferences alone are never checked."""
    return bool(
        plan.scheduler_name
        or plan.priority_class_name
        or plan.runtime_class_name
        or plan.node_selector
        or plan.required
        or plan.pod_affinity.required
        or plan.pod_anti_affinity.required
        or plan.tolerations
        or spread.requires(plan)
    )
