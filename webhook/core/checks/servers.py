"""Checks of servers: reachable, ready, available, and not alone."""

import re
from collections.abc import Iterator

from webhook.core.checks.check import Observation, Section, Severity
from webhook.core.checks.facts import ClusterFacts, Json
from webhook.core.checks.network_policies import list_open_rules, list_selecting
from webhook.core.checks.objects import PodObject, ReplicasObject
from webhook.core.checks.repair_callers import describe_caller_restriction, repair_open_rule
from webhook.core.checks.repair_command import RENDERED, build_install_command, build_render_command, describe_restore
from webhook.core.checks.repair_installation import find_address, find_argument, find_deployment, is_at_target
from webhook.core.checks.webhooks import webhooks_of
from webhook.core.document.configmap import NAMESPACE
from webhook.core.kubernetes.selector_match import selects


def _explain_missing_deployment(facts: ClusterFacts) -> str:
    return "" if facts.deployments else f"there is no Deployment in {NAMESPACE}"


def _explain_missing_pod(facts: ClusterFacts) -> str:
    return "" if facts.pods else f"there is no Pod in {NAMESPACE}"


def _explain_missing_budget(facts: ClusterFacts) -> str:
    return "" if facts.budgets else f"there is no PodDisruptionBudget in {NAMESPACE}"


SECTION = Section("servers")
_SERVER, _CONTAINER = "podgate", "podgate"
_REPLICATED = (_SERVER, "podgate-extender", "podgate-scheduler")
_NAME_LABEL = "app.kubernetes.io/name"
_WAITING = {"CrashLoopBackOff", "ImagePullBackOff", "ErrImagePull", "CreateContainerConfigError", "InvalidImageName"}
_VERSION_MIN = (1, 30)
_ADMISSION_PORT = 8443
_PODS = f"kubectl get pods -n {NAMESPACE}"


@SECTION.check("kubernetes-version", "Kubernetes is 1.30 or newer", "kubernetes")
def kubernetes_version(facts: ClusterFacts) -> Iterator[Observation]:
    found = re.match(r"v(\d+)\.(\d+)", facts.kubernetes)
    if found is not None and (int(found[1]), int(found[2])) < _VERSION_MIN:
        yield Observation("API server", "gitVersion", facts.kubernetes, "upgrade: older ones have no matchConditions")


@SECTION.check("server-unreachable", "a server's status can be read", severity=Severity.WARNING)
def server_unreachable(facts: ClusterFacts) -> Iterator[Observation]:
    if "status" in facts.unread:
        remedy = "start a server (podgate serve), or give --server the URL of its plain port (--plain-listen)"
        yield Observation("server", "GET /status", facts.unread["status"], remedy)


@SECTION.check("server-not-ready", "it is ready", "status")
def server_not_ready(facts: ClusterFacts) -> Iterator[Observation]:
    for reason in facts.status.get("notReady", ()):
        yield Observation(facts.server, "status.notReady", reason, "remove the reason: calls fail until then")


@SECTION.check("server-version", "it has the version of this command", "status", severity=Severity.WARNING)
def server_version(facts: ClusterFacts) -> Iterator[Observation]:
    version = facts.status["version"]
    if version != facts.version:
        remedy = "use the command of the servers' version: its webhooks and checks are made for it"
        yield Observation(facts.server, "status.version", f"{version}, this command is {facts.version}", remedy)


@SECTION.check("watch-fails", "its watches work", "status")
def watch_fails(facts: ClusterFacts) -> Iterator[Observation]:
    for watch in facts.status["watches"]:
        if watch["error"]:
            field = f"status.watches[{watch['resource']}].error"
            remedy = "right-missing has the rights that are not granted; else see the error"
            yield Observation(facts.server, field, watch["error"], remedy)


@SECTION.check("file-rejected", "its files are valid", "status", severity=Severity.WARNING)
def file_rejected(facts: ClusterFacts) -> Iterator[Observation]:
    for file in facts.status["files"]:
        if file["error"]:
            remedy = "correct it: the last valid content is in use, and the next start fails"
            yield Observation(facts.server, f"status.files[{file['name']}].error", file["error"], remedy)


