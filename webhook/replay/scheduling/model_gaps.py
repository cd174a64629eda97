"""Gaps of the model: fields that decide in a cluster and not in a simulation, with the objects that have them."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct

from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.kubernetes.pod import Pod, PodSpec
from webhook.core.placement import SERVICE_LABEL
from webhook.core.placement.node_match import find_required_terms
from webhook.core.policy.model import Service
from webhook.core.policy_fields import Mode
from webhook.core.policy_fields.scheduling import Numa
from webhook.core.scheduling.numa import compute_zone_share
from webhook.replay.scheduling.nodes import SimulatedNode
from webhook.replay.scheduling.pods import ScheduledPod

_MODELLED = frozenset({"cpu", "memory"})
_PREFER = "PreferNoSchedule"


class NotModelled(Struct, frozen=True):
    """A field, how many `Pods` or `nodes` have it, the first of them, and what to do; "" if nothing can be done."""

    field: str
    count: int
    objects: str
    example: str
    remedy: str = ""

    def __str__(self) -> str:
        noun = self.objects if self.count != 1 else self.objects.removesuffix("s")
        remedy = f": {self.remedy}" if self.remedy else ""
        return f"simulate does not model {self.field} ({self.count} {noun}, such as {self.example}){remedy}"


def list_gaps(
    policy: CompiledPolicy, nodes: Sequence[SimulatedNode], running: Sequence[Pod], pods: Sequence[ScheduledPod]
) -> tuple[NotModelled, ...]:
    """Return what decides about the created Pods. Of running Pods only required anti-affinity keeps others off."""
    known = {simulated.node.name for simulated in nodes}
    created = [scheduled.pod for scheduled in pods if scheduled.node is None]
    found = [
        _make_pod_gap("spec.schedulerName of other schedulers", (found.pod for found in pods if found.is_foreign)),
        _make_pod_gap(
            "spec.nodeName of other nodes", (found.pod for found in pods if found.node and found.node not in known)
        ),
    ]
    found += [_make_pod_gap(field, (pod for pod in created if has(pod.spec))) for field, has in _FIELDS.items()]
    anti = [pod for pod in created if _has_anti_affinity(pod.spec)] + [pod for pod in running if _keeps_off(pod.spec)]
    found.append(_make_pod_gap("spec.affinity.podAntiAffinity", anti))
    if any(simulated.taints is None for simulated in nodes):
        asking = (pod for pod in created if pod.spec.node_selector or find_required_terms(pod.spec) is not None)
        remedy = "give --nodes the output of kubectl get nodes -o json"
        found.append(_make_pod_gap("nodeSelector and node affinity on nodes without labels", asking, remedy))
    if all(simulated.zones is None for simulated in nodes):
        zoned = {name for name, service in policy.services.items() if _needs_zones(service)}
        bound = (
            pod for pod in created if pod.labels.get(SERVICE_LABEL) in zoned and compute_zone_share(pod) is not None
        )
        remedy = "give --topologies the output of kubectl get noderesourcetopologies -o json"
        found.append(_make_pod_gap("NUMA zones", bound, remedy))
    placed = {name for name, service in policy.services.items() if _chooses_nodes(service)}
    bare = (pod for pod in created if pod.labels.get(SERVICE_LABEL) in placed and _is_bare(pod.spec))
    found.append(
        _make_pod_gap("the placement of their service", bare, "give --pods a recording of podgate serve --record")
    )
    avoided = [
        simulated.node.name for simulated in nodes if any(taint.effect == _PREFER for taint in simulated.taints or ())
    ]
    found.append(_make_gap(f"taints of effect {_PREFER}", "nodes", avoided))
    return tuple(gap for gap in found if gap is not None)


def _make_pod_gap(field: str, pods: Iterable[Pod], remedy: str = "") -> NotModelled | None:
    return _make_gap(
        field, "Pods", [f"{pod.metadata.namespace}/{pod.metadata.name or pod.metadata.uid}" for pod in pods], remedy
    )


def _make_gap(field: str, objects: str, names: Sequence[str], remedy: str = "") -> NotModelled | None:
    return NotModelled(field, len(names), objects, names[0], remedy) if names else None


def _needs_zones(service: Service) -> bool:
    return service.scheduling is not None and service.scheduling.numa is Numa.REQUIRED


def _chooses_nodes(service: Service) -> bool:
    plan = service.placement_plan if service.modes.placement is Mode.ENFORCE else None
    if plan is None:
        return False
    tolerates = plan.tolerations or plan.tolerations_by_class
    return bool(plan.node_selector or plan.has_affinity or plan.spreads or tolerates)


def _is_bare(spec: PodSpec) -> bool:
    return not (spec.node_selector or spec.affinity or spec.topology_spread_constraints or spec.tolerations)


def _has_pod_affinity(spec: PodSpec) -> bool:
    return spec.affinity is not None and spec.affinity.pod_affinity is not None


def _has_anti_affinity(spec: PodSpec) -> bool:
    return spec.affinity is not None and spec.affinity.pod_anti_affinity is not None


def _keeps_off(spec: PodSpec) -> bool:
    terms = None if spec.affinity is None else spec.affinity.pod_anti_affinity
    return terms is not None and bool(terms.required)


def _prefers_nodes(spec: PodSpec) -> bool:
    nodes = None if spec.affinity is None else spec.affinity.node_affinity
    return nodes is not None and bool(nodes.preferred)


def _asks_for_more(spec: PodSpec) -> bool:
    """Return whether a container requests anything but cpu and memory."""
    containers = (*(spec.init_containers or ()), *(spec.containers or ()))
    return any(
        (container.resources.requests or {}).keys() - _MODELLED
        for container in containers
        if container.resources is not None
    )


_FIELDS: Mapping[str, Callable[[PodSpec], bool]] = {
    "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution": _prefers_nodes,
    "spec.affinity.podAffinity": _has_pod_affinity,
    "spec.topologySpreadConstraints": lambda spec: bool(spec.topology_spread_constraints),
    "preemption by spec.priorityClassName": lambda spec: bool(spec.priority_class_name or spec.priority),
    "spec.schedulingGates": lambda spec: bool(spec.scheduling_gates),
    "requests other than cpu and memory": _asks_for_more,
}
