"""Checks of load-aware scheduling: the extender, the loads that it knows, and the kube-scheduler that asks it."""

from collections.abc import Iterator

import yaml
from msgspec.structs import asdict

from webhook.core.checks.check import Observation, Section, Severity
from webhook.core.checks.controller import check_lease
from webhook.core.checks.facts import ClusterFacts, Json
from webhook.core.checks.objects import PodObject
from webhook.core.checks.repair_command import build_install_command, build_restore_command, describe_restore
from webhook.core.document.configmap import NAMESPACE
from webhook.core.kubernetes.timestamps import format_rfc3339, parse_microseconds
from webhook.core.policy_fields.scheduling import Pressure
from webhook.core.scheduling.measured_load import REQUESTS


def _explain_unused(facts: ClusterFacts) -> str:
    if facts.scheduling_services or facts.scheduler_map is not None or facts.explain_unknown("policy_map"):
        return ""
    if any(deployment.name in {EXTENDER, SCHEDULER} for deployment in facts.deployments) or facts.extenders:
        return ""
    if _list_pods(facts, EXTENDER) or _list_pods(facts, SCHEDULER):
        return ""
    return "no service has `scheduling`, and neither an extender nor its kube-scheduler runs"


SECTION = Section("load-aware scheduling", absence=_explain_unused)
EXTENDER, SCHEDULER, WAKE = "podgate-extender", "podgate-scheduler", "podgate-wake"
_NAME_LABEL = "app.kubernetes.io/name"
_CONFIG = "apply what podgate scheduler config prints, and restart the scheduler, which reads it at its start only"
_WITH = "--with-scheduler"
_RESTART = f"kubectl rollout restart deployment/{SCHEDULER} -n {NAMESPACE}"
_ALL, _FEW_NODES = 100, 1000
_WANTED = {"nodeCacheCapable": True, "ignorable": True, "enableHTTPS": True, "preemptVerb": "preempt"}


@SECTION.check("extender-missing", "an extender runs, if the policy needs one", "policy", "deployments")
def extender_missing(facts: ClusterFacts) -> Iterator[Observation]:
    users = facts.scheduling_services
    if users and not facts.extenders and all(deployment.name != EXTENDER for deployment in facts.deployments):
        value = f"{', '.join(users)}: no extender runs, so their Pods go to hot nodes too"
        remedy, command = (
            "install the extender and its kube-scheduler (docs/scheduling.md)",
            build_install_command(facts, _WITH),
        )
        yield Observation("policy", "services[].scheduling", value, remedy, command)


@SECTION.check("extender-unreachable", "its loads can be read", "policy", severity=Severity.WARNING)
def extender_unreachable(facts: ClusterFacts) -> Iterator[Observation]:
    if facts.scheduling_services and "extenders" in facts.unread:
        remedy = "start one (podgate extender), or give --extender the URL of its decision port"
        yield Observation("extender", "GET /api/v1/nodes", facts.unread["extenders"], remedy)


@SECTION.check("extender-not-ready", "its Pods are ready", "pods")
def extender_not_ready(facts: ClusterFacts) -> Iterator[Observation]:
    for pod in _list_pods(facts, EXTENDER):
        ready = next((condition for condition in pod.status.conditions or () if condition.type == "Ready"), None)
        if ready is None or ready.status != "True":
            value = (ready and (ready.message or ready.reason)) or "not ready: kube-scheduler goes on without it"
            remedy = f"kubectl logs {pod.name} -n {NAMESPACE} shows not_ready"
            yield Observation(f"Pod {NAMESPACE}/{pod.name}", "status.conditions[Ready]", value, remedy)


@SECTION.check("loads-unknown", "it has measured most nodes", "policy", "extenders", severity=Severity.WARNING)
def loads_unknown(facts: ClusterFacts) -> Iterator[Observation]:
    nodes = None if facts.policy is None else facts.policy.policy.nodes
    if nodes is None or not any(source.requests is None for source in nodes.sources):
        return
    for name, shown in facts.extenders.items():
        unknown = [node.name for node in shown if node.load is None or node.load.source == REQUESTS or node.is_silent]
        if 2 * len(unknown) > len(shown):
            value = f"{len(unknown)} of {len(shown)} nodes have no fresh load, such as {unknown[0]}: none is refused"
            remedy = "see why in its log and podgate_extender_source_errors_total, and in podgate nodes"
            yield Observation(name, "nodes[].load", value, remedy)


@SECTION.check(
    "pressures-unknown",
    "nodes have the pressures that it limits",
    *("policy", "extenders"),
    severity=Severity.WARNING,
)
def pressures_unknown(facts: ClusterFacts) -> Iterator[Observation]:
    for name, shown in facts.extenders.items():
        loads = {node.name: node.load for node in shown if not node.is_silent}
        measured = {node: load for node, load in loads.items() if load is not None and load.source != REQUESTS}
        for pressure in _list_limited_pressures(facts):
            unknown = [node for node, load in measured.items() if getattr(load, f"{pressure}_pressure") is None]
            if 2 * len(unknown) > len(measured):
                value = f"{pressure} pressure of {len(unknown)} of {len(measured)} nodes is unknown, such as of"
                remedy = "see what kernel and exporter it needs: docs/node-load.md"
                shown_value = f"{value} {unknown[0]}: its threshold refuses none of them"
                yield Observation(name, f"nodes[].load.{pressure}_pressure", shown_value, remedy)


