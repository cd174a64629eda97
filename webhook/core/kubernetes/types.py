"""Kubernetes API types: the fields that decisions read. Unknown fields and values are accepted.

Enumerations are plain strings to the decoder (a newer Kubernetes may add values) and strict in the policy's schema,
which reads `extra_json_schema`. Source: k8s.io/api core/v1 and meta/v1, 1.36.
"""

from typing import Annotated

from msgspec import Meta, Struct, field

from webhook.core.kubernetes.quantity import Quantity


def one_of(*values: str) -> Meta:
    """Annotate a string that must be one of `values` in a policy, and may be anything in a Pod."""
    return Meta(extra_json_schema={"enum": list(values)})


def format_of(name: str) -> Meta:
    """Annotate a string that a policy's schema checks by the named format."""
    return Meta(extra_json_schema={"format": name})


LabelKey = Annotated[str, format_of("label-key")]
LabelValue = Annotated[str, format_of("label-value")]
Labels = Annotated[dict[str, LabelValue], Meta(extra_json_schema={"propertyNames": {"format": "label-key"}})]
Namespace = Annotated[str, format_of("dns-label")]
PositiveInt32 = Annotated[int, Meta(extra_json_schema={"minimum": 1, "maximum": 2**31 - 1})]
Weight = Annotated[int, Meta(extra_json_schema={"minimum": 1, "maximum": 100})]


class Requirement(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """One label expression. Node selectors have `Gt` and `Lt` too."""

    key: LabelKey
    operator: Annotated[str, one_of("In", "NotIn", "Exists", "DoesNotExist")]
    values: tuple[LabelValue, ...] | None = None


class NodeRequirement(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    key: LabelKey
    operator: Annotated[str, one_of("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")]
    values: tuple[LabelValue, ...] | None = None


class LabelSelector(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    match_labels: Labels | None = None
    match_expressions: tuple[Requirement, ...] | None = None


class NodeSelectorTerm(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """Expressions and fields are ANDed; a term with neither matches nothing."""

    match_expressions: tuple[NodeRequirement, ...] | None = None
    match_fields: tuple[NodeRequirement, ...] | None = None


class NodeSelector(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """Terms are ORed."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] | None = None


class PreferredSchedulingTerm(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    weight: Weight
    preference: NodeSelectorTerm


class NodeAffinity(Struct, frozen=True, gc=False, omit_defaults=True):
    required: NodeSelector | None = field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: tuple[PreferredSchedulingTerm, ...] | None = field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class PodAffinityTerm(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    topology_key: LabelKey
    label_selector: LabelSelector | None = None
    namespaces: tuple[Namespace, ...] | None = None
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[LabelKey, ...] | None = None
    mismatch_label_keys: tuple[LabelKey, ...] | None = None


class WeightedPodAffinityTerm(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    weight: Weight
    pod_affinity_term: PodAffinityTerm


class PodAffinity(Struct, frozen=True, gc=False, omit_defaults=True):
    required: tuple[PodAffinityTerm, ...] | None = field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: tuple[WeightedPodAffinityTerm, ...] | None = field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    max_skew: PositiveInt32
    topology_key: LabelKey
    when_unsatisfiable: Annotated[str, one_of("DoNotSchedule", "ScheduleAnyway")]
    label_selector: LabelSelector | None = None
    min_domains: PositiveInt32 | None = None
    node_affinity_policy: Annotated[str, one_of("Honor", "Ignore")] | None = None
    node_taints_policy: Annotated[str, one_of("Honor", "Ignore")] | None = None
    match_label_keys: tuple[LabelKey, ...] | None = None


class Toleration(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """`operator` defaults to Equal; no key with Exists tolerates everything; no effect means every effect."""

    key: Annotated[str, format_of("label-key-or-empty")] = ""
    operator: Annotated[str, one_of("Equal", "Exists", "Lt", "Gt")] = "Equal"
    value: str = ""
    effect: Annotated[str, one_of("", "NoSchedule", "PreferNoSchedule", "NoExecute")] = ""
    toleration_seconds: Annotated[int, Meta(extra_json_schema={"minimum": -(2**31), "maximum": 2**31 - 1})] | None = (
        None
    )


ResourceAmounts = dict[str, Quantity]
