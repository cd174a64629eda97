"""Pods of DaemonSets: each has one node, and loads do not keep it off; NUMA zones do, as its kubelet would."""

import asyncio
import json
from typing import Any

import pytest

from tests.core.reviewing import policy_of
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.kubernetes.pod_requests import NANO
from webhook.core.scheduling.measured_load import NodeLoad
from webhook.core.scheduling.node_table import KnownNode, SchedulableNode
from webhook.core.scheduling.numa import NumaZones
from webhook.extender.extender import Extender
from webhook.extender.scheduling_records import SchedulingRecords

NOW = 1_795_500_000.0
POLICY = policy_of(
    """
- name: agent
  match: {namespaces: [shop]}
  placement: {schedulerName: podgate-scheduler}
  scheduling: {hot: {cpu: 0.8}, pressure: {memory: 0.1}, whenUnknown: Refuse, numa: Required}
""",
    "nodes: {sources: [{prometheus: {url: 'http://p'}}]}",
)
DAEMON_SET = {"apiVersion": "apps/v1", "kind": "DaemonSet", "controller": True}
OWNERS = {
    "a DaemonSet": DAEMON_SET,
    "a DaemonSet of another version": DAEMON_SET | {"apiVersion": "apps/v99"},
    "a DaemonSet without a node": DAEMON_SET,
    "a DaemonSet with two nodes": DAEMON_SET,
    "a DaemonSet with one node or another": DAEMON_SET,
    "a DaemonSet with any node but one": DAEMON_SET,
    "a DaemonSet with a label of the name": DAEMON_SET,
    "a DaemonSet with a preferred node": DAEMON_SET,
    "a ReplicaSet": {"apiVersion": "apps/v1", "kind": "ReplicaSet", "controller": True},
    "a DaemonSet that is not its controller": {"apiVersion": "apps/v1", "kind": "DaemonSet"},
    "nobody": {},
    "a DaemonSet of another API": {"apiVersion": "apps.kruise.io/v1alpha1", "kind": "DaemonSet", "controller": True},
}
PINNED = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}
TERMS: dict[str, list[dict[str, Any]]] = {
    "a DaemonSet without a node": [],
    "a DaemonSet with two nodes": [{"matchFields": [PINNED["matchFields"][0] | {"values": ["n", "m"]}]}],
    "a DaemonSet with one node or another": [
        PINNED,
        {"matchFields": [PINNED["matchFields"][0] | {"values": ["m"]}]},
    ],
    "a DaemonSet with any node but one": [{"matchFields": [PINNED["matchFields"][0] | {"operator": "NotIn"}]}],
    "a DaemonSet with a label of the name": [{"matchExpressions": PINNED["matchFields"]}],
    "a DaemonSet with a preferred node": [],
}
REASONS = {
    "hot": "node(s) above the cpu hot threshold 0.8",
    "pressed": "node(s) above the memory pressure threshold 0.1",
    "unknown": "node(s) had no fresh load",
}
NO_ZONE = "node(s) had no single NUMA zone with the requested cpu and memory"


@pytest.fixture
def extender() -> Extender:
    """Return one that knows a hot node, one under pressure, one without load, and a cool one with small zones."""
    policy = CompiledPolicy(POLICY)
    extender = Extender(lambda: policy, SchedulingRecords(lambda: None), lambda: NOW)
    table = extender.table
    names = (*REASONS, "small-zones")
    table.index.on_nodes_listed(KnownNode(SchedulableNode(name, 64_000.0, 2.0**40)) for name in names)
    table.configure(POLICY.policy.nodes, ["prometheus"])
    loads = {
        name: NodeLoad("prometheus", NOW, 60_000.0 if name == "hot" else 0.0, 0.0)
        for name in names
        if name != "unknown"
    }
    loads["pressed"] = NodeLoad("prometheus", NOW, 0.0, 0.0, memory_pressure=0.5)
    table.take_measurements("prometheus", loads)
    table.settle(table.list_nodes())
    zone = {"cpu": 1 * NANO}
    table.numa.on_numa_listed({"small-zones": NumaZones((zone,), is_by_pod=False)})
    asyncio.run(table.index.on_list_begun())
    asyncio.run(table.index.on_list_complete())
    return extender


def call(extender: Extender, verb: str, owner: str, nodes: list[str]) -> Any:
    amounts = {"cpu": "2", "memory": "1Gi"}
    metadata = {
        "name": owner,
        "namespace": "shop",
        "uid": owner,
        "labels": {"podgate.io/service": "agent"},
        "ownerReferences": [{**OWNERS[owner], "name": "agent", "uid": "owner"}] if OWNERS[owner] else [],
    }
    containers = [{"name": "c", "resources": {"requests": amounts, "limits": amounts}}]
    terms = TERMS.get(owner, [PINNED])
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}} if terms else {}
    if owner == "a DaemonSet with a preferred node":
        affinity["preferredDuringSchedulingIgnoredDuringExecution"] = [{"weight": 1, "preference": PINNED}]
    spec = {"containers": containers, "affinity": {"nodeAffinity": affinity}}
    body: dict[str, Any] = {"Pod": {"metadata": metadata, "spec": spec}}
    if verb == "preempt":
        body["NodeNameToMetaVictims"] = {name: {"Pods": [{"UID": "v"}]} for name in nodes}
    else:
        body["NodeNames"] = nodes
    return json.loads(getattr(extender, verb)(json.dumps(body).encode()))


@pytest.mark.parametrize("node", list(REASONS))
def test_pod_of_a_daemon_set_is_not_refused_by_load(extender: Extender, node: str) -> None:
    for owner in OWNERS:  # each in turn: verdicts are kept by kind of Pod
        found = call(extender, "filter", owner, [node])
        passes = owner == "a DaemonSet"
        assert found.get("NodeNames", []) == ([node] if passes else [])
        assert (found.get("FailedAndUnresolvableNodes") or {}) == ({} if passes else {node: REASONS[node]})
        victims = call(extender, "preempt", owner, [node])["NodeNameToMetaVictims"]
        assert list(victims) == ([node] if passes else [])


def test_terms_that_admission_adds_leave_it_a_pod_of_a_daemon_set(
    extender: Extender, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It adds its own to each."""
    label = {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["web"]}]}
    both = [PINNED | label, PINNED | {"matchExpressions": [{"key": "pool", "operator": "Exists"}]}]
    monkeypatch.setitem(TERMS, "a DaemonSet", both)
    assert call(extender, "filter", "a DaemonSet", ["hot"])["NodeNames"] == ["hot"]


def test_load_of_a_pod_of_a_daemon_set_counts_on_its_node(extender: Extender) -> None:
    call(extender, "filter", "a DaemonSet", ["hot"])
    assert extender.table.rows["hot"].assumed.cpu_millis == 0.85 * 2000


def test_pod_of_a_daemon_set_is_refused_where_its_kubelet_would_refuse_it(extender: Extender) -> None:
    for owner in OWNERS:
        found = call(extender, "filter", owner, ["small-zones"])
        assert found["FailedAndUnresolvableNodes"] == {"small-zones": NO_ZONE}
