"""Placement of a service's Pods: for each Pod field, the patch operations and the violations. One module per field."""

from webhook.core.placement.all_fields import (
    annotations_due,
    contradiction,
    in_namespace,
    labels_due,
    namespace_keys,
    operations,
    reads_field_managers,
    recorded_managers,
    replaced_single,
    requires,
    update_violations,
    violations,
)
from webhook.core.placement.plan import SERVICE_LABEL, PlacementPlan

__all__ = [
    "SERVICE_LABEL",
    "PlacementPlan",
    "annotations_due",
    "contradiction",
    "in_namespace",
    "labels_due",
    "namespace_keys",
    "operations",
    "reads_field_managers",
    "recorded_managers",
    "replaced_single",
    "requires",
    "update_violations",
    "violations",
]