@SECTION.check(
    "reduced-unprotected",
    "it authenticates callers, or a NetworkPolicy restricts them",
    "status",
    "network_policies",
    severity=Severity.WARNING,
)
def reduced_unprotected(facts: ClusterFacts) -> Iterator[Observation]:
    if facts.status["clientIdentity"] != "reduced":
        return
    server = find_deployment(facts, _SERVER)
    labels = None if server is None else server.spec.template.metadata.labels
    selecting = list_selecting(facts.network_policies, labels or {_NAME_LABEL: _SERVER})
    if find_address(facts)[0] or not selecting:
        value = "reduced: every client that knows the path can call, and no NetworkPolicy selects the servers"
        yield Observation(facts.server, "status.clientIdentity", value, describe_caller_restriction(facts))
        return
    _, _, port = find_argument(facts, "--listen").rpartition(":")
    for rule in list_open_rules(selecting, int(port) if port.isdecimal() else _ADMISSION_PORT):
        place, field = f"NetworkPolicy {NAMESPACE}/{rule.policy.name}", f"spec.ingress[{rule.number}].from"
        remedy, command = repair_open_rule(facts, rule, is_alone=len(selecting) == 1)
        yield Observation(place, field, rule.reason, remedy, command)


@SECTION.check("deployment-missing", "the Deployment exists", "deployments", "services", "webhooks")
def deployment_missing(facts: ClusterFacts) -> Iterator[Observation]:
    """Not needed for a server outside the cluster: the webhooks have a URL, or a Service without a selector."""
    named = {_service_of(webhook) for _, webhook in webhooks_of(facts)}
    for service in facts.services:
        selector = service.spec.selector
        templates = [deployment.spec.template.metadata.labels or {} for deployment in facts.deployments]
        if service.name in named and selector and not any(selector.items() <= labels.items() for labels in templates):
            value = f"no Deployment's Pods have {dict(selector)}"
            called = [webhook for _, webhook in webhooks_of(facts) if _service_of(webhook) == service.name]
            is_right = all(is_at_target(facts, webhook) for webhook in called)
            remedy, command = (
                (describe_restore(facts), build_install_command(facts))
                if is_right
                else (RENDERED, build_render_command(facts))
            )
            yield Observation(f"Service {NAMESPACE}/{service.name}", "spec.selector", value, remedy, command)


@SECTION.check(
    "deployment-unavailable", "Deployments are available", "deployments", absence=_explain_missing_deployment
)
def deployment_unavailable(facts: ClusterFacts) -> Iterator[Observation]:
    for deployment in facts.deployments:
        if deployment.status.available_replicas < deployment.spec.replicas:
            value = f"{deployment.status.available_replicas} of {deployment.spec.replicas}"
            yield Observation(
                _format_place(deployment),
                "status.availableReplicas",
                value,
                f"kubectl describe deployment {deployment.name} -n {NAMESPACE}",
            )


@SECTION.check("pods-crash", "no container waits or restarts again and again", "pods", absence=_explain_missing_pod)
def pods_crash(facts: ClusterFacts) -> Iterator[Observation]:
    for pod in facts.pods:
        for container in pod.status.container_statuses or ():
            waiting = (container.state or {}).get("waiting") or {}
            if waiting.get("reason") in _WAITING:
                value = f"{waiting['reason']}, {container.restart_count} restarts"
                remedy = f"kubectl describe pod {pod.name} -n {NAMESPACE}"  # without an earlier run there is no log
                if container.restart_count:
                    remedy = f"kubectl logs -n {NAMESPACE} {pod.name} -c {container.name} --previous"
                yield Observation(f"Pod {NAMESPACE}/{pod.name}", f"containerStatuses[{container.name}]", value, remedy)


@SECTION.check(
    "replicas-in-memory",
    "servers with counters in memory run alone",
    "deployments",
    absence=_explain_missing_deployment,
)
def replicas_in_memory(facts: ClusterFacts) -> Iterator[Observation]:
    for deployment in _list_servers(facts):
        if deployment.spec.replicas > 1 and not _has_redis(deployment):
            value = f"{deployment.spec.replicas} with --store=memory: only one can count, the others exit"
            command = f"kubectl scale deployment/{deployment.name} -n {NAMESPACE} --replicas=1"
            yield Observation(
                _format_place(deployment), "spec.replicas", value, "run one, or share a Redis (docs/redis.md)", command
            )


