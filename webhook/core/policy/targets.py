"""Targets of exceptions: the Pods of one workload, or those that a selector selects in a namespace."""

from collections.abc import Mapping
from shlex import quote
from typing import Annotated, NamedTuple

from msgspec import Struct

from webhook.core.kubernetes.selector_match import selects
from webhook.core.kubernetes.types import LabelSelector, format_of
from webhook.core.policy_fields import Choice


class TargetKind(Choice):
    """Kind of a workload whose Pods Kubernetes' own controllers create."""

    DEPLOYMENT = "Deployment"
    REPLICA_SET = "ReplicaSet"
    STATEFUL_SET = "StatefulSet"
    DAEMON_SET = "DaemonSet"
    JOB = "Job"
    CRON_JOB = "CronJob"
    REPLICATION_CONTROLLER = "ReplicationController"


class TargetWorkload(Struct, frozen=True):
    """One workload. Its Pods are those that Kubernetes' own controllers create for it."""

    namespace: Annotated[str, format_of("dns-label")]
    kind: TargetKind
    name: Annotated[str, format_of("dns-subdomain")]


class TargetPods(Struct, frozen=True):
    """New Pods of a namespace with these labels, whoever writes the labels."""

    namespace: Annotated[str, format_of("dns-label")]
    selector: LabelSelector


Target = TargetWorkload | TargetPods


def format_options(target: Target) -> str:
    """Return the options of `podgate override` that name a target."""
    if isinstance(target, TargetWorkload):
        return f"--workload {target.kind.lower()}/{target.name} -n {target.namespace}"
    return f"--pods {quote(_format_selector(target.selector))} -n {target.namespace}"


def _format_selector(selector: LabelSelector) -> str:
    """Return a selector as kubectl reads it."""
    parts = [f"{key}={value}" for key, value in (selector.match_labels or {}).items()]
    for requirement in selector.match_expressions or ():
        key, values = requirement.key, ",".join(requirement.values or ())
        parts.append(
            {"In": f"{key} in ({values})", "NotIn": f"{key} notin ({values})", "Exists": key}.get(
                requirement.operator, f"!{key}"
            )
        )
    return ",".join(parts)


class ReviewedPod(NamedTuple):
    """A new Pod as targets see it: kind and name of each workload that it belongs to, and its labels."""

    namespace: str
    workloads: frozenset[tuple[str, str]]
    labels: Mapping[str, str]

    def is_in(self, target: Target) -> bool:
        """Return whether an exception for this target is about the Pod."""
        if target.namespace != self.namespace:
            return False
        if isinstance(target, TargetWorkload):
            return (target.kind.value, target.name) in self.workloads
        return selects(target.selector, self.labels)
