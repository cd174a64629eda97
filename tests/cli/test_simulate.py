"""`podgate simulate`: its inputs, generated and recorded, and what it prints."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.cli.command_runner import Done, encode_lines, podgate
from tests.cli.documented_commands import ROOT, find_documented
from webhook.core.reporting.node_document import NodeDocument, ShownNode
from webhook.core.scheduling.measured_load import NodeLoad

POLICY = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
nodes: {sources: [{prometheus: {url: "https://prometheus:9090"}}, {requests: {}}]}
services:
- {name: web, match: {namespaces: [shop]}, placement: {schedulerName: s}, scheduling: {hot: {cpu: 0.8}}}
- {name: plain, match: {namespaces: [other]}}
- {name: bound, match: {namespaces: [numa]}, placement: {schedulerName: s}, scheduling: {numa: Required}}
"""
ASKS = {"at": 0, "namespace": "shop"}
GIB = 1 << 30
Simulate = Callable[..., Done]


@pytest.fixture
def simulate(tmp_path: Path) -> Simulate:
    (tmp_path / "policy.yaml").write_text(POLICY)

    def run(*arguments: str | Path) -> Done:
        return podgate("simulate", "--policy", tmp_path / "policy.yaml", *arguments)

    return run


def write_document(path: Path, document: object) -> Path:
    path.write_bytes(msgspec.json.encode(document))
    return path


def kubernetes_node(name: str, *, cordoned: bool = False) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": {"unschedulable": True} if cordoned else {},
        "status": {"allocatable": {"cpu": "10", "memory": "100Gi", "pods": "110"}},
    }


def make_shown_node(name: str, share: float) -> ShownNode:
    load = NodeLoad("prometheus", 1.7e9, share * 10_000.0, 0.1 * 100 * GIB)
    return ShownNode(
        name,
        share,
        0.1,
        0.0,
        0.0,
        load=load,
        numa_cpu_millis=None,
        allocatable_cpu_millis=10_000.0,
        allocatable_memory_bytes=100.0 * GIB,
    )


def container(**requests: str) -> dict[str, Any]:
    return {"containers": [{"name": "c", "image": "i", "resources": {"requests": requests}}]}


def test_page_has_what_its_command_prints(tmp_path: Path) -> None:
    """The policy is the one that the page begins with."""
    page = (ROOT / "docs/scheduling.md").read_text()
    stanzas = page.split("```yaml\n")[1].split("```")[0]
    (tmp_path / "policy.yaml").write_text(f"apiVersion: podgate.io/v1alpha1\nkind: Policy\n{stanzas}")
    [command] = [
        documented.words
        for documented in find_documented()
        if documented.words[:2] == ("podgate", "simulate") and len(documented.words) > 2
    ]
    arguments = [str(tmp_path / word) if word == "policy.yaml" else word for word in command[1:]]
    assert f"```\n{podgate(*arguments, '-o', 'table').out}```\n" in page


def test_generated_pods_arrive_one_after_another(simulate: Simulate) -> None:
    found = simulate("--service=web", "--nodes=2", "--pods=3", "--every=1m", "--for=2m", "-o", "json").document
    assert (found["pods"], found["durationSeconds"]) == (3, 240.0)
    assert sorted(found) == ["default", "durationSeconds", "extender", "notModelled", "pods", "withoutAssumedLoad"]


def test_recorded_cluster_and_recorded_pods(simulate: Simulate, tmp_path: Path) -> None:
    nodes = write_document(
        tmp_path / "nodes.json",
        {"kind": "List", "items": [kubernetes_node("a"), kubernetes_node("b"), kubernetes_node("off", cordoned=True)]},
    )
    loads = write_document(
        tmp_path / "loads.json",
        NodeDocument((make_shown_node("a", 0.64), make_shown_node("b", 0.3), make_shown_node("gone", 0.1)), 3),
    )
    running = {
        "items": [
            {"metadata": {"name": "big", "uid": "big"}, "spec": {**container(cpu="8500m"), "nodeName": "b"}},
            {"metadata": {"name": "next"}, "spec": container(cpu="1")},
        ]
    }
    events = [
        {"at": 0, "namespaceLabels": {"shop": {}}},
        {"at": 1, "pod": {"spec": container(cpu="1")}, "namespace": "shop", "uid": "u1"},
        {"at": 2, "pod": {"spec": container(cpu="1")}, "namespace": "shop"},
        {"at": 3, "pod": {"spec": container(cpu="1")}, "namespace": "shop"},
        {"at": 4, "pod": {"spec": container(cpu="500m")}, "namespace": "other"},
        {"at": 5, "pod": {"spec": container(cpu="1")}, "namespace": "shop", "dryRun": True},
        {"at": 100, "deleted": "u1"},
    ]
    pods = tmp_path / "events.jsonl"
    pods.write_text("".join(encode_lines(events)))
    files = (
        "--nodes",
        nodes,
        "--loads",
        loads,
        "--running",
        write_document(tmp_path / "pods.json", running),
        "--pods",
        pods,
    )
    found = simulate(*files, "-o", "json").document
    assert found["pods"] == 4
    assert [node["name"] for node in found["default"]["nodes"]] == ["a", "b"]
    assert found["extender"]["placed"] == 4
    assert found["extender"]["longestWaitSeconds"] >= 96.0, "one waits until u1 has left room on a"
    assert simulate(*files, "--service=web", "-o", "json").document["pods"] == 3