@SECTION.check(
    "single-replica",
    "servers on Redis and extenders have a second replica",
    "deployments",
    severity=Severity.WARNING,
    absence=_explain_missing_deployment,
)
def single_replica(facts: ClusterFacts) -> Iterator[Observation]:
    for deployment in _list_replicated(facts):
        if deployment.spec.replicas < 2 and (_has_redis(deployment) or _read_app(deployment) != _SERVER):  # noqa: PLR2004  one may be away
            command = f"kubectl scale deployment/{deployment.name} -n {NAMESPACE} --replicas=2"
            yield Observation(
                _format_place(deployment), "spec.replicas", str(deployment.spec.replicas), "run a second one", command
            )


@SECTION.check(
    "budget-missing",
    "replicas have a PodDisruptionBudget",
    "deployments",
    "budgets",
    severity=Severity.WARNING,
    absence=_explain_missing_deployment,
)
def budget_missing(facts: ClusterFacts) -> Iterator[Observation]:
    for deployment in _list_replicated(facts):
        labels = deployment.spec.template.metadata.labels or {}
        if deployment.spec.replicas > 1 and not any(selects(budget.spec.selector, labels) for budget in facts.budgets):
            selector = ",".join(f"{name}={value}" for name, value in sorted(labels.items()))
            command = f"kubectl create pdb {deployment.name} -n {NAMESPACE} --max-unavailable=1 --selector={selector}"
            yield Observation(
                _format_place(deployment), "PodDisruptionBudget", "none selects its Pods", "create one", command
            )


@SECTION.check(
    "budget-blocks",
    "PodDisruptionBudgets permit a drain",
    "budgets",
    severity=Severity.WARNING,
    absence=_explain_missing_budget,
)
def budget_blocks(facts: ClusterFacts) -> Iterator[Observation]:
    for budget in facts.budgets:
        status = budget.status
        if status.expected_pods and status.current_healthy >= status.expected_pods and not status.disruptions_allowed:
            value = f"0 with {status.current_healthy} of {status.expected_pods} Pods healthy: no Node can be drained"
            patch = '{"spec":{"minAvailable":null,"maxUnavailable":1}}'
            command = f"kubectl patch pdb {budget.name} -n {NAMESPACE} --type=merge -p '{patch}'"
            place = f"PodDisruptionBudget {NAMESPACE}/{budget.name}"
            yield Observation(place, "status.disruptionsAllowed", value, "let one Pod be away", command)


@SECTION.check(
    "images-differ", "all servers run one image", "pods", severity=Severity.WARNING, absence=_explain_missing_pod
)
def images_differ(facts: ClusterFacts) -> Iterator[Observation]:
    images = {
        container.image
        for pod in facts.pods
        if pod.metadata.deletion_timestamp is None and _is_podgate(pod)
        for container in pod.spec.containers or ()
        if container.name == _CONTAINER
    }
    if len(images) > 1:
        remedy = f"finish the rollout: kubectl get deployments -n {NAMESPACE} -o wide shows each image"
        yield Observation(f"Pods in {NAMESPACE}", "spec.containers[podgate].image", ", ".join(sorted(images)), remedy)


def _service_of(webhook: Json) -> str:
    return str((webhook["clientConfig"].get("service") or {}).get("name", ""))


def _list_servers(facts: ClusterFacts) -> list[ReplicasObject]:
    return [deployment for deployment in facts.deployments if _read_app(deployment) == _SERVER]


def _list_replicated(facts: ClusterFacts) -> list[ReplicasObject]:
    return [deployment for deployment in facts.deployments if _read_app(deployment) in _REPLICATED]


def _read_app(deployment: ReplicasObject) -> str:
    return deployment.labels.get(_NAME_LABEL, deployment.name)


def _is_podgate(pod: PodObject) -> bool:
    return pod.labels.get(_NAME_LABEL, "").startswith("podgate")


def _has_redis(deployment: ReplicasObject) -> bool:
    return deployment.find_argument("--store") not in {"", "memory"}


def _format_place(deployment: ReplicasObject) -> str:
    return f"Deployment {NAMESPACE}/{deployment.name}"
