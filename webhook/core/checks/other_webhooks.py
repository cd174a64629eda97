"""Checks of other webhooks: those that have the last word on a Pod, and those that can block Podgate's own Pods."""

from collections.abc import Iterator

from webhook.core.checks.check import Observation, Section, Severity
from webhook.core.checks.facts import ClusterFacts, labels_of
from webhook.core.checks.webhooks import is_called_for_pods, name_of, selector_of
from webhook.core.document import configmap
from webhook.core.kubernetes.selector_match import selects
from webhook.core.kubernetes.types import LabelSelector

SECTION = Section("other webhooks")


@SECTION.check("webhook-undone", "no other webhook has the last word", "mutating", severity=Severity.WARNING)
def webhook_undone(facts: ClusterFacts) -> Iterator[Observation]:
    """Report webhooks that run after Podgate's and are called again after it: they may undo what it writes."""
    for configuration in facts.mutating:
        for webhook in configuration.get("webhooks") or () if name_of(configuration) > "podgate" else ():
            if webhook.get("reinvocationPolicy") == "IfNeeded" and is_called_for_pods(webhook):
                value = "IfNeeded, and its name sorts after podgate: what it writes last is not rewritten again"
                remedy = "nothing, if it does not write fields of the policy; else Podgate denies these Pods: set Never"
                name = f"MutatingWebhookConfiguration/{name_of(configuration)}"
                yield Observation(name, f"webhooks[{webhook['name']}].reinvocationPolicy", value, remedy)


@SECTION.check(
    "other-webhook-blocks",
    "no other webhook can keep Podgate's Pods from starting",
    "mutating",
    "validating",
    severity=Severity.WARNING,
)
def other_webhook_blocks(facts: ClusterFacts) -> Iterator[Observation]:
    labels = next(
        (labels_of(one) for one in facts.namespaces if one.name == configmap.NAMESPACE),
        {"kubernetes.io/metadata.name": configmap.NAMESPACE},
    )
    found = [("Mutating", one) for one in facts.mutating] + [("Validating", one) for one in facts.validating]
    for kind, configuration in found:
        for webhook in configuration.get("webhooks") or () if not name_of(configuration).startswith("podgate") else ():
            is_blocking = webhook["failurePolicy"] == "Fail" and is_called_for_pods(webhook)
            everywhere = selector_of(webhook, "objectSelector") in (None, LabelSelector())
            if is_blocking and everywhere and selects(selector_of(webhook, "namespaceSelector"), labels):
                value = f"selects {configmap.NAMESPACE} with failurePolicy Fail: if it fails, no server can start"
                remedy = f"except {configmap.NAMESPACE} in its namespaceSelector"
                name = f"{kind}WebhookConfiguration/{name_of(configuration)}"
                yield Observation(name, f"webhooks[{webhook['name']}].namespaceSelector", value, remedy)
