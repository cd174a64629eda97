"""Explanation of the webhook configurations: the calls that each webhook of Pods makes and leaves out, and why."""

from webhook.core.policy.model import Policy
from webhook.core.webhook_configurations.client import Json
from webhook.core.webhook_configurations.name_sets import EVERY
from webhook.core.webhook_configurations.namespace_regions import METADATA_NAME, NamespaceRegion
from webhook.core.webhook_configurations.pod_webhooks import make_pod_webhooks


def explain_configurations(policy: Policy, policy_hash: str, *, all_calls: bool = False) -> Json:
    """Return what `podgate policy webhooks --explain` shows. `service` is null for Pods of no service."""
    return {
        "policyHash": policy_hash,
        "webhooks": [
            {
                "name": webhook.name,
                "path": webhook.path,
                "namespaces": _describe_namespaces(webhook.region),
                "newPods": [
                    {
                        "service": call.service or None,
                        "call": "Made" if call.is_made else "LeftOut",
                        "reason": call.reason,
                    }
                    for call in webhook.calls.calls
                ],
            }
            for webhook in make_pod_webhooks(policy, policy_hash, all_calls=all_calls)
        ],
    }


def _describe_namespaces(region: NamespaceRegion) -> Json:
    """Return the region as in a `match`, and the names that it does not include."""
    inside, outside = sorted(region.names.inside), {*region.names.outside, *region.exempt}
    labels = []
    for expression in region.selector.match_expressions or ():
        if (expression.key, expression.operator) == (METADATA_NAME, "NotIn"):
            outside.update(expression.values or ())
        else:
            values = {"values": list(expression.values)} if expression.values else {}
            labels.append({"key": expression.key, "operator": expression.operator, **values})
    return {"names": [] if inside == [EVERY] else inside, "except": sorted(outside), "labels": labels}
