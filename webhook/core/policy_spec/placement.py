"""The stanza `placement`: where a service's Pods may go."""

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
from webhook.core.policy_spec.field_types import Choice, NonEmpty


class OnConflict(Choice):
    DENY = "Deny"
    KEEP = "Keep"
    OVERRIDE = "Override"


class Level(Choice):
    REGION = "Region"
    ZONE = "Zone"


MOST_ENTRIES = 100
"""Limit of lists that each review compares, entry by entry, with the Pod's own, which may be long."""
_Few = Meta(extra_json_schema={"maxItems": MOST_ENTRIES})
_FewKeys = Meta(extra_json_schema={"propertyNames": {"format": "pod-metadata-key"}, "maxProperties": MOST_ENTRIES})
_ShortText = Meta(extra_json_schema={"maxLength": 1024})
_ClassName = Annotated[str, format_of("dns-subdomain")]

LEVEL_LABELS = {Level.REGION: "topology.kubernetes.io/region", Level.ZONE: "topology.kubernetes.io/zone"}


class TopologyEntry(Struct, frozen=True, rename="camel"):
    """Exactly one of `level` and `key`; required unless it has a `preferredWeight`."""

    values: Annotated[tuple[LabelValue, ...], NonEmpty] = field(name="in")
    level: Level | None = None
    key: LabelKey | None = None
    preferred_weight: Weight | None = None

    @property
    def label(self) -> str:
        """The node label of this entry."""
        return LEVEL_LABELS[self.level] if self.level is not None else self.key or ""


class LabelSource(Struct, frozen=True, rename="camel"):
    """A label of the Pod or of its Namespace, exactly one; without this label nothing is set."""

    from_pod: LabelKey | None = None
    from_namespace: LabelKey | None = None


PodLabels = Annotated[dict[str, LabelValue | LabelSource], _FewKeys]
PodAnnotations = Annotated[dict[str, Annotated[str, _ShortText] | LabelSource], _FewKeys]


class Allowed(Struct, frozen=True, rename="camel"):
    """What a Pod may set by itself, besides what the policy sets: an absent list is no limit, an empty one forbids."""

    tolerations: Annotated[tuple[Toleration, ...], _Few] | None = None
    node_selector_keys: tuple[LabelKey, ...] | None = None
    priority_class_names: tuple[_ClassName, ...] | None = None
    scheduler_names: tuple[_ClassName, ...] | None = None
    runtime_class_names: tuple[_ClassName, ...] | None = None


class ConflictRules(Struct, frozen=True, rename="camel"):
    default: OnConflict = OnConflict.DENY
    labels: OnConflict | None = None
    annotations: OnConflict | None = None
    scheduler_name: OnConflict | None = None
    node_selector: OnConflict | None = None
    topology_spread_constraints: OnConflict | None = None
    priority_class_name: OnConflict | None = None
    runtime_class_name: OnConflict | None = None


class IfAbsent(Choice):
    """A field that is written only into Pods that have none of their own; what they have is left as it is."""

    TOPOLOGY_SPREAD_CONSTRAINTS = "topologySpreadConstraints"
    POD_ANTI_AFFINITY = "podAntiAffinity"


class Placement(Struct, frozen=True, rename="camel"):
    labels: PodLabels = {}
    annotations: PodAnnotations = {}
    scheduler_name: _ClassName | None = None
    node_selector: Labels = {}
    topology: tuple[TopologyEntry, ...] = ()
    affinity: Affinity = Affinity()
    topology_spread_constraints: Annotated[tuple[TopologySpreadConstraint, ...], _Few] = ()
    tolerations: Annotated[tuple[Toleration, ...], _Few] = ()
    priority_class_name: _ClassName | None = None
    runtime_class_name: _ClassName | None = None
    allow: Allowed = Allowed()
    allow_node_name: bool = False
    on_conflict: ConflictRules = ConflictRules()
    if_absent: tuple[IfAbsent, ...] = ()
