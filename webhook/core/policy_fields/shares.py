"""The stanza `placement.shares` of a service: how the Pods of a workload are divided over kinds of nodes."""

from typing import Annotated

from msgspec import Meta, Struct

from webhook.core.kubernetes.quantity import Duration
from webhook.core.kubernetes.types import Affinity, Labels, Toleration, format_of
from webhook.core.policy_fields.field_types import Count, default_duration, describe

VARIANTS_MAX = 16
_VariantName = Annotated[str, format_of("dns-label")]
_Weight = Annotated[int, Meta(extra_json_schema={"minimum": 1, "maximum": 1000})]
_Delay = Annotated[Duration, format_of("interval")]


class Variant(Struct, frozen=True, rename="camel"):
    """One kind of nodes. What it sets is added to the rest of the placement. Without a weight it takes no share."""

    name: _VariantName
    weight: Annotated[_Weight, describe("Its share of the Pods beyond the base, beside the other weights.")] | None = (
        None
    )
    node_selector: Annotated[Labels, describe("Labels to add to the nodeSelector of its Pods.")] = {}
    affinity: Annotated[Affinity, describe("Terms to add to its Pods.")] = Affinity()
    tolerations: Annotated[
        tuple[Toleration, ...],
        Meta(extra_json_schema={"maxItems": 100}),
        describe("Tolerations to add to its Pods."),
    ] = ()


class BaseShare(Struct, frozen=True, rename="camel"):
    """The first Pods of each workload, which are all of one variant."""

    variant: _VariantName
    pods: Count


class Shares(Struct, frozen=True, rename="camel"):
    """Division of the Pods of each ReplicaSet, StatefulSet and Job over variants, and the breaker of each variant."""

    variants: Annotated[
        tuple[Variant, ...],
        Meta(extra_json_schema={"minItems": 2, "maxItems": VARIANTS_MAX}),
        describe("Kinds of nodes. One that is not to be had is replaced by the next of the list."),
    ]
    base: BaseShare | None = None
    unschedulable_for: Annotated[
        _Delay, describe("How long a Pod may find no node before the breaker of its variant opens.")
    ] = default_duration("5m")
    open_for: Annotated[_Delay, describe("How long new Pods avoid an open variant, before some probe it.")] = (
        default_duration("10m")
    )
    probes: Annotated[
        int,
        Meta(extra_json_schema={"minimum": 1, "maximum": 100}),
        describe("How many Pods must find a node of the variant to close its breaker."),
    ] = 1
    rebalance: Annotated[
        bool,
        describe("Whether Pods that fell back, or are above a hole, are evicted one by one once variants are back."),
    ] = False
