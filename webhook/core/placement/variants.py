"""Variants: a placement with what one variant of its shares adds."""

from itertools import product
from typing import TypeVar

from msgspec.structs import replace

from webhook.core.kubernetes.types import Affinity, NodeAffinity, NodeSelector, NodeSelectorTerm, PodAffinity
from webhook.core.placement.plan import VARIANT_LABEL
from webhook.core.policy_fields import Placement, Variant

_T = TypeVar("_T")


def merge_variant(placement: Placement, variant: Variant) -> Placement:
    """Return the placement of a variant's Pods: all that both ask for holds, and the label names the variant."""
    return replace(
        placement,
        labels={**placement.labels, VARIANT_LABEL: variant.name},
        node_selector={**placement.node_selector, **variant.node_selector},
        affinity=_merge_affinity(placement.affinity, variant.affinity),
        tolerations=(*placement.tolerations, *variant.tolerations),
        shares=None,
    )


def _merge_affinity(one: Affinity, other: Affinity) -> Affinity:
    return Affinity(
        _merge_node_affinity(one.node_affinity, other.node_affinity),
        _merge_pod_affinity(one.pod_affinity, other.pod_affinity),
        _merge_pod_affinity(one.pod_anti_affinity, other.pod_anti_affinity),
    )


def _merge_node_affinity(one: NodeAffinity | None, other: NodeAffinity | None) -> NodeAffinity | None:
    """Return both: required terms are ORed, so that each of one is joined with each of the other."""
    if one is None or other is None:
        return one or other
    terms = [found.required.node_selector_terms or () for found in (one, other) if found.required is not None]
    joined = tuple(_join_terms(parts) for parts in product(*terms)) if terms else None
    required = None if joined is None else NodeSelector(joined)
    return NodeAffinity(required, _join(one.preferred, other.preferred))


def _join_terms(parts: tuple[NodeSelectorTerm, ...]) -> NodeSelectorTerm:
    expressions = tuple(each for part in parts for each in part.match_expressions or ())
    fields = tuple(each for part in parts for each in part.match_fields or ())
    return NodeSelectorTerm(expressions or None, fields or None)


def _merge_pod_affinity(one: PodAffinity | None, other: PodAffinity | None) -> PodAffinity | None:
    if one is None or other is None:
        return one or other
    return PodAffinity(_join(one.required, other.required), _join(one.preferred, other.preferred))


def _join(one: tuple[_T, ...] | None, other: tuple[_T, ...] | None) -> tuple[_T, ...] | None:
    return (*(one or ()), *(other or ())) or None
