"""Parts of `policy_webhook` tests that others use, too."""

import json


def review(text: str) -> bytes:
    config_map = {
        "metadata": {"name": "podgate-policy", "namespace": "podgate-system"},
        "data": {"policy.yaml": text},
    }
    request = {
        "uid": "review-1",
        "resource": {"group": "", "version": "v1", "resource": "configmaps"},
        "namespace": "podgate-system",
        "name": "podgate-policy",
        "operation": "CREATE",
        "userInfo": {"username": "alice"},
        "object": config_map,
    }
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()
