"""The stanza `placement` of a service: where its Pods may go."""

from typing import Annotated

from msgspec import Meta, Struct, field

from webhook.core.kubernetes.types import (
    Affinity,
    LabelKey,
    Labels,
    LabelValue,
    Toleration,
    TopologySpreadConstraint,
    Weight,
    format_of,
)
from webhook.core.policy_fields.field_types import Choice, NonEmpty, describe
from webhook.core.policy_fields.resources import QosClass
from webhook.core.policy_fields.shares import Shares


class OnConflict(Choice):
    """Deny denies a Pod with another value; Keep leaves its value; Override writes the policy's."""

    DENY = "Deny"
    KEEP = "Keep"
    OVERRIDE = "Override"


class Level(Choice):
    """Label topology.kubernetes.io/region or /zone of nodes."""

    REGION = "Region"
    ZONE = "Zone"


LIST_ENTRIES_MAX = 100
"""Limit of lists that each review compares, entry by entry, with the Pod's own lists, which may be long."""
_Few = Meta(extra_json_schema={"maxItems": LIST_ENTRIES_MAX})
_FewKeys = Meta(extra_json_schema={"propertyNames": {"format": "pod-metadata-key"}, "maxProperties": LIST_ENTRIES_MAX})
_ShortText = Meta(extra_json_schema={"maxLength": 1024})
_ClassName = Annotated[str, format_of("dns-subdomain")]
_ClassPattern = Annotated[str, format_of("class-pattern")]

LEVEL_LABELS = {Level.REGION: "topology.kubernetes.io/region", Level.ZONE: "topology.kubernetes.io/zone"}


class TopologyEntry(Struct, frozen=True, rename="camel"):
    """A required or, with `preferredWeight`, preferred value of a node label: exactly one of `level` and `key`."""

    values: Annotated[tuple[LabelValue, ...], NonEmpty, describe("The values that a node may have.")] = field(name="in")
    level: Level | None = None
    key: Annotated[LabelKey, describe("A label of nodes, instead of `level`.")] | None = None
    preferred_weight: Annotated[Weight, describe("A preference of this weight, not a requirement.")] | None = None

    @property
    def label(self) -> str:
        """The node label of this entry."""
        return LEVEL_LABELS[self.level] if self.level is not None else self.key or ""


class LabelSource(Struct, frozen=True, rename="camel"):
    """A label to copy, from the Pod or from its Namespace. If it is absent, the value is `default`, or nothing."""

    from_pod: Annotated[LabelKey, describe("Label of the Pod whose value is copied.")] | None = None
    from_namespace: Annotated[LabelKey, describe("Label of the Pod's Namespace whose value is copied.")] | None = None
    default: Annotated[LabelValue, describe("Value where the label is absent.")] | None = None


PodLabels = Annotated[dict[str, LabelValue | LabelSource], _FewKeys]
PodAnnotations = Annotated[dict[str, Annotated[str, _ShortText] | LabelSource], _FewKeys]


class Allowed(Struct, frozen=True, rename="camel"):
    """Values that a Pod may set besides those of the policy: an absent list allows all, an empty list none.

    A name may have one * at the end or the beginning.
    """

    tolerations: (
        Annotated[tuple[Toleration, ...], _Few, describe("One of these must cover each toleration of a Pod.")] | None
    ) = None
    node_selector_keys: (
        Annotated[tuple[LabelKey, ...], describe("Labels that a Pod's nodeSelector may have, with any value.")] | None
    ) = None
    priority_class_names: (
        Annotated[tuple[_ClassPattern, ...], describe("Priority classes besides the cluster's default.")] | None
    ) = None
    scheduler_names: (
        Annotated[tuple[_ClassPattern, ...], describe("Schedulers besides the default scheduler.")] | None
    ) = None
    runtime_class_names: Annotated[tuple[_ClassPattern, ...], describe("Runtime classes, besides none.")] | None = None


class ConflictRules(Struct, frozen=True, rename="camel"):
    """Reaction to a Pod with another value than the policy's, by field."""

    default: OnConflict = OnConflict.DENY
    labels: OnConflict | None = None
    annotations: OnConflict | None = None
    scheduler_name: OnConflict | None = None
    node_selector: OnConflict | None = None
    topology_spread_constraints: OnConflict | None = None
    priority_class_name: OnConflict | None = None
    runtime_class_name: OnConflict | None = None


class IfAbsent(Choice):
    """A field that is written only into Pods without a value of their own, which is never changed."""

    TOPOLOGY_SPREAD_CONSTRAINTS = "topologySpreadConstraints"
    POD_ANTI_AFFINITY = "podAntiAffinity"


_TolerationsOfClass = Annotated[tuple[Toleration, ...], _Few, NonEmpty]


class TolerationsByQosClass(Struct, frozen=True, rename="pascal"):
    """Tolerations that Pods of one QoS class get besides `tolerations`, by the class after all defaults."""

    guaranteed: Annotated[_TolerationsOfClass, describe("Tolerations to add to Guaranteed Pods.")] | None = None
    burstable: Annotated[_TolerationsOfClass, describe("Tolerations to add to Burstable Pods.")] | None = None
    best_effort: Annotated[_TolerationsOfClass, describe("Tolerations to add to BestEffort Pods.")] | None = None

    def list_by_class(self) -> dict[QosClass, tuple[Toleration, ...]]:
        """Return the tolerations by class, without classes that have none."""
        each = zip(QosClass, (self.guaranteed, self.burstable, self.best_effort), strict=True)
        return {qos: found for qos, found in each if found}


class Placement(Struct, frozen=True, rename="camel"):
    """Fields that are written into each new Pod and checked again after all other webhooks, and values it may set."""

    labels: Annotated[PodLabels, describe("Labels to set, for other schedulers: texts, or labels to copy.")] = {}
    annotations: Annotated[PodAnnotations, describe("Annotations to set, for other schedulers, as `labels`.")] = {}
    scheduler_name: Annotated[_ClassName, describe("The scheduler to set.")] | None = None
    node_selector: Annotated[Labels, describe("Labels to add to the nodeSelector.")] = {}
    topology: Annotated[tuple[TopologyEntry, ...], describe("Nodes by region, zone or another label.")] = ()
    affinity: Annotated[Affinity, describe("Terms to add; required node terms are ANDed with the Pod's.")] = Affinity()
    topology_spread_constraints: Annotated[
        tuple[TopologySpreadConstraint, ...],
        _Few,
        describe("Constraints to add; without labelSelector they count the service's Pods."),
    ] = ()
    tolerations: Annotated[tuple[Toleration, ...], _Few, describe("Tolerations to add.")] = ()
    tolerations_by_qos_class: TolerationsByQosClass = TolerationsByQosClass()
    priority_class_name: Annotated[_ClassName, describe("The priority class to set.")] | None = None
    runtime_class_name: Annotated[_ClassName, describe("The runtime class to set.")] | None = None
    allow: Allowed = Allowed()
    allow_node_name: Annotated[bool, describe("Whether a new Pod may name its node.")] = False
    on_conflict: ConflictRules = ConflictRules()
    if_absent: Annotated[tuple[IfAbsent, ...], describe("Fields to write only into Pods without their own.")] = ()
    shares: Shares | None = None