def test_output_of_podgate_nodes_is_enough_for_the_nodes(simulate: Simulate, tmp_path: Path) -> None:
    nodes = write_document(
        tmp_path / "nodes.json", NodeDocument((make_shown_node("a", 0.5), make_shown_node("b", 0.9)), 2)
    )
    found = simulate("--service=web", "--nodes", nodes, "--pods=2", "-o", "json").document
    assert {node["name"]: node["pods"] for node in found["extender"]["nodes"]} == {"a": 2, "b": 0}
    assert {node["name"]: node["cpuBefore"] for node in found["extender"]["nodes"]} == {"a": 0.5, "b": 0.9}


def topology(name: str, *cpus: int) -> dict[str, Any]:
    zones = [
        {"name": f"node-{number}", "type": "Node", "resources": [{"name": "cpu", "available": str(cpu)}]}
        for number, cpu in enumerate(cpus)
    ]
    policy = {"name": "topologyManagerPolicy", "value": "single-numa-node"}
    return {"metadata": {"name": name}, "attributes": [policy], "zones": zones}


def test_pods_that_no_zone_holds_fail_by_default_and_wait_with_the_extender(simulate: Simulate, tmp_path: Path) -> None:
    """Each zone of one node holds one of the Pods, and no zone of the other node does."""
    amounts = {"cpu": "4", "memory": "1Gi"}
    asking = {"containers": [{"name": "c", "image": "i", "resources": {"requests": amounts, "limits": amounts}}]}
    events = [{"at": at, "pod": {"spec": asking}, "namespace": "numa"} for at in (0, 60, 120)]
    (pods := tmp_path / "events.jsonl").write_text("".join(encode_lines(events)))
    nodes = write_document(tmp_path / "nodes.json", {"items": [kubernetes_node("whole"), kubernetes_node("split")]})
    loads = write_document(
        tmp_path / "loads.json", NodeDocument((make_shown_node("whole", 0.1), make_shown_node("split", 0.1)), 2)
    )
    zones = write_document(tmp_path / "zones.json", {"items": [topology("whole", 5, 5), topology("split", 3, 3, 3)]})
    files = ("--nodes", nodes, "--loads", loads, "--pods", pods, "-o", "json")
    found = simulate(*files, "--topologies", zones).document
    assert found["notModelled"] == []
    assert [(found[name]["placed"], found[name]["failed"]) for name in ("default", "extender")] == [(0, 3), (2, 0)]
    assert {node["name"]: node["pods"] for node in found["extender"]["nodes"]} == {"whole": 2, "split": 0}
    assert found["extender"]["refused"] == {"node(s) had no single NUMA zone with the requested cpu and memory": 1}
    [missing] = simulate(*files).document["notModelled"]
    assert (missing["field"], missing["count"]) == ("NUMA zones", 3)
    write_document(zones, {"items": [topology("elsewhere", 1)]})
    assert ": none of its 1 nodes is one of --nodes: give files of" in simulate(*files, "--topologies", zones).error
    bad = {"zones": [{"type": "Node", "resources": [{"available": "x"}]}]}
    write_document(zones, {"items": [topology("whole", 6) | bad]})
    error = simulate(*files, "--topologies", zones).error
    assert "NodeResourceTopology whole: available: 'x': not a Kubernetes quantity" in error


