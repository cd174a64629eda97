"""Shares on a real control plane: nodes of two kinds, workloads, and what their Pods carry once nothing changes."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.cluster import kubelet_reports
from tests.cluster.controller_fixture import ControllerFixture
from tests.cluster.controlplane import ControlPlane
from tests.cluster.kwok import node
from webhook.core.placement import VARIANT_LABEL
from webhook.core.shares import CLAIM_ANNOTATION, SLOT_ANNOTATION, Split

KIND = "capacity"
SPOT, ON_DEMAND = "spot", "on-demand"
NODES = tuple(
    node(f"{kind}-{number}", taints=[{"key": KIND, "value": kind, "effect": "NoSchedule"}], **{KIND: kind})
    for kind in (SPOT, ON_DEMAND)
    for number in (1, 2)
)
SPLIT = Split((SPOT, ON_DEMAND), (80, 20), base_variant=1, base_pods=2)
_MERGE = "application/merge-patch+json"
WORKLOADS = {"Deployment": "deployments", "StatefulSet": "statefulsets", "ReplicaSet": "replicasets"}
_SIZES = {"Deployment": (3, 5, 10, 12, 20, 30, 50), "StatefulSet": (3, 5, 10, 12, 20)}
"""To which a random script scales them: a StatefulSet replaces one Pod after another."""


def build_shares(**terms: Any) -> dict[str, Any]:
    """Return the stanza: the first two Pods on demand, of the rest 80 % spot."""
    variants = [
        {
            "name": name,
            "weight": weight,
            "nodeSelector": {KIND: name},
            "tolerations": [{"key": KIND, "operator": "Equal", "value": name, "effect": "NoSchedule"}],
        }
        for name, weight in zip(SPLIT.names, SPLIT.weights, strict=True)
    ]
    return {"base": {"variant": ON_DEMAND, "pods": 2}, "variants": variants, **terms}


def build_policy(namespaces: Mapping[str, Sequence[str]], **terms: Any) -> str:
    """Return a policy with these services and their namespaces, all of which divide their Pods."""
    services = [
        {
            "name": name,
            "failureMode": "Closed",
            "match": {"namespaces": list(found)},
            "placement": {"shares": build_shares(**terms)},
        }
        for name, found in namespaces.items()
    ]
    return json.dumps({"apiVersion": "podgate.io/v1alpha1", "kind": "Policy", "services": services}, indent=1)


@contextmanager
def two_kinds_of_nodes(plane: ControlPlane, nodes: Sequence[Mapping[str, Any]] = NODES) -> Iterator[None]:
    plane.add_nodes(*nodes)
    try:
        yield
    finally:
        for found in nodes:
            plane.delete(f"/api/v1/nodes/{found['metadata']['name']}")


@dataclass
class Workload:
    """A Deployment or StatefulSet whose Pods are divided."""

    running: ControllerFixture
    kind: str
    namespace: str
    name: str
    replicas: int
    revision: int = 0
    history: list[str] = field(default_factory=list)

    @property
    def path(self) -> str:
        return f"/apis/apps/v1/namespaces/{self.namespace}/{WORKLOADS[self.kind]}/{self.name}"

    def create(self) -> None:
        labels = {"app": self.name}
        template = {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "c", "image": "i"}], "terminationGracePeriodSeconds": 0},
        }
        extra = {"serviceName": "none", "podManagementPolicy": "Parallel"} if self.kind == "StatefulSet" else {}
        self.running.plane.apply(
            {
                "apiVersion": "apps/v1",
                "kind": self.kind,
                "metadata": {"name": self.name, "namespace": self.namespace},
                "spec": {
                    "replicas": self.replicas,
                    "selector": {"matchLabels": labels},
                    "template": template,
                    **extra,
                },
            }
        )

    def scale(self, replicas: int) -> None:
        self.replicas = replicas
        self._patch({"spec": {"replicas": replicas}})

    def roll_out(self) -> None:
        self.revision += 1
        annotations = {"revision": str(self.revision)}
        self._patch({"spec": {"template": {"metadata": {"annotations": annotations}}}})

    def list_pods(self) -> list[dict[str, Any]]:
        pods = self.running.installation.pods(self.namespace)
        return [pod for pod in pods if pod["metadata"].get("labels", {}).get("app") == self.name]

    def delete_pod(self, name: str) -> None:
        self.running.plane.api.request("DELETE", f"/api/v1/namespaces/{self.namespace}/pods/{name}")

    # --- at random ---

    def scale_at_random(self, generator: Random) -> str:
        """Scale down only from rest, because a ReplicaSet deletes Pods that are not ready first."""
        replicas = generator.choice(_SIZES[self.kind])
        if replicas < self.replicas and self.kind == "Deployment":
            self.wait()
        self.scale(replicas)
        return f"{self.name} scaled to {replicas}"

    def replace_at_random(self, _: Random) -> str:
        self.roll_out()
        return f"{self.name} rolled out"

    def delete_at_random(self, generator: Random) -> str:
        names = [pod["metadata"]["name"] for pod in self.list_pods()]
        chosen = generator.sample(names, min(len(names), generator.randint(1, 6)))
        for name in chosen:
            self.delete_pod(name)
        return f"{len(chosen)} Pods of {self.name} deleted"

    # --- at rest ---

    def is_at_rest(self) -> bool:
        """Return whether the workload has exactly the Pods that it asks for, all of them ready."""
        found = self.running.plane.api.get(self.path)
        status = found["status"]
        counts = [status.get(count, 0) for count in ("replicas", "readyReplicas", "updatedReplicas")]
        is_observed = status.get("observedGeneration") == found["metadata"]["generation"]
        return is_observed and counts == [self.replicas] * 3 and len(self.list_pods()) == self.replicas

    def count_ready(self) -> int:
        return int(self.running.plane.api.get(self.path)["status"].get("readyReplicas", 0))

    def wait(self, timeout_seconds: float = 120.0) -> None:
        what = f"{self.kind} {self.name} to have {self.replicas} ready Pods"
        self.running.plane.wait(self.is_at_rest, what, "kube-controller-manager", timeout_seconds=timeout_seconds)

    def count_variants(self) -> dict[str, int]:
        """Return how many Pods are of each variant, and run on nodes of its kind."""
        counts = dict.fromkeys(SPLIT.names, 0)
        for pod in self.list_pods():
            variant = pod["metadata"]["labels"][VARIANT_LABEL]
            assert pod["spec"]["nodeName"].startswith(variant), pod["metadata"]
            counts[variant] += 1
        return counts

    def count_expected(self) -> dict[str, int]:
        return SPLIT.count_by_variant(self.replicas)

    def list_slots(self) -> list[int]:
        return sorted(int(pod["metadata"]["annotations"][SLOT_ANNOTATION]) for pod in self.list_pods())

    def describe(self) -> str:
        """Return the difference to the exact split, "" without one."""
        expected, found = self.count_expected(), self.count_variants()
        if found == expected:
            return ""
        notes = [f"{found} of {expected}, slots {self.list_slots()}", *self.history]
        notes += [self._describe_pod(pod) for pod in self.list_pods()]
        return "\n".join(notes)

    def _describe_pod(self, pod: dict[str, Any]) -> str:
        found = pod["metadata"]
        slot, claim = (found["annotations"].get(key) for key in (SLOT_ANNOTATION, CLAIM_ANNOTATION))
        return f"{found['name']} {found['creationTimestamp']} slot {slot} claim {claim}"

    def _patch(self, patch: Mapping[str, Any]) -> None:
        status, answer = self.running.plane.api.request("PATCH", self.path, patch, _MERGE)
        assert status == 200, answer


def shrink_while_not_ready(workload: Workload, replicas: int) -> None:
    """Let as many Pods lose their readiness as are to go, from slot 3 on, and scale the Deployment down."""
    lost = range(3, 3 + workload.replicas - replicas)
    for pod in workload.list_pods():
        if int(pod["metadata"]["annotations"][SLOT_ANNOTATION]) in lost:
            path = f"/api/v1/namespaces/{workload.namespace}/pods/{pod['metadata']['name']}"
            kubelet_reports.write(workload.running.plane, path, kubelet_reports.unready())
    workload.running.plane.wait(lambda: workload.count_ready() == replicas, "Pods not to be ready")
    workload.scale(replicas)
    workload.wait()
    assert workload.list_slots() == [slot for slot in range(1, replicas + len(lost) + 1) if slot not in lost]
