"""Traffic of a benchmark: Pods, and AdmissionReviews of them."""

import copy
import json
import uuid
from dataclasses import dataclass
from typing import Any

from tests.bench.policies import ADMITTED
from webhook.commands.simulator import (
    GENERATED_SUFFIX,
    Ask,
    build_admission_review,
    prepare_for_mutate,
    prepare_for_validate,
)
from webhook.core.admission.decision import Half

POD_BYTES = 6_000
CONTAINERS = 3
REVIEW_UID = "00000000-0000-4000-8000-00000000000a"
POD_UID = "00000000-0000-4000-8000-00000000000b"
"""Placeholders: each review and Pod gets a new uid, and each Pod name a new suffix instead of GENERATED_SUFFIX."""

_USER = "system:serviceaccount:kube-system:replicaset-controller"
_BYTES_WITHOUT_ENV = 2_000
_BYTES_OF_ENV = 71


@dataclass(frozen=True)
class Workload:
    """A Deployment. Its Pods differ only in their names, and with `own_images` in their image tags.

    `pod_bytes` is a minimum: many containers need more.
    """

    service: str = ADMITTED
    number: int = 0
    pod_bytes: int = POD_BYTES
    own_images: bool = False
    containers: int = CONTAINERS

    @property
    def namespace(self) -> str:
        return "payments" if self.service == ADMITTED else self.service

    @property
    def name(self) -> str:
        return f"{self.service}-{self.number}"


def user_pod(workload: Workload) -> dict[str, Any]:
    """Return a Pod before mutation, with the API server's defaults, of at least `pod_bytes` as JSON."""
    name = workload.name
    tag = GENERATED_SUFFIX if workload.own_images else "1.4.2"
    variables = max(0, workload.pod_bytes - _BYTES_WITHOUT_ENV) // (workload.containers * _BYTES_OF_ENV)
    containers = [
        {
            "name": f"c{number}",
            "image": f"registry.example/{name}/api-{number}:{tag}",
            "resources": {"requests": {"cpu": "250m", "memory": "256Mi"}, "limits": {"memory": "512Mi"}},
            "env": [{"name": f"SETTING_{variable}", "value": "x" * 40} for variable in range(variables)],
        }
        for number in range(workload.containers)
    ]
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"{name}-7d9c", "controller": True}
    annotations = {"padding": ""}
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": f"{name}-7d9c-",
            "namespace": workload.namespace,
            "labels": {"app": name},
            "annotations": annotations,
            "ownerReferences": [{**owner, "uid": str(uuid.uuid5(uuid.NAMESPACE_DNS, name))}],
        },
        "spec": {
            "schedulerName": "default-scheduler",
            "restartPolicy": "Always",
            "priority": 0,
            "containers": containers,
            "tolerations": [_not_ready("not-ready"), _not_ready("unreachable")],
            "affinity": _node_affinity({"key": "disk-type", "operator": "In", "values": ["ssd"]}),
        },
    }
    annotations["padding"] = "x" * max(0, workload.pod_bytes - len(_encode(pod)))
    return pod


def _not_ready(condition: str) -> dict[str, Any]:
    """Return a toleration that the API server adds to all Pods."""
    key = f"node.kubernetes.io/{condition}"
    return {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}


def _node_affinity(*expressions: dict[str, Any]) -> dict[str, Any]:
    terms = {"nodeSelectorTerms": [{"matchExpressions": [*expressions]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def place(pod: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of a Pod with the placement of the policies."""
    result = copy.deepcopy(pod)
    spec = result["spec"]
    zones = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["zone-b", "zone-g"]}
    required = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    for term in required["nodeSelectorTerms"]:
        term["matchExpressions"].append(zones)
    spec["schedulerName"] = "podgate-scheduler"
    spec["tolerations"].append({"key": "dedicated", "operator": "Equal", "value": "payments", "effect": "NoSchedule"})
    return result


def typical_pod(policy_hash: str, workload: Workload) -> dict[str, Any]:
    """Return a Pod after Podgate's mutation."""
    pod = place(user_pod(workload))
    pod["metadata"]["labels"]["podgate.io/service"] = workload.service
    pod["metadata"]["annotations"]["podgate.io/policy-hash"] = policy_hash
    return pod


def ask(workload: Workload, pod: dict[str, Any]) -> Ask:
    """Return the request for a Pod; its uid is POD_UID."""
    return Ask(pod, workload.namespace, POD_UID, _USER)


def encode_mutating_review(workload: Workload, pod: dict[str, Any]) -> str:
    """Return the body of the mutating call for a Pod."""
    return _review(workload, prepare_for_mutate(ask(workload, pod)), Half.MUTATE)


def encode_validating_review(workload: Workload, pod: dict[str, Any]) -> str:
    """Return the body of the validating call for a mutated Pod."""
    return _review(workload, prepare_for_validate(ask(workload, pod), pod), Half.VALIDATE)


def renew(review: str) -> bytes:
    """Return the body with new uids and a new Pod name, so that no review is a retry."""
    values = {REVIEW_UID: str(uuid.uuid4()), POD_UID: str(uuid.uuid4()), GENERATED_SUFFIX: uuid.uuid4().hex[:5]}
    for placeholder, value in values.items():
        review = review.replace(placeholder, value)
    return review.encode()


def _review(workload: Workload, pod: dict[str, Any], half: Half) -> str:
    review = build_admission_review(ask(workload, pod), pod, half)
    review["request"]["uid"] = REVIEW_UID
    return _encode(review)


def _encode(document: object) -> str:
    """Return JSON, compact, as the API server writes it."""
    return json.dumps(document, separators=(",", ":"))
