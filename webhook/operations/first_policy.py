"""First policy of a cluster: its namespaces, workloads and Pods, read with the rights of the kubeconfig's user."""

from collections import defaultdict
from typing import TYPE_CHECKING

from webhook.commands.pages.first_policy_page import FirstPolicy
from webhook.core.installation.objects import ObjectReference
from webhook.core.kubernetes.controllers import WORKLOAD_KINDS
from webhook.core.suggestion.first_policy import SeenNamespace, is_left_out
from webhook.errors import UserError
from webhook.support.kubeconfig import Kubeconfig

if TYPE_CHECKING:
    from webhook.adapters.kubernetes import ClusterObjects

_NAMESPACES = ObjectReference("v1", "Namespace", "")
_PODS = ObjectReference("v1", "Pod", "")


async def suggest_first_policy(kubeconfig: Kubeconfig, headroom_percent: int) -> FirstPolicy:
    """Return a policy in Audit for all namespaces with workloads. UserError: they cannot be read, or there are none."""
    from webhook.adapters import kubernetes  # noqa: PLC0415  its library takes long to load

    client = await kubernetes.connect(kubeconfig)
    try:
        seen = await _read_namespaces(kubernetes.ClusterObjects(client))
    finally:
        await client.close()
    services = [found.suggest(name, headroom_percent) for name, found in sorted(seen.items()) if not found.is_empty]
    if not services:
        remedy = "deploy one first, or begin with docs/examples/policy.yaml"
        raise UserError("no namespace has workloads or Pods", remedy)
    empty = sorted(name for name, found in seen.items() if found.is_empty)
    return FirstPolicy(services, empty, headroom_percent)


async def _read_namespaces(cluster: "ClusterObjects") -> dict[str, SeenNamespace]:
    """Return what each namespace contains that the policy does not exempt."""
    seen: defaultdict[str, SeenNamespace] = defaultdict(SeenNamespace)
    async for namespace in cluster.iterate(_NAMESPACES):
        if not is_left_out(namespace["metadata"]["name"]):
            seen[namespace["metadata"]["name"]]
    for source in WORKLOAD_KINDS:
        async for workload in cluster.iterate(ObjectReference(source.api_version, source.kind, "")):
            if not is_left_out(workload["metadata"]["namespace"]):
                seen[workload["metadata"]["namespace"]].add_workload(source.kind, workload)
    async for pod in cluster.iterate(_PODS):
        if not is_left_out(pod["metadata"]["namespace"]):
            try:
                seen[pod["metadata"]["namespace"]].add_pod(pod)
            except ValueError as error:
                where = f"pod {pod['metadata']['namespace']}/{pod['metadata']['name']}"
                raise UserError(f"{where}: {error}", "see its resources: kubectl get pod -o yaml") from None
    return dict(seen)
