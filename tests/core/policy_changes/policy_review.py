"""Helpers of the `policy_review` tests that other tests use, too."""

from typing import Any

import msgspec

from webhook.core.policy_changes.policy_review import PolicyReview, judge

GOOD = "apiVersion: podgate.io/v1alpha1\nkind: Policy\nservices:\n- {name: a, match: {namespaces: [shop]}}\n"


def config_map(text: str | None, **more: Any) -> dict[str, Any]:
    data = {} if text is None else {"policy.yaml": text}
    return {"metadata": {"name": "podgate-policy", "namespace": "podgate-system"}, "data": data, **more}


def config_map_review(text: str = GOOD, **changes: Any) -> bytes:
    request = {
        "uid": "review-1",
        "resource": {"group": "", "version": "v1", "resource": "configmaps"},
        "namespace": "podgate-system",
        "name": "podgate-policy",
        "operation": "CREATE",
        "userInfo": {"username": "alice"},
        "object": config_map(text),
        "oldObject": None,
        **changes,
    }
    return msgspec.json.encode({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})


def judge_review(**request: Any) -> PolicyReview:
    return judge(config_map_review(**request))


def read_response(found: PolicyReview) -> dict[str, Any]:
    review: dict[str, Any] = msgspec.json.decode(found.body)
    return dict(review["response"])
