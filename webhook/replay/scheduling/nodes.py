"""Nodes of a simulation: from files of a cluster, or generated."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from webhook.core.kubernetes import pod_requests
from webhook.core.kubernetes.pod import Amounts, Container, Pod, PodMetadata, PodSpec, Resources
from webhook.core.placement.node_match import NodeTaint
from webhook.core.reporting.node_document import NodeDocument, ShownNode
from webhook.core.scheduling.measured_load import NodeLoad
from webhook.core.scheduling.node_table import SchedulableNode
from webhook.core.scheduling.numa import NumaZones
from webhook.core.scheduling.topology import TopologyReport
from webhook.errors import UserError
from webhook.support.input_files import read_documents

_MILLI = pod_requests.NANO // 1000
_PODS_MAX = 110
"""Pods that a kubelet takes by default."""
_RECORDED = "kubectl get nodes -o json, or podgate nodes --limit 50000 -o json"


class SimulatedNode(Struct, frozen=True):
    """A node, the most Pods that it takes, what was measured on it, and its NUMA zones; None if they are not known."""

    node: SchedulableNode
    pods_max: int = _PODS_MAX
    load: NodeLoad | None = None
    taints: tuple[NodeTaint, ...] | None = None
    """None if neither labels nor taints are known."""
    zones: NumaZones | None = None


class _Metadata(Struct, frozen=True):
    name: str
    labels: dict[str, str] = {}


class _Spec(Struct, frozen=True):
    unschedulable: bool = False
    taints: tuple[NodeTaint, ...] | None = None


class _Status(Struct, frozen=True):
    allocatable: Amounts


class _Node(Struct, frozen=True):
    metadata: _Metadata
    status: _Status
    spec: _Spec = field(default_factory=_Spec)


class _PodList(Struct, frozen=True):
    items: tuple[Pod, ...]


class _Named(Struct, frozen=True):
    metadata: _Metadata


class _Topology(TopologyReport, frozen=True, kw_only=True):
    metadata: _Metadata


class _TopologyList(Struct, frozen=True):
    items: tuple[dict[str, Any], ...]


def read_nodes(path: Path) -> list[SimulatedNode]:
    """Return the nodes in a file, but those that are cordoned. UserError: they cannot be read."""
    found = _read_document(path, f"give what this prints: {_RECORDED}")
    if "nodes" in found:
        shown: tuple[ShownNode, ...] = _convert(found, NodeDocument, path, _RECORDED).nodes
        nodes = [
            SimulatedNode(
                SchedulableNode(record.name, record.allocatable_cpu_millis, record.allocatable_memory_bytes),
                load=record.load,
            )
            for record in shown
        ]
    else:
        items = found.get("items")
        read = _convert(items if isinstance(items, list) else [found], list[_Node], path, _RECORDED)
        nodes = [_make_node(listed, path) for listed in read if not listed.spec.unschedulable]
    if not nodes:
        raise UserError(f"{path}: no node that takes Pods", f"give what this prints: {_RECORDED}")
    return nodes


def add_loads(nodes: Sequence[SimulatedNode], path: Path) -> list[SimulatedNode]:
    """Return the nodes with the loads in a file of `podgate nodes -o json`. UserError: it cannot be read."""
    command = "podgate nodes --limit 50000 -o json"
    shown = _convert(_read_document(path, f"give what this prints: {command}"), NodeDocument, path, command).nodes
    loads = {record.name: record.load for record in shown}
    if not loads.keys() & {simulated.node.name for simulated in nodes}:
        raise UserError(f"{path}: none of its {len(loads)} nodes is one of --nodes", "give files of the same cluster")
    return [replace(simulated, load=loads.get(simulated.node.name)) for simulated in nodes]


def add_zones(nodes: Sequence[SimulatedNode], path: Path) -> list[SimulatedNode]:
    """Return the nodes with the NUMA zones in a file of their NodeResourceTopologies. UserError: it cannot be read."""
    command = "kubectl get noderesourcetopologies -o json"
    document = _read_document(path, f"give what this prints: {command}")
    zones: dict[str, NumaZones | None] = {}
    for item in _convert(document, _TopologyList, path, command).items:
        name = _convert(item, _Named, path, command).metadata.name
        report: _Topology = _convert(item, _Topology, path, command, f"NodeResourceTopology {name}: ")
        zones[name] = report.read_bound_zones()
    if not zones.keys() & {simulated.node.name for simulated in nodes}:
        raise UserError(f"{path}: none of its {len(zones)} nodes is one of --nodes", "give files of the same cluster")
    return [replace(simulated, zones=zones.get(simulated.node.name)) for simulated in nodes]


def read_running_pods(path: Path) -> list[Pod]:
    """Return the Pods on nodes in a file of `kubectl get pods -A -o json`. UserError: it cannot be read."""
    command = "kubectl get pods -A -o json"
    pods = _convert(_read_document(path, f"give what this prints: {command}"), _PodList, path, command).items
    return [pod for pod in pods if pod.spec.node_name and pod.status.phase not in {"Succeeded", "Failed"}]


def generate_nodes(
    count: int, node: SchedulableNode, lowest: float, highest: float
) -> tuple[list[SimulatedNode], list[Pod]]:
    """Return nodes like `node`, used by shares from the lowest to the highest, and the Pods that run on them.

    The Pods of each node request the same: the mean of both shares. So requests do not tell which node is hot.
    """
    width, mean = len(str(count)), (lowest + highest) / 2
    requests: Amounts = {"cpu": f"{round(mean * node.cpu_millis)}m", "memory": str(round(mean * node.memory_bytes))}
    nodes, pods = [], []
    for number in range(count):
        name = f"node-{number + 1:0{width}}"
        used = lowest + (highest - lowest) * number / max(1, count - 1)
        load = NodeLoad("generated", 0.0, used * node.cpu_millis, used * node.memory_bytes)
        nodes.append(SimulatedNode(replace(node, name=name), load=load))
        metadata = PodMetadata(name=f"on-{name}", namespace="running", uid=f"on-{name}")
        containers = (Container(name="c", resources=Resources(requests)),)
        pods.append(Pod(metadata, PodSpec(node_name=name, containers=containers)))
    return nodes, pods


def _make_node(found: _Node, path: Path) -> SimulatedNode:
    amounts, name = found.status.allocatable, found.metadata.name
    try:
        cpu, memory, pods = (pod_requests.read_amount(amounts, resource) for resource in ("cpu", "memory", "pods"))
    except ValueError as error:
        raise UserError(f"{path}: node {name}: status.allocatable.{error}") from None
    node = SchedulableNode(name, (cpu or 0) / _MILLI, (memory or 0) / pod_requests.NANO, found.metadata.labels)
    pods_max = _PODS_MAX if pods is None else pods // pod_requests.NANO
    return SimulatedNode(node, pods_max, taints=found.spec.taints or ())


def _read_document(path: Path, remedy: str) -> Mapping[str, Any]:
    found = read_documents(path)
    if len(found) != 1 or not isinstance(found[0], dict):
        raise UserError(f"{path}: not one object", remedy)
    return found[0]


def _convert(found: object, kind: Any, path: Path, command: str, of: str = "") -> Any:
    try:
        return msgspec.convert(found, kind)
    except msgspec.ValidationError as error:
        raise UserError(f"{path}: {of}{error}", f"give what this prints: {command}") from None
