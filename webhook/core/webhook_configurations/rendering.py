"""Rendering of the three webhook configurations: mutating, validating (with workloads), and that of the policy."""

from collections.abc import Iterable, Iterator

from webhook.core.admission import workloads
from webhook.core.document import configmap
from webhook.core.policy.custom_workloads import list_custom_resources, list_template_fields
from webhook.core.policy.model import Policy
from webhook.core.webhook_configurations import conditions
from webhook.core.webhook_configurations.client import ClientConfig, Json
from webhook.core.webhook_configurations.namespace_regions import METADATA_NAME, NamespaceRegion, list_all_regions
from webhook.core.webhook_configurations.pod_webhooks import PodWebhook, make_pod_webhooks, name_webhooks

# The mutating call delays the user and may be skipped; the validating call may have to wait for the store.
_TIMEOUT_SECONDS = {"mutate": 3, "validate": 5, "validate-policy": 30}
_WARNING_TIMEOUT_SECONDS = 2
ALL_CALLS = "podgate.io/all-calls"
"""Annotation of configurations that leave out no call, so that the next rendering leaves out none either."""


def render_configurations(
    policy: Policy, client: ClientConfig, policy_hash: str = "", *, all_calls: bool = False
) -> tuple[Json, Json, Json]:
    """Return the mutating configuration, the validating one, and that of the policy's own ConfigMap.

    `policy_hash`, `all_calls`, TooManyEntriesError: see `pod_webhooks`.
    """
    found = make_pod_webhooks(policy, policy_hash, all_calls=all_calls)
    mutating = [_render_mutating(policy, client, webhook) for webhook in found if webhook.path == "mutate"]
    validating = [_render_validating(policy, client, webhook) for webhook in found if webhook.path == "validate"]
    annotations = {ALL_CALLS: "true"} if all_calls else {}
    return (
        _render_configuration("Mutating", "podgate", mutating, annotations),
        _render_configuration("Validating", "podgate", [*validating, *_render_warning(policy, client)], annotations),
        _render_configuration(
            "Validating", "podgate-policy", [_render_policy_webhook(client, has_parts=bool(policy.parts))], {}
        ),
    )


def _render_mutating(policy: Policy, client: ClientConfig, webhook: PodWebhook) -> Json:
    asked = (
        *conditions.render_region(webhook.region),
        *conditions.render_exemptions(policy.exemptions),
        *conditions.render_new_pods("may-be-rewritten", webhook.calls.expression),
    )
    return {
        **_render_webhook(webhook.name, client, webhook.path),
        "rules": [_render_rule(["pods"], ["CREATE"])],
        "failurePolicy": webhook.failure_policy,
        "sideEffects": "None",
        "reinvocationPolicy": "IfNeeded",
        **_render_match(webhook.region, asked),
    }


def _render_validating(policy: Policy, client: ClientConfig, webhook: PodWebhook) -> Json:
    asked = (
        *conditions.render_region(webhook.region),
        *conditions.render_exemptions(policy.exemptions),
        *conditions.render_updates(policy.services),
        *conditions.render_new_pods("may-be-refused", webhook.calls.expression),
    )
    return {
        **_render_webhook(webhook.name, client, webhook.path),
        "rules": [_render_rule(["pods"], ["CREATE", "UPDATE"]), _render_rule(["pods/resize"], ["UPDATE"])],
        "failurePolicy": webhook.failure_policy,
        "sideEffects": "NoneOnDryRun",
        **_render_match(webhook.region, asked),
    }


def _render_warning(policy: Policy, client: ClientConfig) -> Iterator[Json]:
    """Yield the webhooks for Pod templates. They never deny, and have a short timeout.

    Exempt users are not skipped: exemptions are for users that create Pods, not for those that write templates.
    A group that the cluster does not serve is harmless in a rule.
    """
    resources: dict[str, list[str]] = {}
    for source in workloads.list_reviewed_kinds(policy):
        resources.setdefault(source.group, []).append(source.resource)
    rules = [_render_rule(listed, ("CREATE", "UPDATE"), (group,)) for group, listed in resources.items()]
    # One rule for all groups: each webhook repeats it, and hardly a resource has the name of another group's.
    custom = list_custom_resources(policy)
    named = dict.fromkeys(resource for listed in custom.values() for resource in listed)
    if named:
        rules.append(_render_rule(named, ("CREATE", "UPDATE"), custom, "*"))
    asked = tuple(conditions.render_workloads(list_template_fields(policy)))
    for name, region in name_webhooks("workloads", list_all_regions(policy)) if resources else ():
        yield {
            **_render_webhook(name, client, "validate"),
            "timeoutSeconds": _WARNING_TIMEOUT_SECONDS,
            "rules": rules,
            "failurePolicy": "Ignore",
            "sideEffects": "None",
            **_render_match(region, (*conditions.render_region(region), *asked)),
        }


def _render_policy_webhook(client: ClientConfig, *, has_parts: bool) -> Json:
    """Return the webhook that validates policy, its parts and overrides when they are applied.

    It fails open: otherwise the first policy, or an override while no server is up, could not be stored.
    """
    here = {"key": METADATA_NAME, "operator": "In", "values": [configmap.NAMESPACE]}
    names = f"['{configmap.NAME}', '{configmap.OVERRIDES}']"
    expression = f"object.metadata.name in {names}"
    if has_parts:
        expression += f" || object.metadata.name.startsWith('{configmap.PART_PREFIX}')"
    only = {"name": "podgate-policy", "expression": expression}
    return {
        **_render_webhook("policy.podgate.io", client, "validate-policy"),
        "rules": [_render_rule(["configmaps"], ["CREATE", "UPDATE"])],
        "failurePolicy": "Ignore",
        "sideEffects": "None",
        "namespaceSelector": {"matchExpressions": [here]},
        "matchConditions": [only],
    }


def _render_webhook(name: str, client: ClientConfig, path: str) -> Json:
    return {
        "name": name,
        "admissionReviewVersions": ["v1"],
        "clientConfig": client.render(path),
        "matchPolicy": "Equivalent",
        "timeoutSeconds": _TIMEOUT_SECONDS[path],
    }


def _render_rule(
    resources: Iterable[str], operations: Iterable[str], groups: Iterable[str] = ("",), version: str = "v1"
) -> Json:
    return {
        "operations": list(operations),
        "apiGroups": list(groups),
        "apiVersions": [version],
        "resources": list(resources),
        "scope": "Namespaced",
    }


def _render_match(region: NamespaceRegion, asked: tuple[conditions.Condition, ...]) -> Json:
    selector = [
        {
            "key": expression.key,
            "operator": expression.operator,
            **({"values": list(expression.values)} if expression.values else {}),
        }
        for expression in region.selector.match_expressions or ()
    ]
    return {"namespaceSelector": {"matchExpressions": selector}, "matchConditions": list(asked)}


def _render_configuration(kind: str, name: str, webhooks: list[Json], annotations: dict[str, str]) -> Json:
    labels = {"app.kubernetes.io/name": "podgate"}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{kind}WebhookConfiguration",
        "metadata": {"name": name, "labels": labels, **({"annotations": annotations} if annotations else {})},
        "webhooks": webhooks,
    }
