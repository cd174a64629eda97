"""Zones that were not listed yet: no node passes a Pod that needs one, for as long as none can be known."""

import asyncio
import json
from typing import Any

import pytest

from tests.core.reviewing import policy_of
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.kubernetes.pod_requests import NANO
from webhook.core.scheduling.node_table import KnownNode, SchedulableNode
from webhook.core.scheduling.numa import NumaZones
from webhook.extender.extender import Extender
from webhook.extender.scheduling_records import SchedulingRecords

SERVICES = """
- name: web
  match: {namespaces: [shop]}
  placement: {schedulerName: podgate-scheduler}
  scheduling: {numa: Required}
"""
UNLISTED = "node(s) had no NUMA zones listed yet"
NO_ZONE = "node(s) had no single NUMA zone with the requested cpu and memory"
ALL = ["full", "other"]


class Bench:
    def __init__(self, services: str = SERVICES) -> None:
        self.policy = CompiledPolicy(policy_of(services))
        self.is_listed = False
        self.extender = Extender(
            lambda: self.policy, SchedulingRecords(lambda: None), lambda: 1_795_500_000.0, lambda: self.is_listed
        )
        index = self.extender.table.index
        index.on_nodes_listed(KnownNode(SchedulableNode(name, 64_000.0, 2.0**40)) for name in ALL)
        asyncio.run(index.on_list_begun())
        asyncio.run(index.on_list_complete())

    def list_zones(self) -> None:
        self.extender.table.numa.on_numa_listed({"full": NumaZones(({"cpu": NANO},), is_by_pod=False)})
        self.is_listed = True

    def filter(self, **asked: Any) -> tuple[list[str], dict[str, str]]:
        """Return the nodes that pass, and why the others do not."""
        found = json.loads(self.extender.filter(body(NodeNames=ALL, **asked)))
        return found.get("NodeNames", []), found.get("FailedAndUnresolvableNodes", {})

    def preempt(self) -> list[str]:
        asked = {"NodeNameToMetaVictims": {name: {"Pods": [{"UID": "v"}]} for name in ALL}}
        return [*json.loads(self.extender.preempt(body(**asked)))["NodeNameToMetaVictims"]]


def body(owner: str = "", *, is_guaranteed: bool = True, **asked: Any) -> bytes:
    amounts = {"cpu": "2", "memory": "1Gi"}
    resources = {"requests": amounts, **({"limits": amounts} if is_guaranteed else {})}
    metadata: dict[str, Any] = {"name": "p", "namespace": "shop", "uid": "u"}
    metadata |= {"labels": {"podgate.io/service": "web"}}
    if owner:
        metadata["ownerReferences"] = [{"apiVersion": "apps/v1", "kind": owner, "controller": True}]
    pod = {"metadata": metadata, "spec": {"containers": [{"resources": resources}]}}
    return json.dumps({"Pod": pod, **asked}).encode()


@pytest.mark.parametrize("owner", ["", "DaemonSet"])
def test_pods_that_need_a_zone_wait_for_the_first_list(owner: str) -> None:
    bench = Bench()
    for _ in range(2):
        assert bench.filter(owner=owner) == ([], dict.fromkeys(ALL, UNLISTED))
    assert bench.preempt() == [], "nobody is evicted in vain"
    assert bench.filter(is_guaranteed=False) == (ALL, {})
    bench.list_zones()
    assert bench.filter(owner=owner) == (["other"], {"full": NO_ZONE}), "a node without a report passes"
    assert bench.preempt() == ["other"]


def test_a_list_that_fails_refuses_nothing() -> None:
    bench = Bench()
    assert bench.filter()[0] == []
    bench.is_listed = True
    assert bench.filter() == (ALL, {})


@pytest.mark.parametrize(
    "services", [SERVICES.replace("{numa: Required}", "{}"), SERVICES + "  modes: {scheduling: Audit}\n"]
)
def test_rules_that_refuse_no_node_by_its_zones_wait_for_nothing(services: str) -> None:
    assert Bench(services).filter() == (ALL, {})


def test_a_pod_that_was_refused_is_woken_once_a_node_takes_it() -> None:
    bench = Bench()
    bench.filter()
    waiting = bench.extender.waiting
    rows = bench.extender.table.node_rows

    def judge() -> int:
        for uid in waiting.begin_round(len(rows.by_name)):
            waiting.keep_noted(uid)
        for kind in waiting.list_kinds():
            waiting.judge(kind, rows, bench.extender.list_services(), bench.extender.find_filters)
        return len(waiting.list_fitting())

    assert (judge(), judge()) == (0, 0)
    bench.list_zones()
    assert judge() == 1
