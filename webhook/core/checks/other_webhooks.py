"""Checks of other webhooks: those that have the last word on a Pod, and those that can block Podgate's own Pods."""

import json
from collections.abc import Iterator
from shlex import quote
from typing import Any

from webhook.core.checks.check import Observation, Section, Severity
from webhook.core.checks.facts import ClusterFacts, Json, labels_of
from webhook.core.checks.webhooks import is_called_for_pods, name_of, selector_of
from webhook.core.document import configmap
from webhook.core.kubernetes.selector_match import selects
from webhook.core.kubernetes.types import LabelSelector
from webhook.core.policy.matching import NAME_LABEL

SECTION = Section("other webhooks")


@SECTION.check("webhook-undone", "no other webhook has the last word", "mutating", severity=Severity.WARNING)
def webhook_undone(facts: ClusterFacts) -> Iterator[Observation]:
    """Report webhooks that run after Podgate's and are called again after it: they may undo what it writes."""
    for configuration in facts.mutating:
        is_later = name_of(configuration) > "podgate"
        for index, webhook in enumerate(configuration.get("webhooks") or ()) if is_later else ():
            if webhook.get("reinvocationPolicy") == "IfNeeded" and is_called_for_pods(webhook):
                value = "IfNeeded, and its name sorts after podgate: what it writes last is not rewritten again"
                remedy = "nothing, if it does not write fields of the policy; else Podgate denies these Pods: set Never"
                name = f"MutatingWebhookConfiguration/{name_of(configuration)}"
                command = _patch("Mutating", configuration, index, "reinvocationPolicy", "Never")
                yield Observation(name, f"webhooks[{webhook['name']}].reinvocationPolicy", value, remedy, command)


@SECTION.check(
    "other-webhook-blocks",
    "no other webhook can keep Podgate's Pods from starting",
    "mutating",
    "validating",
    severity=Severity.WARNING,
)
def other_webhook_blocks(facts: ClusterFacts) -> Iterator[Observation]:
    labels = next(
        (labels_of(namespace) for namespace in facts.namespaces if namespace.name == configmap.NAMESPACE),
        {NAME_LABEL: configmap.NAMESPACE},
    )
    found = [("Mutating", configuration) for configuration in facts.mutating] + [
        ("Validating", configuration) for configuration in facts.validating
    ]
    for kind, configuration in found:
        is_foreign = not name_of(configuration).startswith("podgate")
        for index, webhook in enumerate(configuration.get("webhooks") or ()) if is_foreign else ():
            is_blocking = webhook["failurePolicy"] == "Fail" and is_called_for_pods(webhook)
            everywhere = selector_of(webhook, "objectSelector") in (None, LabelSelector())
            if is_blocking and everywhere and selects(selector_of(webhook, "namespaceSelector"), labels):
                value = f"selects {configmap.NAMESPACE} with failurePolicy Fail: if it fails, no server can start"
                remedy = f"except {configmap.NAMESPACE} in its namespaceSelector"
                name = f"{kind}WebhookConfiguration/{name_of(configuration)}"
                command = _patch(kind, configuration, index, "namespaceSelector", _exclude_own_namespace(webhook))
                yield Observation(name, f"webhooks[{webhook['name']}].namespaceSelector", value, remedy, command)


def _exclude_own_namespace(webhook: Json) -> Json:
    """Return the namespaceSelector that leaves out Podgate's own namespace too."""
    selector: Json = webhook.get("namespaceSelector") or {}
    own = {"key": NAME_LABEL, "operator": "NotIn", "values": [configmap.NAMESPACE]}
    return {**selector, "matchExpressions": [*(selector.get("matchExpressions") or ()), own]}


def _patch(kind: str, configuration: Json, index: int, field: str, value: Any) -> str:
    """Return the command that changes one field of another's webhook, unless it is no longer at its place."""
    path = f"/webhooks/{index}"
    test = {"op": "test", "path": f"{path}/name", "value": configuration["webhooks"][index]["name"]}
    patch = json.dumps([test, {"op": "add", "path": f"{path}/{field}", "value": value}])
    resource = f"{kind.lower()}webhookconfiguration"
    return f"kubectl patch {resource} {quote(name_of(configuration))} --type=json -p {quote(patch)}"
