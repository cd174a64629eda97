"""Checks of the policy's services against the cluster: namespaces, Nodes, schedulers, classes, and held workloads."""

from collections.abc import Iterable, Iterator

from webhook.core.admission.exemptions import is_exempt_namespace
from webhook.core.checks.check import Observation, Section, Severity
from webhook.core.checks.facts import ClusterFacts, labels_of
from webhook.core.checks.objects import ClusterObject, PodObject
from webhook.core.kubernetes.selector_match import selects
from webhook.core.kubernetes.timestamps import parse_microseconds
from webhook.core.placement import SERVICE_LABEL, PlacementPlan
from webhook.core.policy.matching import Matcher
from webhook.core.policy.model import Policy, Service
from webhook.core.policy_fields import Mode

SECTION = Section("services and the cluster")
_UNSEEN_US = 60_000_000
"""A scheduler sets PodScheduled of a new Pod within this time, also if no Node fits."""
_HELD_US = 1_800_000_000
"""A ReplicaSet waits up to 1,000 s between attempts."""


def _list_services(facts: ClusterFacts) -> tuple[Service, ...]:
    return facts.policy.policy.services if facts.policy is not None else ()


@SECTION.check(
    "service-owns-nothing", "each service has a namespace", "policy", "namespaces", severity=Severity.WARNING
)
def service_owns_nothing(facts: ClusterFacts) -> Iterator[Observation]:
    if facts.policy is None:
        return
    matcher = Matcher(facts.policy.policy)
    for service in _list_services(facts):
        if not any(matcher.may_own(service, namespace.name, labels_of(namespace)) for namespace in facts.namespaces):
            value = "matches no existing namespace"
            yield Observation(
                f"service {service.name}", "match", value, "correct names and labels: kubectl get ns --show-labels"
            )


@SECTION.check(
    "service-selects-no-pod",
    "each podSelector selects some Pod, where there are any",
    "policy",
    "namespaces",
    "workload_pods",
    severity=Severity.WARNING,
)
def service_selects_no_pod(facts: ClusterFacts) -> Iterator[Observation]:
    for service in _list_services(facts):
        found = [namespace for namespace, owners in facts.owners.items() if service in owners]
        pods = [pod for pod in facts.workload_pods if pod.metadata.namespace in found]
        selector = service.match.pod_selector
        if selector is not None and pods and not any(selects(selector, pod.labels) for pod in pods):
            value = f"selects none of {len(pods)} Pods in {', '.join(found)}"
            remedy = f"compare kubectl get pods -n {found[0]} --show-labels"
            yield Observation(f"service {service.name}", "match.podSelector", value, remedy)


@SECTION.check(
    "namespace-exempt", "no namespace of a service is exempt", "policy", "namespaces", severity=Severity.WARNING
)
def namespace_exempt(facts: ClusterFacts) -> Iterator[Observation]:
    """Report namespaces that a service names; a service of all namespaces or of labels includes exempt ones anyway."""
    if facts.policy is None:
        return
    policy: Policy = facts.policy.policy
    for service in policy.services:
        for name in service.match.namespaces:
            if "*" not in name and is_exempt_namespace(name, policy):
                value = f"{name}: exempt, so no policy applies to its Pods"
                yield Observation(
                    f"service {service.name}", "match.namespaces", value, "remove it here, or from exemptions"
                )


@SECTION.check("priority-class-missing", "PriorityClasses exist", "policy", "priority_classes")
def priority_class_missing(facts: ClusterFacts) -> Iterator[Observation]:
    named = ((service, plan.priority_class_name) for service, plan in _list_plans(facts))
    return _find_absent_classes("PriorityClass", "pc", named, facts.priority_classes)


@SECTION.check("runtime-class-missing", "RuntimeClasses exist", "policy", "runtime_classes")
def runtime_class_missing(facts: ClusterFacts) -> Iterator[Observation]:
    named = ((service, plan.runtime_class_name) for service, plan in _list_plans(facts))
    return _find_absent_classes("RuntimeClass", "runtimeclass", named, facts.runtime_classes)


def _find_absent_classes(
    kind: str, resource: str, named: Iterable[tuple[Service, str | None]], present: Iterable[ClusterObject]
) -> Iterator[Observation]:
    names = {listed.name for listed in present}
    field = f"placement.{kind[0].lower()}{kind[1:]}Name"
    for service, name in named:
        if name and name not in names:
            fate = "all its Pods are rejected" if _is_placed(service) else "all its Pods would be rejected"
            remedy = f"create it, or correct the policy: kubectl get {resource}"
            yield _report_placement(service, field, f"{name}: no such {kind}", fate, remedy)


