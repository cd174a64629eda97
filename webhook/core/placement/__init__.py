"""Placement of a service's Pods: for each Pod field, the patch operations and the violations. One module per field."""

from webhook.core.placement.all_fields import (
    build_operations,
    compute_annotations,
    compute_labels,
    find_contradiction,
    find_replaced_scalar,
    find_update_violations,
    find_violations,
    has_requirements,
    list_namespace_keys,
    reads_field_managers,
    reduce_managers,
    resolve_namespace_labels,
)
from webhook.core.placement.outdated import remove_outdated
from webhook.core.placement.plan import SERVICE_LABEL, VARIANT_LABEL, PlacementPlan
from webhook.core.placement.variants import merge_variant

__all__ = [
    "SERVICE_LABEL",
    "VARIANT_LABEL",
    "PlacementPlan",
    "build_operations",
    "compute_annotations",
    "compute_labels",
    "find_contradiction",
    "find_replaced_scalar",
    "find_update_violations",
    "find_violations",
    "has_requirements",
    "list_namespace_keys",
    "merge_variant",
    "reads_field_managers",
    "reduce_managers",
    "remove_outdated",
    "resolve_namespace_labels",
]
