"""Workloads that a rollout would reach: of all kinds, without those that are exempt or created by others."""

from typing import Any

from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.document import Purpose, load
from webhook.core.installation.objects import ObjectReference
from webhook.operations.rollout_plan import list_planned_workloads

POLICY = b"""
apiVersion: podgate.io/v1alpha1
kind: Policy
exemptions: {namespaces: [infra], runtimeClasses: [kata]}
services:
- {name: jobs, match: {anyNamespace: true, ownerKinds: [Job]}, placement: {nodeSelector: {a: b}}}
- {name: web, match: {anyNamespace: true, podSelector: {matchLabels: {app: web}}}, placement: {nodeSelector: {a: b}}}
"""
KINDS = ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "CronJob", "ReplicationController")


def make(kind: str, name: str, namespace: str, spec: dict[str, Any], owner: str = "") -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c"}], **spec}}
    group, _, owner_kind = owner.rpartition("/")
    reference = {"apiVersion": f"{group}/v1", "kind": owner_kind, "name": "x", "uid": "x", "controller": True}
    owners = [reference] if owner else None
    return {
        "metadata": {"name": name, "namespace": namespace, "ownerReferences": owners},
        "spec": {"jobTemplate": {"spec": {"template": template}}} if kind == "CronJob" else {"template": template},
    }


async def list_objects(reference: ObjectReference) -> list[dict[str, Any]]:
    namespaces = "shop", "infra", "kube-system"
    if reference.kind == "Namespace":
        return [{"metadata": {"name": name}} for name in namespaces]
    found = [make(reference.kind, "own", namespace, {}) for namespace in namespaces]
    made = [
        make(reference.kind, "made", "shop", {}, "apps/Deployment"),
        make(reference.kind, "of-operator", "shop", {}, "example.com/Deployment"),
    ]
    return [*found, *made, make(reference.kind, "sandboxed", "shop", {"runtimeClassName": "kata"})]


async def test_workloads_are_those_whose_pods_a_policy_would_judge() -> None:
    compiled = CompiledPolicy(load(POLICY, Purpose.SERVE).policy)
    found = await list_planned_workloads(list_objects, compiled)
    assert {(workload.namespace, workload.name) for workload in found} == {("shop", "own"), ("shop", "of-operator")}
    assert {workload.kind: workload.service for workload in found} == {
        kind: "jobs" if kind in {"Job", "CronJob"} else "web" for kind in KINDS if kind != "DaemonSet"
    }
