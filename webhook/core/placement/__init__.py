"""Where a service's Pods may go: for each field of a Pod, what is written and what is owed. One module a field.

The order is that of the patch.
"""

from webhook.core.findings import Violation
from webhook.core.kubernetes.pod import Pod
from webhook.core.patch import PatchOperation
from webhook.core.placement import affinity, node_name, required, scalar_fields, spread, tolerations
from webhook.core.placement.plan import SERVICE_LABEL, PlacementPlan

__all__ = ["SERVICE_LABEL", "PlacementPlan", "contradiction", "lacks", "operations", "replaced_single"]

contradiction = required.contradiction
replaced_single = scalar_fields.replaced_single


def operations(pod: Pod, plan: PlacementPlan) -> list[PatchOperation]:
    """Return what gives a Pod its service's placement; empty where it has it. f(f(x)) = f(x)."""
    return [
        *scalar_fields.operations(pod, plan),
        *affinity.operations(pod, plan),
        *spread.operations(pod, plan),
        *tolerations.operations(pod, plan),
    ]


def lacks(pod: Pod, plan: PlacementPlan) -> list[Violation]:
    """Return what a Pod owes of what is required."""
    return [
        *node_name.lacks(pod, plan),
        *scalar_fields.lacks(pod, plan),
        *required.lacks(pod, plan),
        *affinity.lacks(pod, plan),
        *spread.lacks(pod, plan),
        *tolerations.lacks(pod, plan),
    ]
