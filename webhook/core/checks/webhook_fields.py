"""Fields of a webhook as the API server returns it: selectors, whether it is called for Pods; and how to render it."""

from webhook.core.checks.facts import Json
from webhook.core.kubernetes.types import LabelSelector, Requirement

RENDER = (
    "podgate install with its options, or podgate policy webhooks --policy policy.yaml --ca pki/ca.crt"
    " | kubectl apply --server-side -f -"
)


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
        Requirement(one["key"], one["operator"], tuple(one.get("values") or ()))
        for one in found.get("matchExpressions") or ()
    )
    return LabelSelector(match_labels=found.get("matchLabels"), match_expressions=expressions or None)
