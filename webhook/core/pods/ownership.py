"""Ownership of a watched Pod: its service, its cost, and the time until which it counts as live.

A Pod with Podgate's label counts for the labelled service until it is gone: the label is guarded, while the tenant may
change all other labels and write ownerReferences. The label of a service that may own no Pods in the namespace is
ignored. The watch shows no user. So an unlabelled Pod that looks exempt counts only if the store knows it, and so does
a mirror Pod or one of a DaemonSet whose creator sent the label: no review may have seen it.
"""

from collections.abc import Mapping
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from webhook.core.admission.exemptions import is_exempt_namespace, is_exempt_runtime_class
from webhook.core.admission.mutation import HASH_ANNOTATION, has_queue_gate
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.kubernetes.controllers import find_claimed_owner_kind
from webhook.core.kubernetes.pod import MIRROR_ANNOTATION, Pod
from webhook.core.kubernetes.sent_fields import is_sent
from webhook.core.placement import SERVICE_LABEL
from webhook.core.policy.model import Match
from webhook.core.quota import Cost, CounterPlan, Sighting, pod_cost
from webhook.core.quota.teams import find_team

FOREVER_US = 2**63 - 1
NOT_LIVE_US = -1
_ENDED = frozenset({"Succeeded", "Failed"})


class OwnedPod(Struct, frozen=True, gc=False):
    """A Pod of a service. It is live up to `ends_at_us`, in microseconds since the Unix epoch.

    `is_sure`: the policy makes the service its owner; otherwise the store must know it. `is_labelled`: it has the
    service's label. `created_at_us` is when it was charged, at its creation or its release from a queue; 0 if the Pod
    must not be charged later.
    """

    service: str
    namespace: str
    name: str
    cost: Cost
    ends_at_us: int
    created_at_us: int
    is_sure: bool
    is_labelled: bool
    team: str = ""
    """Of its Namespace, where teams count apart."""
    live_cost: Cost | None = None
    """What it takes of the limits on live Pods, if a resize is not done: its `cost` is by its spec. None: the same."""

    @property
    def standing_cost(self) -> Cost:
        """What it takes of the limits on live Pods."""
        return self.cost if self.live_cost is None else self.live_cost

    def is_live(self, now_us: int) -> bool:
        return now_us <= self.ends_at_us

    def is_young(self, plan: CounterPlan, now_us: int) -> bool:
        """Return whether the store may still remember its charge."""
        return now_us - self.created_at_us < plan.remember_us

    def build_sighting(self, uid: str, plan: CounterPlan, now_us: int) -> Sighting:
        """Return the sighting of the Pod for the store."""
        created_at_us = self.created_at_us if self.is_young(plan, now_us) else 0
        lives = self.is_live(now_us)
        return Sighting(
            *(self.namespace, self.name, uid, self.cost, lives, created_at_us),
            is_sure=self.is_sure,
            team=self.team,
            live_cost=self.live_cost,
        )


def find_ownership(pod: Pod, compiled: CompiledPolicy, namespace_labels: Mapping[str, str]) -> OwnedPod | None:
    """Return the ownership of a Pod, None if no service owns it."""
    compiled = compiled.choose_by_hash(pod.annotations.get(HASH_ANNOTATION, ""))
    namespace = pod.metadata.namespace
    if _is_left_alone(pod, compiled):
        return None
    labels = {"kubernetes.io/metadata.name": namespace, **namespace_labels}
    service, is_labelled = compiled.find_owner_by_label(pod, namespace, labels), True
    if service is None:
        kind = find_claimed_owner_kind(pod.metadata.owner_references, pod.labels)
        service, is_labelled = compiled.matcher.find_owner(namespace, labels, pod.labels, kind), False
    if service is None:
        return None
    if is_labelled:
        is_sure = not _has_exempt_owner(pod, compiled) or not is_sent(pod.metadata, "metadata", "labels", SERVICE_LABEL)
    else:
        is_sure = not (service.match.owner_kinds or _looks_exempt(pod, compiled))
    is_gated = has_queue_gate(pod)
    cost, live_cost = _compute_costs(pod, service.name, compiled)
    return OwnedPod(
        service.name,
        namespace,
        pod.metadata.name,
        cost,
        NOT_LIVE_US if is_gated else compute_end_us(pod),
        0 if is_gated else _find_charge_us(pod, compiled.plans.get(service.name)),
        is_sure=is_sure,
        is_labelled=is_labelled,
        team=find_team(service.quota, namespace_labels),
        live_cost=live_cost,
    )


def counts_alike(first: CompiledPolicy, second: CompiledPolicy) -> bool:
    """Return whether two policies count each Pod for the same service, at the same cost and in the same scope.

    Overrides and schedules change amounts: a policy counts alike with them and without.
    """
    if first.policy.exemptions != second.policy.exemptions:
        return False
    return _list_counting(first) == _list_counting(second)


