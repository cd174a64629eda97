"""Traffic of a benchmark: a typical Pod, as HTTP calls rendered before any measurement."""

import json
import uuid

from webhook.core.admission.decision import Half
from webhook.offline.simulator import Ask, admission_review, as_sent_to_validate

POD_BYTES = 6_000
_UID = "00000000-0000-4000-8000-000000000000"
_OWNER = "00000000-0000-4000-8000-000000000001"

_PLACEMENT = """\
  placement:
    schedulerName: podgate-scheduler
    topology: [{level: Zone, in: [zone-b, zone-g]}]
    tolerations: [{key: dedicated, operator: Equal, value: payments, effect: NoSchedule}]
"""

POLICY = f"""\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: payment-api
  match: {{namespaces: [payments]}}
{_PLACEMENT}
  quota: {{windows: [{{window: 1h, hard: {{pods: 100000000, cpu: "100000000"}}}}]}}
  breaker: {{quotaExceeded: {{count: 10, within: 1m}}}}
- name: exhausted
  match: {{namespaces: [exhausted]}}
{_PLACEMENT}
  quota: {{windows: [{{window: 1h, hard: {{pods: 1, cpu: "100000000"}}}}]}}
"""
ADMITTED, REFUSED = "payment-api", "exhausted"
"""Services of the policy. The second holds one Pod: all that come after it are refused by its quota."""

BREAKERS = f"""\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: unbroken
  match: {{namespaces: [unbroken]}}
{_PLACEMENT}
  quota: {{windows: [{{window: 1h, hard: {{pods: 100000000, cpu: "100000000"}}}}]}}
- name: closed
  match: {{namespaces: [closed]}}
{_PLACEMENT}
  quota: {{windows: [{{window: 1h, hard: {{pods: 100000000, cpu: "100000000"}}}}]}}
  breaker:
    outcomes: {{source: Pushed, reporters: [gateway]}}
    errorRate: {{}}
    latency: {{}}
    quotaExceeded: {{}}
- name: open
  match: {{namespaces: [open]}}
{_PLACEMENT}
  quota: {{windows: [{{window: 1h, hard: {{pods: 1, cpu: "100000000"}}}}]}}
  breaker: {{quotaExceeded: {{count: 1, within: 1m}}, openFor: 24h}}
"""
UNBROKEN, CLOSED, OPEN = "unbroken", "closed", "open"
"""Services of the other policy: without a breaker, with one, and with one that the second Pod trips."""

_NAMESPACES = {ADMITTED: "payments", **{name: name for name in (REFUSED, UNBROKEN, CLOSED, OPEN)}}


def typical_pod(policy_hash: str, service: str = ADMITTED) -> dict[str, object]:
    """Return a Pod as its policy wants it, of the size that Pods have."""
    namespace = _NAMESPACES[service]
    zones = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["zone-b", "zone-g"]}
    containers = [
        {
            "name": f"c{number}",
            "image": f"registry.example/payments/api-{number}:1.4.2",
            "resources": {"requests": {"cpu": "250m", "memory": "256Mi"}, "limits": {"memory": "512Mi"}},
            "env": [{"name": f"SETTING_{name}", "value": "x" * 40} for name in range(20)],
        }
        for number in range(3)
    ]
    annotations = {"podgate.io/policy-hash": policy_hash, "padding": ""}
    pod: dict[str, object] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": f"{service}-",
            "namespace": namespace,
            "labels": {"app": service, "podgate.io/service": service},
            "annotations": annotations,
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": f"{service}-7d9c",
                    "uid": _OWNER,
                    "controller": True,
                }
            ],
        },
        "spec": {
            "schedulerName": "podgate-scheduler",
            "containers": containers,
            "tolerations": [
                {"key": "dedicated", "operator": "Equal", "value": "payments", "effect": "NoSchedule"},
            ],
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{"matchExpressions": [zones]}]
                    }
                }
            },
        },
    }
    annotations["padding"] = "x" * max(0, POD_BYTES - len(json.dumps(pod)))
    return pod


class Traffic:
    """Calls of the validating half, each about a new Pod with a uid of its own: none is a repetition."""

    def __init__(self, policy_hash: str, service: str = ADMITTED) -> None:
        self.fits = service == ADMITTED
        pod = typical_pod(policy_hash, service)
        ask = Ask(pod, _NAMESPACES[service], _UID, "system:serviceaccount:kube-system:replicaset-controller")
        review = admission_review(ask, as_sent_to_validate(ask, ask.pod), Half.VALIDATE)
        # Compact, as the API server writes it.
        self._body = json.dumps(review, separators=(",", ":")).encode()

    def bodies(self, count: int) -> list[bytes]:
        """Return that many without the HTTP around them."""
        return [self._body.replace(_UID.encode(), str(uuid.uuid4()).encode()) for _ in range(count)]

    @property
    def body_bytes(self) -> int:
        return len(self._body)

    def calls(self, count: int, token: str) -> list[bytes]:
        """Return that many."""
        head = (
            f"POST /validate?timeout=10s HTTP/1.1\r\nHost: localhost\r\nUser-Agent: kube-apiserver-admission\r\n"
            f"Content-Length: {len(self._body)}\r\nAccept: application/json, */*\r\nAuthorization: Bearer {token}\r\n"
            f"Content-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n"
        )
        return [head.encode() + body for body in self.bodies(count)]