@SECTION.check("no-node-fits", "some Node has each service's labels", "policy", "nodes", severity=Severity.WARNING)
def no_node_fits(facts: ClusterFacts) -> Iterator[Observation]:
    for service, plan in _list_plans(facts):
        for key, value in plan.node_selector.items():
            if not any(node.labels.get(key) == value for node in facts.nodes):
                yield _report_no_node(service, f"placement.nodeSelector[{key}]", value)
        for entry in service.placement.topology if service.placement is not None else ():
            is_required = entry.preferred_weight is None
            if is_required and not any(node.labels.get(entry.label) in entry.values for node in facts.nodes):
                yield _report_no_node(service, f"placement.topology[{entry.label}]", ", ".join(entry.values))


def _report_no_node(service: Service, field: str, value: str) -> Observation:
    fate = "its Pods stay Pending" if _is_placed(service) else "its Pods would stay Pending"
    remedy = "label a Node, or correct the policy: kubectl get nodes --show-labels"
    return _report_placement(service, field, f"{value}: no Node has it", fate, remedy)


def _report_placement(service: Service, field: str, fault: str, fate: str, remedy: str) -> Observation:
    """Return a finding in the placement; a warning in a mode in which the placement is not applied."""
    mode, place = service.modes.placement, f"service {service.name}"
    if _is_placed(service):
        return Observation(place, field, f"{fault}, so {fate}", remedy)
    return Observation(
        place, field, f"{fault}, so {fate} with modes.placement Enforce, now {mode}", remedy, is_mild=True
    )


def _is_placed(service: Service) -> bool:
    return service.modes.placement is Mode.ENFORCE


@SECTION.check("scheduler-missing", "every scheduler works", "workload_pods")
def scheduler_missing(facts: ClusterFacts) -> Iterator[Observation]:
    """Report schedulers whose Pods have no PodScheduled condition, which a scheduler sets also if no Node fits.

    Pods of no service are not Podgate's concern, unless the policy writes their scheduler into Pods.
    """
    unseen: dict[str, list[PodObject]] = {}
    plans = [(service, plan) for service, plan in _list_plans(facts) if _is_placed(service)]
    policy_schedulers = {plan.scheduler_name for _, plan in plans}
    for pod in facts.workload_pods:
        if SERVICE_LABEL not in pod.labels and pod.spec.scheduler_name not in policy_schedulers:
            continue
        conditions = {condition.type for condition in pod.status.conditions or ()}
        age_us = facts.at_us - parse_microseconds(pod.metadata.creation_timestamp or "1970-01-01T00:00:00Z")
        is_waiting = pod.status.phase == "Pending" and not pod.spec.scheduling_gates and age_us > _UNSEEN_US
        if is_waiting and "PodScheduled" not in conditions:
            unseen.setdefault(pod.spec.scheduler_name, []).append(pod)
    for name, pods in unseen.items():
        named = [service.name for service, plan in plans if plan.scheduler_name == name]
        where = f", set by the policy for {', '.join(named)}" if named else ""
        first = pods[0].metadata
        value = f"{name}{where}: {len(pods)} Pods were never seen by it, such as {first.namespace}/{first.name}"
        yield Observation(
            "Pods", "spec.schedulerName", value, "start that scheduler, or correct schedulerName in the policy"
        )


@SECTION.check(
    "replicaset-held", "no ReplicaSet waits after a denial", "replica_sets", "failures", severity=Severity.WARNING
)
def replicaset_held(facts: ClusterFacts) -> Iterator[Observation]:
    """Report ReplicaSets that lack Pods and were denied by Podgate: they wait longer after each attempt."""
    held = {(replica_set.metadata.namespace, replica_set.name): replica_set for replica_set in facts.replica_sets}
    last: dict[tuple[str, str], str] = {}
    for event in facts.failures:
        key = (event.involved_object.namespace, event.involved_object.name)
        at = event.last_timestamp or event.event_time or event.metadata.creation_timestamp
        is_recent = at is not None and facts.at_us - parse_microseconds(at) < _HELD_US
        if key in held and is_recent and ".podgate.io" in event.message:
            last[key] = event.message
    for (namespace, name), message in last.items():
        found = held[namespace, name]
        if found.status.replicas < found.spec.replicas:
            value = f"{found.status.replicas} of {found.spec.replicas}: {message}"
            remedy = "once its cause is gone, wake it: it waits up to 17 minutes between attempts"
            command = f"kubectl annotate rs {name} -n {namespace} podgate.io/retry=$(date +%s) --overwrite"
            yield Observation(f"ReplicaSet {namespace}/{name}", "status.replicas", value, remedy, command)


def _list_plans(facts: ClusterFacts) -> Iterator[tuple[Service, PlacementPlan]]:
    for service in _list_services(facts):
        if service.placement_plan is not None and not service.modes.is_all_disabled():
            yield service, service.placement_plan
