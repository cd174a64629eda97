"""The recording webhooks: registered for all requests, with responses by Podgate's code."""

import base64
from pathlib import Path
from typing import Any

from tests.cluster.recording_webhook import Answer
from webhook.adapters.clocks import VirtualClock
from webhook.adapters.fixed import FixedNamespaces, FixedPolicy
from webhook.adapters.memory_store import MemoryStore
from webhook.core.admission.decision import Half
from webhook.core.document import Purpose, load
from webhook.core.document.configmap import NAME, NAMESPACE
from webhook.core.policy_changes.policy_review import judge
from webhook.interceptor import Interceptor
from webhook.observers import Observers

CONFIGURATIONS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
POLICY_PATH = "validate-policy"
HALVES = tuple(half.value for half in Half)
_NOW_US = 1_800_000_000_000_000
_PODS = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods", "pods/*"], "operations": ["*"]}
_CONFIG_MAPS = {**_PODS, "resources": ["configmaps"], "operations": ["CREATE", "UPDATE"]}


def podgate_answer(policy: bytes) -> Answer:
    """Return a function that responds by Podgate's code with this policy."""
    clock = VirtualClock(_NOW_US)
    fixed = FixedPolicy(load(policy, Purpose.SERVE).policy, clock)
    interceptor = Interceptor(fixed, MemoryStore(clock), FixedNamespaces(), Observers())

    async def answer(path: str, body: bytes) -> bytes:
        if path == POLICY_PATH:
            return judge(body).body
        return (await interceptor.review(Half(path), body)).body

    return answer


def configurations(address: str, authority: Path, namespace: str) -> tuple[dict[str, Any], ...]:
    """Return webhook configurations that call `address` for all requests to Pods of a namespace and to the policy."""
    bundle = base64.b64encode(authority.read_bytes()).decode()

    def webhook(path: str, namespace: str, rule: dict[str, Any], **fields: Any) -> dict[str, Any]:
        return {
            "name": f"{path}.recording.podgate.io",
            "admissionReviewVersions": ["v1"],
            "clientConfig": {"url": f"https://{address}/{path}", "caBundle": bundle},
            "rules": [rule],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "sideEffects": "NoneOnDryRun",
            # A failed call is missing in the recording. Other requests must not fail after the recorder has stopped.
            "failurePolicy": "Ignore",
            **fields,
        }

    match_condition = {"name": "podgate-policy", "expression": f"request.name == '{NAME}'"}
    mutating, validating = (webhook(path, namespace, _PODS) for path in HALVES)
    policy_webhook = webhook(POLICY_PATH, NAMESPACE, _CONFIG_MAPS, matchConditions=[match_condition])
    common_fields = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": "recording"}}
    webhooks_by_kind = zip(CONFIGURATIONS, ([mutating], [validating, policy_webhook]), strict=True)
    return tuple({**common_fields, "kind": kind, "webhooks": webhooks} for kind, webhooks in webhooks_by_kind)
