"""All fields of the placement together, in the order of the patch.

Each field has a module of its own in this folder.
"""

from webhook.core.findings import Violation
from webhook.core.kubernetes.pod import Pod
from webhook.core.patch import PatchOperation
from webhook.core.placement import affinity, allowed, pod_metadata, required, scalar_fields, spread, tolerations
from webhook.core.placement.plan import PlacementPlan
from webhook.core.policy_spec import QosClass

annotations_due = pod_metadata.annotations_due
contradiction = required.contradiction
in_namespace = pod_metadata.in_namespace
labels_due = pod_metadata.labels_due
namespace_keys = pod_metadata.namespace_keys
reads_field_managers = scalar_fields.reads_field_managers
recorded_managers = scalar_fields.recorded_managers
replaced_single = scalar_fields.replaced_scalar


def operations(pod: Pod, plan: PlacementPlan, qos: QosClass | None = None) -> list[PatchOperation]:
    """Return the operations that apply a service's placement to a Pod's spec; none if the Pod has it. f(f(x)) = f(x).

    Labels and annotations are separate. `qos`: the Pod's class after its rewrite, if that differs.
    """
    plan = plan.for_pod(pod, qos)
    return [
        *scalar_fields.operations(pod, plan),
        *affinity.operations(pod, plan),
        *spread.operations(pod, plan),
        *tolerations.operations(pod, plan),
    ]


def violations(pod: Pod, plan: PlacementPlan) -> list[Violation]:
    """Return the violations of the required placement by a new Pod."""
    return [*_spec_violations(pod, plan), *pod_metadata.violations(pod, plan)]


def update_violations(old: Pod, new: Pod, plan: PlacementPlan) -> list[Violation]:
    """Return what an UPDATE violates that the old Pod did not; the API server lets only a gated Pod move."""
    check = _spec_violations if old.spec.scheduling_gates else _toleration_violations
    found = check(new, plan)
    known = {violation.owed for violation in check(old, plan)} if found else set()
    return [*(violation for violation in found if violation.owed not in known), *pod_metadata.changes(old, new, plan)]


def _spec_violations(pod: Pod, plan: PlacementPlan) -> list[Violation]:
    plan = plan.for_pod(pod)
    return [
        *allowed.violations(pod, plan),
        *scalar_fields.node_name_violations(pod, plan),
        *scalar_fields.violations(pod, plan),
        *required.violations(pod, plan),
        *affinity.violations(pod, plan),
        *spread.violations(pod, plan),
        *tolerations.violations(pod, plan),
    ]


def _toleration_violations(pod: Pod, plan: PlacementPlan) -> list[Violation]:
    return [] if plan.allow.tolerations is None else allowed.toleration_violations(pod, plan.for_pod(pod))


def requires(plan: PlacementPlan) -> bool:
    """Return whether a Pod can violate more than the rule for node names: preferences alone are never checked."""
    return bool(
        plan.labels
        or plan.annotations
        or allowed.requires(plan)
        or plan.scheduler_name
        or plan.priority_class_name
        or plan.runtime_class_name
        or plan.node_selector
        or plan.required
        or plan.pod_affinity.required
        or plan.pod_anti_affinity.required
        or plan.tolerations
        or plan.tolerations_by_class
        or spread.requires(plan)
    )