def test_recorded_pods_of_other_schedulers_and_on_nodes_are_not_asked_about(simulate: Simulate, tmp_path: Path) -> None:
    loads = {"hot": 0.9, "cool": 0.1}
    nodes = write_document(tmp_path / "nodes.json", {"items": [kubernetes_node(name) for name in loads]})
    recorded = NodeDocument(tuple(make_shown_node(name, share) for name, share in loads.items()), 2)
    loads_file = write_document(tmp_path / "loads.json", recorded)
    specs = {
        "ours": {"schedulerName": "s", "nodeSelector": {"kubernetes.io/hostname": "hot"}},
        "default": {"nodeSelector": {"kubernetes.io/hostname": "hot"}},
        "theirs": {"schedulerName": "other-scheduler", "nodeSelector": {"kubernetes.io/hostname": "hot"}},
        "static": {"nodeName": "hot"},
        "elsewhere": {"nodeName": "unknown"},
    }
    events = [
        ASKS | {"pod": {"metadata": {"name": name}, "spec": container(cpu="1") | spec}} for name, spec in specs.items()
    ]
    (pods := tmp_path / "events.jsonl").write_text("".join(encode_lines(events)))
    found = simulate("--nodes", nodes, "--loads", loads_file, "--pods", pods, "-o", "json").document
    assert {node["name"]: node["pods"] for node in found["default"]["nodes"]} == {"hot": 4, "cool": 0}
    assert {node["name"]: node["pods"] for node in found["extender"]["nodes"]} == {"hot": 2, "cool": 0}
    assert (found["pods"], found["extender"]["waiting"]) == (4, 2)
    assert {gap["field"]: gap["example"] for gap in found["notModelled"]} == {
        "spec.schedulerName of other schedulers": "shop/theirs",
        "spec.nodeName of other nodes": "shop/elsewhere",
    }


def test_what_is_not_modelled_is_named_with_its_pods(simulate: Simulate, tmp_path: Path) -> None:
    apart = {"topologyKey": "zone", "labelSelector": {}}
    term = {"preference": {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}, "weight": 1}
    spec = container(cpu="1") | {
        "affinity": {
            "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]},
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]},
        },
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
        "priorityClassName": "high",
        "nodeSelector": {"disk": "ssd"},
    }
    events = [ASKS | {"pod": {"metadata": {"name": name}, "spec": spec}} for name in ("one", "two")]
    greedy = container(**{"nvidia.com/gpu": "1"}) | {"affinity": {"podAffinity": {}}}
    events.append(ASKS | {"pod": {"metadata": {"name": "other"}, "spec": greedy}})
    (pods := tmp_path / "events.jsonl").write_text("".join(encode_lines(events)))
    lines = simulate("--nodes=2", "--pods", pods, "-o", "table").out.splitlines()
    given = "nodeSelector and node affinity on nodes without labels (2 Pods, such as shop/one): give --nodes the output"
    preferred = "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution"
    assert [line.removeprefix("warning: simulate does not model ") for line in lines if "warning" in line] == [
        f"{preferred} (2 Pods, such as shop/one)",
        "spec.affinity.podAffinity (1 Pod, such as shop/other)",
        "spec.topologySpreadConstraints (2 Pods, such as shop/one)",
        "preemption by spec.priorityClassName (2 Pods, such as shop/one)",
        "requests other than cpu and memory (1 Pod, such as shop/other)",
        "spec.affinity.podAntiAffinity (2 Pods, such as shop/one)",
        f"{given} of kubectl get nodes -o json",
    ]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--nodes=0",), "--nodes 0: not from 1 to 5000: write a number"),
        (("--pods=1000000",), "--pods 1000000: not from 1 to 100000"),
        (("--load=60..20",), "--load '60..20': not shares from the lowest to the highest: write for example 0.2..0.6"),
        (("--cpu=many",), "--cpu 'many': not a Kubernetes quantity"),
        (("--every=fast",), "--every 'fast': not a Go duration"),
        (
            ("--service=plain",),
            "--service 'plain': has no scheduling and no shares: services with scheduling or shares: web",
        ),
        (("--service=nobody",), "--service 'nobody': is no service of the policy"),
        (
            ("--nodes=/nowhere.json",),
            "--nodes '/nowhere.json': neither a number nor a file: write a number from 1 to 5000",
        ),
        (("--nodes=-5",), "--nodes '-5': neither a number nor a file"),
        (("--node-cpu=0",), "--node-cpu '0': a node has some: write for example 16 or 64Gi"),
        (("--pods=/nowhere.jsonl",), "--pods /nowhere.jsonl: No such file or directory: give a number, or a readable"),
        (("--running=/x",), "--running /x: needs recorded nodes: give --nodes FILE, or remove it"),
        (("--topologies=/x",), "--topologies /x: needs recorded nodes: give --nodes FILE, or remove it"),
    ],
)
def test_bad_input_is_named_with_a_remedy(simulate: Simulate, arguments: tuple[str, ...], error: str) -> None:
    done = simulate(*arguments)
    assert (done.code, done.out) == (2, "")
    assert done.error.startswith(error)


