"""The stanza `rollout` of the document: how its successor comes into force, and what takes the successor back."""

from typing import Annotated

from msgspec import Meta, Struct, field

from webhook.core.kubernetes.quantity import Duration
from webhook.core.kubernetes.types import format_of
from webhook.core.policy_fields.field_types import Choice, Count, NonEmpty, default_duration, describe

HISTORY_DEFAULT = 10
Share = Annotated[str, format_of("percent")]
Revisions = Annotated[int, Meta(extra_json_schema={"minimum": 1, "maximum": 100})]


class CanaryBy(Choice):
    """What moves to the candidate as a whole: its Pods are all judged by the same policy."""

    WORKLOAD = "Workload"
    NAMESPACE = "Namespace"
    SERVICE = "Service"


class WhenNoData(Choice):
    """Whether a step ends although too few Pods were seen to judge the candidate."""

    HOLD = "Hold"
    ADVANCE = "Advance"


class ShadowRules(Struct, frozen=True, rename={"duration": "for"}):
    """Before any step the candidate judges a sample of the live requests, without an effect."""

    duration: Duration = default_duration("10m")
    sample: Share = "10%"


class CanaryStep(Struct, frozen=True, rename={"duration": "for"}):
    """One step: `namespaces`, or a percentage of all keys. A step includes the steps before it."""

    duration: Duration = default_duration("10m")
    namespaces: Annotated[
        tuple[Annotated[str, format_of("namespace-pattern")], ...],
        describe("Names of namespaces, exact or with one * at the end or the beginning."),
    ] = ()
    percent: Annotated[int, Meta(extra_json_schema={"minimum": 1, "maximum": 100})] | None = None


class Canary(Struct, frozen=True):
    """Steps in which the candidate is in force for a growing part of the cluster."""

    steps: Annotated[tuple[CanaryStep, ...], NonEmpty]
    by: CanaryBy = CanaryBy.WORKLOAD


class PendingRules(Struct, frozen=True, rename={"duration": "for", "alert_above": "alertAbove", "min_pods": "minPods"}):
    """Pods of the candidate that are Pending longer than `grace`; Pods with a scheduling gate do not count."""

    alert_above: Share = "15%"
    above: Share = "8%"
    duration: Duration = default_duration("3m")
    min_pods: Count = 20
    grace: Duration = default_duration("60s")


class DeniedRules(
    Struct, frozen=True, rename={"duration": "for", "above_stable": "aboveStable", "min_pods": "minPods"}
):
    """Share of new Pods that the candidate denies, in percentage points above the share of the policy in force."""

    above_stable: Share = "5%"
    duration: Duration = default_duration("3m")
    min_pods: Count = 20


class StartErrorRules(
    Struct, frozen=True, rename={"duration": "for", "above_stable": "aboveStable", "min_pods": "minPods"}
):
    """Share of failed starts of the candidate's Pods, in percentage points above the share of the policy in force."""

    above_stable: Share = "10%"
    duration: Duration = default_duration("5m")
    min_pods: Count = 20


class RollbackRules(Struct, frozen=True, rename="camel"):
    """Symptoms that take a candidate back when they last as long as each says."""

    pending: PendingRules = field(default_factory=PendingRules)
    denied: DeniedRules = field(default_factory=DeniedRules)
    start_errors: StartErrorRules = field(default_factory=StartErrorRules)


class Rollout(Struct, frozen=True, rename="camel"):
    """The rollout in force governs its successor, which without `shadow` and `canary` is in force at once."""

    shadow: ShadowRules | None = None
    canary: Canary | None = None
    rollback: RollbackRules | None = None
    when_no_data: WhenNoData = WhenNoData.HOLD
    history: Revisions = HISTORY_DEFAULT

    @property
    def governs(self) -> bool:
        """Return whether a successor waits for the leader, instead of coming into force at once."""
        return self.shadow is not None or self.canary is not None


def read_share(text: str) -> float:
    """Return a share such as 8% as a number from 0 to 1."""
    return int(text.removesuffix("%")) / 100
