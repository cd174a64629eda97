"""Checks of webhook configurations: present, as the live policy renders them, and reaching the server."""

from collections.abc import Iterator

from webhook.core.checks.check import Observation, Section, Severity
from webhook.core.checks.facts import ClusterFacts, Json, labels_of
from webhook.core.checks.repair_command import RENDERED, build_render_command, build_restore_command, describe_restore
from webhook.core.checks.repair_installation import has_controller, is_at_target
from webhook.core.document import configmap
from webhook.core.kubernetes.selector_match import selects
from webhook.core.kubernetes.types import LabelSelector, Requirement
from webhook.core.webhook_configurations import NAMES, find_outdated

SECTION = Section("webhook configurations")
MUTATING, VALIDATING, POLICY = NAMES
_TIMEOUT_SECONDS_MIN, _TIMEOUT_SECONDS_MAX = 2, 10


def webhooks_of(facts: ClusterFacts) -> Iterator[tuple[str, Json]]:
    """Yield each of Podgate's live webhooks, with the name of its configuration."""
    for name, configuration in facts.webhooks.items():
        for webhook in configuration.get("webhooks") or ():
            yield str(name), webhook


@SECTION.check("webhooks-missing", "all three configurations exist", "mutating", "validating")
def webhooks_missing(facts: ClusterFacts) -> Iterator[Observation]:
    for name in NAMES:
        configuration = facts.webhooks.get(name)
        if configuration is None or not configuration.get("webhooks"):
            value = "absent" if configuration is None else "none"
            yield Observation(str(name), "webhooks", value, RENDERED, build_render_command(facts))


@SECTION.check("webhooks-stale", "they are rendered from the live policy", "webhooks", "policy")
def webhooks_stale(facts: ClusterFacts) -> Iterator[Observation]:
    if facts.rollout.get("candidate"):
        return  # the leader keeps them for both policies
    for configuration in find_outdated(facts.wanted_webhooks, facts.webhooks):
        if configuration.name in facts.webhooks:
            value = "; ".join(configuration.differences)
            remedy = f"{RENDERED}; a leader with --webhook-configurations=keep does it itself, see its log"
            yield Observation(str(configuration.name), "webhooks", value, remedy, build_render_command(facts))


@SECTION.check("webhooks-not-compared", "the leader compares them with the policy", "status", severity=Severity.WARNING)
def webhooks_not_compared(facts: ClusterFacts) -> Iterator[Observation]:
    error = (facts.status.get("webhooks") or {}).get("error")
    if error:
        files = ("base/11-rbac-webhooks.yaml", *(("redis/12-rbac-webhooks.yaml",) if has_controller(facts) else ()))
        remedy = f"grant the leader's rights: {describe_restore(facts)}"
        yield Observation(facts.server, "status.webhooks.error", error, remedy, build_restore_command(facts, files))


@SECTION.check("failure-policy", "failurePolicy is the policy's", "webhooks", "policy")
def failure_policy(facts: ClusterFacts) -> Iterator[Observation]:
    wanted = {
        (str(name), webhook["name"]): webhook["failurePolicy"]
        for name, webhooks in facts.wanted_webhooks.items()
        for webhook in webhooks
    }
    for name, webhook in webhooks_of(facts):
        right = wanted.get((name, webhook["name"]), webhook["failurePolicy"])
        if webhook["failurePolicy"] != right:
            field = f"webhooks[{webhook['name']}].failurePolicy"
            yield Observation(
                name, field, f"{webhook['failurePolicy']}, not {right}", RENDERED, build_render_command(facts)
            )


@SECTION.check(
    "namespaces-left-out",
    "they select all namespaces of services",
    "mutating",
    "validating",
    "namespaces",
    "policy",
)
def namespaces_left_out(facts: ClusterFacts) -> Iterator[Observation]:
    labels = {namespace.name: labels_of(namespace) for namespace in facts.namespaces}
    for name, prefix in ((MUTATING, "mutate"), (VALIDATING, "validate")):
        configuration = facts.webhooks.get(name)
        webhooks = configuration.get("webhooks") or () if configuration is not None else ()
        selectors = [
            selector_of(webhook, "namespaceSelector") for webhook in webhooks if webhook["name"].startswith(prefix)
        ]
        for namespace, services in facts.owners.items() if selectors else ():
            if not any(selects(selector, labels[namespace]) for selector in selectors):
                value = f"none selects {namespace}, a namespace of service {services[0].name}"
                yield Observation(
                    str(name), "webhooks[].namespaceSelector", value, RENDERED, build_render_command(facts)
                )


