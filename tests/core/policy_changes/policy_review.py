"""Parts of `policy_review` tests that others use, too."""

from typing import Any

import msgspec

from webhook.core.policy_changes.policy_review import PolicyReview, judge

GOOD = "apiVersion: podgate.io/v1alpha1\nkind: Policy\nservices:\n- {name: a, match: {namespaces: [shop]}}\n"


def config_map(text: str | None, **more: Any) -> dict[str, Any]:
    data = {} if text is None else {"policy.yaml": text}
    return {"metadata": {"name": "podgate-policy", "namespace": "podgate-system"}, "data": data, **more}


def reviewed(**request: Any) -> PolicyReview:
    usual = {
        "uid": "review-1",
        "resource": {"group": "", "version": "v1", "resource": "configmaps"},
        "namespace": "podgate-system",
        "name": "podgate-policy",
        "operation": "CREATE",
        "userInfo": {"username": "alice"},
        "object": config_map(GOOD),
        "oldObject": None,
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": usual | request}
    return judge(msgspec.json.encode(review))


def response(found: PolicyReview) -> dict[str, Any]:
    review: dict[str, Any] = msgspec.json.decode(found.body)
    return dict(review["response"])