@pytest.mark.parametrize(
    ("nodes", "error"),
    [
        ([], ": not one object: give what this prints: kubectl get nodes"),
        ({"items": []}, ": no node that takes Pods: give what this prints"),
        ({"items": [{"metadata": {"name": "a"}}]}, ": Object missing required field `status`"),
        (
            {"items": [kubernetes_node("a") | {"status": {"allocatable": {"cpu": "much"}}}]},
            ": node a: status.allocatable.cpu: 'much': not a Kubernetes quantity",
        ),
        ({"items": [kubernetes_node("a")]}, ": no node has a load: give --loads FILE"),
    ],
)
def test_bad_nodes_are_named_with_a_remedy(simulate: Simulate, tmp_path: Path, nodes: object, error: str) -> None:
    done = simulate("--nodes", write_document(tmp_path / "nodes.json", nodes))
    assert done.code == 2
    assert error in done.error


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("{", "events.jsonl:1: not JSON"),
        (
            json.dumps({"at": 0, "pod": {"spec": container(cpu="x")}, "namespace": "shop"}),
            "events.jsonl:1: pod: cpu: 'x'",
        ),
        (json.dumps(ASKS | {"pod": {"spec": 3}}), "events.jsonl:1: pod: Expected `object`"),
        (json.dumps({"at": 0, "deleted": "u"}), "events.jsonl: creates no Pod: give a recording"),
    ],
)
def test_bad_events_are_named_with_a_remedy(simulate: Simulate, tmp_path: Path, line: str, error: str) -> None:
    (tmp_path / "events.jsonl").write_text(line + "\n")
    done = simulate("--pods", tmp_path / "events.jsonl")
    assert done.code == 2
    assert error in done.error


DIVIDED = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: web
  match: {namespaces: [shop]}
  placement:
    shares:
      base: {variant: on-demand, pods: 2}
      variants:
      - {name: spot, weight: 80, nodeSelector: {capacity-type: spot}}
      - {name: on-demand, weight: 20, nodeSelector: {capacity-type: on-demand}}
"""


def simulate_divided(tmp_path: Path, *arguments: str | Path, **kinds: str) -> Done:
    """Simulate Pods of a service with shares, on nodes with these kinds of capacity."""
    (tmp_path / "policy.yaml").write_text(DIVIDED)
    found = [kubernetes_node(name) for name in kinds]
    for node in found:
        node["metadata"]["labels"]["capacity-type"] = kinds[node["metadata"]["name"]]
    nodes = write_document(tmp_path / "nodes.json", {"items": found})
    shown = NodeDocument(tuple(make_shown_node(name, 0.1) for name in kinds))
    loads = write_document(tmp_path / "loads.json", shown)
    return podgate("simulate", "--policy", tmp_path / "policy.yaml", "--nodes", nodes, "--loads", loads, *arguments)


def test_pods_of_a_service_with_shares_are_divided(tmp_path: Path) -> None:
    done = simulate_divided(tmp_path, "--pods", "10", "-o", "table", a="spot", b="on-demand")
    lines = [line for line in done.out.splitlines() if "variant" in line]
    assert lines[:2] == ["default: web, variant spot: 6 Pods", "default: web, variant on-demand: 4 Pods"]
    assert len(lines) == 6


def test_pods_fall_back_from_a_variant_without_nodes(tmp_path: Path) -> None:
    done = simulate_divided(tmp_path, "--pods", "10", "-o", "table", a="on-demand")
    assert (
        "extender: web, variant spot: 0 Pods, 6 more got another variant; opened 1 time, 6 evicted"
        in done.out.splitlines()
    )


def test_recorded_pods_of_controllers_are_divided_and_those_with_a_variant_are_not(tmp_path: Path) -> None:
    user = "system:serviceaccount:kube-system:replicaset-controller"
    owner = {"kind": "ReplicaSet", "name": "web-1", "uid": "rs", "controller": True}
    spec = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}
    recorded = (
        {"ownerReferences": [owner]},
        {"ownerReferences": [owner], "labels": {"podgate.io/variant": "spot"}},
        {},
    )
    events = [
        {"at": 0, "namespace": "shop", "user": user, "uid": f"u{number}", "pod": {"metadata": metadata, "spec": spec}}
        for number, metadata in enumerate(recorded)
    ]
    recording = tmp_path / "events.jsonl"
    recording.write_text("".join(encode_lines(events)))
    done = simulate_divided(tmp_path, "--pods", recording, "-o", "json", a="spot", b="on-demand")
    variants = done.document["default"]["variants"]
    assert [(found["variant"], found["pods"]) for found in variants] == [("spot", 0), ("on-demand", 1)]
    assert done.document["default"]["placed"] == 3