@SECTION.check("own-namespace-selected", "they spare podgate-system and kube-system", "webhooks")
def own_namespace_selected(facts: ClusterFacts) -> Iterator[Observation]:
    for name, webhook in webhooks_of(facts):
        for namespace in (configmap.NAMESPACE, "kube-system"):
            selected = selects(selector_of(webhook, "namespaceSelector"), {"kubernetes.io/metadata.name": namespace})
            if selected and webhook["failurePolicy"] == "Fail":
                value = f"selects {namespace} with failurePolicy Fail: no server could start after an outage"
                field = f"webhooks[{webhook['name']}].namespaceSelector"
                yield Observation(name, field, value, RENDERED, build_render_command(facts))


@SECTION.check("webhook-timeout", "timeouts suit the path of a Pod", "webhooks", severity=Severity.WARNING)
def webhook_timeout(facts: ClusterFacts) -> Iterator[Observation]:
    for name, webhook in webhooks_of(facts):
        seconds = webhook.get("timeoutSeconds", _TIMEOUT_SECONDS_MAX)
        if name != str(POLICY) and not _TIMEOUT_SECONDS_MIN <= seconds <= _TIMEOUT_SECONDS_MAX:
            value = f"{seconds}: between {_TIMEOUT_SECONDS_MIN} and {_TIMEOUT_SECONDS_MAX} is meant"
            field = f"webhooks[{webhook['name']}].timeoutSeconds"
            yield Observation(name, field, value, RENDERED, build_render_command(facts))


@SECTION.check("ca-bundle", "caBundle verifies the serving certificate", "trust", "webhooks")
def ca_bundle(facts: ClusterFacts) -> Iterator[Observation]:
    for fact in facts.trust:
        if fact.error:
            field = f"webhooks[{fact.webhook}].clientConfig.caBundle"
            remedy = f"write the CA that signed the serving certificate (docs/certificates.md): {RENDERED}"
            yield Observation(fact.object, field, fact.error, remedy, build_render_command(facts))


@SECTION.check("webhook-port", "their Service exists and has their port", "webhooks", "services")
def webhook_port(facts: ClusterFacts) -> Iterator[Observation]:
    services = {service.name: service for service in facts.services}
    seen = set[str]()
    for name, webhook in webhooks_of(facts):
        wanted = webhook["clientConfig"].get("service")
        if not wanted or wanted["namespace"] != configmap.NAMESPACE:
            continue
        found, port = services.get(wanted["name"]), wanted.get("port", 443)
        ports = [listed.port for listed in (found.spec.ports or ())] if found is not None else []
        is_served = found is not None and (found.spec.type == "ExternalName" or port in ports)
        place = f"{wanted['namespace']}/{wanted['name']}:{port}"
        if not is_served and place not in seen:
            seen.add(place)
            value = f"{place}, of which there is {f'only port {ports}' if found is not None else 'no Service'}"
            field, is_right = f"webhooks[{webhook['name']}].clientConfig.service", is_at_target(facts, webhook)
            remedy = f"bring the Service back: {describe_restore(facts)}" if is_right else RENDERED
            command = (
                build_restore_command(facts, ("base/40-service.yaml",)) if is_right else build_render_command(facts)
            )
            yield Observation(name, field, value, remedy, command)


@SECTION.check("no-endpoints", "their Service has ready endpoints", "webhooks", "services", "endpoint_slices")
def no_endpoints(facts: ClusterFacts) -> Iterator[Observation]:
    named = {(webhook["clientConfig"].get("service") or {}).get("name") for _, webhook in webhooks_of(facts)}
    for service in facts.services:
        if service.name not in named or not service.spec.selector:
            continue
        slices = [
            candidate
            for candidate in facts.endpoint_slices
            if candidate.labels.get("kubernetes.io/service-name") == service.name
        ]
        ready = sum(endpoint.conditions.ready is not False for found in slices for endpoint in found.endpoints or ())
        if not ready:
            place = f"Service {configmap.NAMESPACE}/{service.name}"
            remedy = f"kubectl get pods -n {configmap.NAMESPACE} shows why no server is ready"
            yield Observation(place, "endpoints", "none is ready: every call fails", remedy)


def name_of(configuration: Json) -> str:
    return str(configuration["metadata"]["name"])


def is_called_for_pods(webhook: Json) -> bool:
    return any(
        {"*", ""} & {*rule.get("apiGroups", ())}
        and {"*", "*/*", "pods"} & {*rule.get("resources", ())}
        and {"*", "CREATE"} & {*rule.get("operations", ())}
        for rule in webhook.get("rules") or ()
    )


def selector_of(webhook: Json, field: str) -> LabelSelector | None:
    found = webhook.get(field)
    if not found:
        return None
    expressions = tuple(
        Requirement(expression["key"], expression["operator"], tuple(expression.get("values") or ()))
        for expression in found.get("matchExpressions") or ()
    )
    return LabelSelector(match_labels=found.get("matchLabels"), match_expressions=expressions or None)