def _list_counting(compiled: CompiledPolicy) -> list[tuple[str, Match, frozenset[str], str]]:
    """Return what decides how Pods count, in the order in which services are asked whether they own a Pod."""
    return [
        (name, part.service.match, frozenset(part.counted), part.plan.counts_apart)
        for name, part in compiled.parts.items()
    ]


def _find_charge_us(pod: Pod, plan: CounterPlan | None) -> int:
    """Return when a Pod without a gate was charged: at its creation, or, if it may have waited, when scheduled."""
    created_us = parse_moment_us(pod.metadata.creation_timestamp)
    return created_us if plan is None or plan.queue is None else max(created_us, read_scheduled_us(pod))


def read_scheduled_us(pod: Pod) -> int:
    """Return when a Pod was scheduled; 0 if it does not say so."""
    for condition in pod.status.conditions or ():
        if condition.type == "PodScheduled" and condition.status == "True" and condition.last_transition_time:
            return parse_moment_us(condition.last_transition_time)
    return 0


def ignores_label(pod: Pod, found: OwnedPod | None) -> bool:
    """Return whether a Pod has a service label that is not trusted."""
    return SERVICE_LABEL in pod.labels and (found is None or not found.is_labelled)


def compute_end_us(pod: Pod) -> int:
    """Return the time until which a Pod is live, as ResourceQuota counts.

    Source: QuotaV1Pod in pkg/quota/v1/evaluator/core/pods.go of Kubernetes.
    """
    if has_ended(pod):
        return NOT_LIVE_US
    metadata = pod.metadata
    if metadata.deletion_timestamp is None or metadata.deletion_grace_period_seconds is None:
        return FOREVER_US
    return parse_moment_us(metadata.deletion_timestamp) + metadata.deletion_grace_period_seconds * 1_000_000


def has_ended(pod: Pod) -> bool:
    """Return whether all containers of a Pod have ended for good."""
    return pod.status.phase in _ENDED


def mark_ended(found: OwnedPod) -> OwnedPod:
    """Return a Pod that was deleted, or has another owner, as no longer live."""
    return replace(found, ends_at_us=NOT_LIVE_US)


def _is_left_alone(pod: Pod, compiled: CompiledPolicy) -> bool:
    """Return whether a Pod is exempt for every user: no admission can have charged it."""
    policy = compiled.policy
    return is_exempt_namespace(pod.metadata.namespace, policy) or is_exempt_runtime_class(pod, policy)


def update_known(pod: Pod, before: OwnedPod, found: OwnedPod | None, compiled: CompiledPolicy) -> OwnedPod | None:
    """Return the ownership of a Pod that was known as `before`, and is `found` now.

    A Pod that has lost its service label, while no server guarded it, still counts for its service.
    """
    if not before.is_labelled or pod.labels.get(SERVICE_LABEL) == before.service:
        return found  # its label is as it was, and the policy has changed
    if before.service not in compiled.counted:
        return found
    cost, live_cost = _compute_costs(pod, before.service, compiled)
    return replace(
        before,
        cost=cost,
        ends_at_us=NOT_LIVE_US if has_queue_gate(pod) else compute_end_us(pod),
        live_cost=live_cost,
    )


def _looks_exempt(pod: Pod, compiled: CompiledPolicy) -> bool:
    """Return whether the fields that the watch shows may be those of an exempt Pod; a tenant can write them too."""
    return bool(compiled.policy.exemptions.usernames) or _has_exempt_owner(pod, compiled)


def _has_exempt_owner(pod: Pod, compiled: CompiledPolicy) -> bool:
    """Return whether a Pod says that a kubelet or a DaemonSet, if these are exempt, has made it."""
    if MIRROR_ANNOTATION in pod.annotations:
        return True
    return (
        compiled.policy.exemptions.daemon_sets
        and find_claimed_owner_kind(pod.metadata.owner_references, pod.labels) == "DaemonSet"
    )


def _compute_costs(pod: Pod, service: str, compiled: CompiledPolicy) -> tuple[Cost, Cost | None]:
    """Return the cost of a Pod by its spec, and what it takes of the limits on live Pods if that is not the same."""
    names, plan = compiled.counted[service], compiled.plans.get(service)
    try:
        cost = pod_cost.compute_cost(pod, names)
    except ValueError:  # the API server stores no such quantity; the Pod still counts as one
        return {name: 1 for name in names if name == "pods"}, None
    try:
        live_cost = pod_cost.compute_live_cost(pod, names) if plan is not None and plan.limits_live_pods else None
    except ValueError:  # nor such a status
        live_cost = None
    return cost, None if live_cost == cost else live_cost


def parse_moment_us(text: str | None) -> int:
    """Parse a time as Kubernetes writes it; 0 if it is absent."""
    try:
        return round(datetime.fromisoformat(text or "").timestamp() * 1_000_000)
    except ValueError:
        return 0
