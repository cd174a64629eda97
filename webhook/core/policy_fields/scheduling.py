"""The stanza `scheduling` of a service: the load above which the extender refuses a node, and scores of the others."""

from typing import Annotated

from msgspec import Meta, Struct, field

from webhook.core.kubernetes.quantity import Duration, Number
from webhook.core.kubernetes.types import LabelKey, LabelSelector
from webhook.core.policy_fields.field_types import Choice, NonEmpty, default_duration, default_number

Ratio = Annotated[Number, Meta(extra_json_schema={"minimum": 0.01, "maximum": 1})]
CombinedRatio = Annotated[Number, Meta(extra_json_schema={"minimum": 0.01, "maximum": 2})]
ScoreWeight = Annotated[Number, Meta(extra_json_schema={"minimum": -1, "maximum": 1})]
EstimateFactor = Annotated[Number, Meta(extra_json_schema={"minimum": 0, "maximum": 10})]


class Numa(Choice):
    REQUIRED = "Required"
    IGNORED = "Ignored"


class NearLevel(Choice):
    RACK = "Rack"
    ZONE = "Zone"
    REGION = "Region"


class WhenUnknown(Choice):
    ADMIT = "Admit"
    REFUSE = "Refuse"


NEAR_LABELS = {
    NearLevel.RACK: "topology.kubernetes.io/rack",
    NearLevel.ZONE: "topology.kubernetes.io/zone",
    NearLevel.REGION: "topology.kubernetes.io/region",
}
"""Node labels of the levels. Kubernetes defines none for racks: `near.rackLabel` names another one."""


class Hot(Struct, frozen=True, rename="camel"):
    """Shares of the allocatable amount above which a node is refused; `combined` limits the sum of both shares.

    With `ownDemand` the Pod's own estimate counts too, up to half of a threshold: a node below that takes any Pod.
    """

    cpu: Ratio | None = None
    memory: Ratio | None = None
    combined: CombinedRatio | None = None
    own_demand: bool = True


class Pressure(Struct, frozen=True):
    """Shares of time for which tasks waited (cpu) or stood still (memory, io), above which a node is refused."""

    cpu: Ratio | None = None
    memory: Ratio | None = None
    io: Ratio | None = None


class ScoreWeights(Struct, frozen=True):
    """Weights of free cpu, free memory, latency, nearness and risk, each from 0 to 1."""

    cpu: ScoreWeight = default_number(0.4)
    memory: ScoreWeight = default_number(0.3)
    latency: ScoreWeight = default_number(-0.2)
    topology: ScoreWeight = default_number(0.3)
    risk: ScoreWeight = default_number(0)


class Risk(Struct, frozen=True):
    """Risk of a node: half of its used share and of `margin` times its deviation to the power of 1 by `sensitivity`."""

    margin: Annotated[Number, Meta(extra_json_schema={"minimum": 0, "maximum": 10})] = default_number(1)
    sensitivity: Annotated[Number, Meta(extra_json_schema={"minimum": 0.1, "maximum": 10})] = default_number(1)


class Near(Struct, frozen=True, rename="camel"):
    """Pods to be near, in the Pod's own namespace, and the topology levels that count, nearest first."""

    to: LabelSelector
    levels: Annotated[tuple[NearLevel, ...], NonEmpty] = (NearLevel.RACK, NearLevel.ZONE, NearLevel.REGION)
    rack_label: LabelKey = NEAR_LABELS[NearLevel.RACK]


class Estimate(Struct, frozen=True):
    """Expected load of a Pod that is not measured yet: a factor of the larger of its request and limit.

    The whole estimate counts until `settle` after the assignment; then it fades as the node's average includes the Pod.
    """

    cpu: EstimateFactor = default_number(0.85)
    memory: EstimateFactor = default_number(0.7)
    settle: Duration = default_duration("60s")


class Scheduling(Struct, frozen=True, rename="camel"):
    hot: Hot = Hot()
    pressure: Pressure = Pressure()
    numa: Numa = Numa.IGNORED
    score: ScoreWeights = field(default_factory=ScoreWeights)
    risk: Risk = field(default_factory=Risk)
    near: Near | None = None
    estimate: Estimate = field(default_factory=Estimate)
    when_unknown: WhenUnknown = WhenUnknown.ADMIT
