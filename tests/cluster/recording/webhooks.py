"""The recording webhooks: registered for all requests, with Podgate's answers."""

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
from webhook.core.policy_admission.policy_review import judge
from webhook.interceptor import Interceptor
from webhook.observers import Observers

CONFIGURATIONS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
POLICY_PATH = "validate-policy"
HALVES = tuple(half.value for half in Half)
_NOW_US = 1_800_000_000_000_000
_PODS = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods", "pods/*"], "operations": ["*"]}
_CONFIG_MAPS = {**_PODS, "resources": ["configmaps"], "operations": ["CREATE", "UPDATE"]}


def by_podgate(policy: bytes) -> Answer:
    """Return what answers by Podgate's own code; about Pods, by this policy."""
    clock = VirtualClock(_NOW_US)
    fixed = FixedPolicy(load(policy, Purpose.SERVE).policy, clock)
    interceptor = Interceptor(fixed, MemoryStore(clock), FixedNamespaces(), Observers())

    async def answer(path: str, body: bytes) -> bytes:
        if path == POLICY_PATH:
            return judge(body).body
        return (await interceptor.review(Half(path), body)).body

    return answer


def configurations(address: str, authority: Path, namespace: str) -> tuple[dict[str, Any], ...]:
    """Return webhook configurations that ask `address` about all that is done to a namespace's Pods, and the policy."""
    bundle = base64.b64encode(authority.read_bytes()).decode()

    def webhook(path: str, namespace: str, rule: dict[str, Any], **more: Any) -> dict[str, Any]:
        return {
            "name": f"{path}.recording.podgate.io",
            "admissionReviewVersions": ["v1"],
            "clientConfig": {"url": f"https://{address}/{path}", "caBundle": bundle},
            "rules": [rule],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "sideEffects": "NoneOnDryRun",
            # What fails is missed by who waits for it; nobody else shall wait for a recorder that is gone.
            "failurePolicy": "Ignore",
            **more,
        }

    named = {"name": "podgate-policy", "expression": f"request.name == '{NAME}'"}
    mutating, validating = (webhook(path, namespace, _PODS) for path in HALVES)
    of_policy = webhook(POLICY_PATH, NAMESPACE, _CONFIG_MAPS, matchConditions=[named])
    head = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": "recording"}}
    each = zip(CONFIGURATIONS, ([mutating], [validating, of_policy]), strict=True)
    return tuple({**head, "kind": kind, "webhooks": webhooks} for kind, webhooks in each)