@SECTION.check("report-unread", "it can read all objects and values", "extenders", severity=Severity.WARNING)
def report_unread(facts: ClusterFacts) -> Iterator[Observation]:
    for name, unread in facts.extender_unread.items():
        for text in unread:
            remedy = "correct the object, or what writes it: until then its former data stays in use, if there was any"
            yield Observation(name, "unread", text, remedy)


@SECTION.check(
    "wake-missing",
    "the objects by which it wakes kube-scheduler exist",
    *("policy", "storage_classes", "wake_map"),
    severity=Severity.WARNING,
)
def wake_missing(facts: ClusterFacts) -> Iterator[Observation]:
    if facts.scheduling_services and all(storage_class.name != WAKE for storage_class in facts.storage_classes):
        value = "absent: a refused Pod waits up to five minutes after its node has cooled"
        command = build_restore_command(facts, ("scheduler/45-storageclass.yaml",))
        yield Observation(f"StorageClass {WAKE}", "metadata.name", value, describe_restore(facts), command)
    if facts.scheduling_services and facts.wake_map is None:
        value = "absent: all Pods that wait for a node are tried again when one of them fits"
        command = build_restore_command(facts, ("scheduler/44-configmap-wake.yaml",))
        yield Observation(f"ConfigMap {NAMESPACE}/{WAKE}", "metadata.name", value, describe_restore(facts), command)


@SECTION.check("scheduler-not-leading", "a replica of its kube-scheduler leads", "deployments", "leases")
def scheduler_not_leading(facts: ClusterFacts) -> Iterator[Observation]:
    if all(deployment.name != SCHEDULER for deployment in facts.deployments):
        return
    remedy = f"kubectl logs deployment/{SCHEDULER} -n {NAMESPACE}"
    absent, stale = f"Pods with schedulerName {SCHEDULER} wait", f"Pods of {SCHEDULER} wait"
    yield from check_lease(facts, SCHEDULER, absent=absent, stale=stale, remedy=remedy)


@SECTION.check("scheduler-configuration", "its configuration is safe", "scheduler_map")
def scheduler_configuration(facts: ClusterFacts) -> Iterator[Observation]:
    for index, extender in enumerate(_parse_configuration(facts).get("extenders") or ()):
        field = f"config.yaml: extenders[{index}]"
        for name, wanted in _WANTED.items():
            if extender.get(name) != wanted:
                yield Observation(_MAP, f"{field}.{name}", f"{extender.get(name)}: must be {wanted}", _CONFIG)
        if not (extender.get("tlsConfig") or {}).get("caFile"):
            value = "absent: the scheduler believes every certificate"
            yield Observation(_MAP, f"{field}.tlsConfig.caFile", value, _CONFIG)


@SECTION.check("nodes-sampled", "it asks about all nodes", "scheduler_map", "nodes", severity=Severity.WARNING)
def nodes_sampled(facts: ClusterFacts) -> Iterator[Observation]:
    configuration = _parse_configuration(facts)
    share = configuration.get("percentageOfNodesToScore")
    if configuration and share != _ALL and len(facts.nodes) <= _FEW_NODES:
        value = f"{share} with {len(facts.nodes)} nodes: a sample may hold hot nodes only; write {_ALL}"
        yield Observation(_MAP, "config.yaml: percentageOfNodesToScore", value, _CONFIG)


@SECTION.check(
    "scheduler-ca-unread",
    "it has read the newest CA of the extender",
    "scheduler_cas",
    "pods",
    severity=Severity.WARNING,
)
def scheduler_ca_unread(facts: ClusterFacts) -> Iterator[Observation]:
    if len(facts.scheduler_cas) < 2:  # noqa: PLR2004  the first one was there before the scheduler
        return
    newest_us = max(authority.not_before_us for authority in facts.scheduler_cas)
    for pod in _list_pods(facts, SCHEDULER):
        if parse_microseconds(pod.metadata.creation_timestamp or format_rfc3339(facts.at_us)) < newest_us:
            value = f"older than a CA of {format_rfc3339(newest_us)}: once it signs, the extender is no longer asked"
            remedy = "restart the scheduler"
            yield Observation(f"Pod {NAMESPACE}/{pod.name}", "metadata.creationTimestamp", value, remedy, _RESTART)


_MAP = f"ConfigMap {NAMESPACE}/{SCHEDULER}"


def _list_limited_pressures(facts: ClusterFacts) -> list[str]:
    """Return the pressures for which a service has a threshold."""
    services = () if facts.policy is None else facts.policy.policy.services
    written = [asdict(service.scheduling.pressure) for service in services if service.scheduling is not None]
    return [name for name in Pressure.__struct_fields__ if any(limits[name] is not None for limits in written)]


def _list_pods(facts: ClusterFacts, name: str) -> list[PodObject]:
    return [
        pod for pod in facts.pods if pod.labels.get(_NAME_LABEL) == name and pod.metadata.deletion_timestamp is None
    ]


def _parse_configuration(facts: ClusterFacts) -> Json:
    """Return the scheduler's configuration; empty if there is none, or it is no YAML."""
    data = {} if facts.scheduler_map is None else facts.scheduler_map.data or {}
    try:
        found = yaml.safe_load(data.get("config.yaml", ""))
    except (yaml.YAMLError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
