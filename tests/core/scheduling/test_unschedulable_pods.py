"""Unschedulable Pods: after any calls, events and changes those that fit are those computed from scratch."""

from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from webhook.core.kubernetes.pod import Pod
from webhook.core.kubernetes.quantity import Number
from webhook.core.policy_fields.scheduling import Hot, Scheduling
from webhook.core.scheduling.hot_node_filters import NodeFilters, make_filters
from webhook.core.scheduling.measured_load import NodeLoad
from webhook.core.scheduling.node_table import NodeRow, NodeRows, SchedulableNode
from webhook.core.scheduling.unschedulable_pods import KINDS_MAX, UnschedulablePods

names, uids = st.sampled_from("abcdef"), st.sampled_from("pqrstu")


def build_pod(uid: str, service: str = "web", cpu: str = "1") -> Pod:
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    metadata = {"name": uid, "namespace": "shop", "uid": uid, "labels": {"podgate.io/service": service}}
    return msgspec.convert({"metadata": metadata, "spec": {"containers": [container]}}, Pod)


class Waiting(RuleBasedStateMachine):
    """Pods of two services, whose thresholds change, on nodes that come, go and change."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting, self.rows = UnschedulablePods(), NodeRows()
        self.limits: dict[str, float | None] = {"web": 0.5, "api": 0.5}
        self.rules: object = object()
        self.nodes: dict[str, tuple[Pod, str, set[str]]] = {}

    def find_filters(self, pod: Pod) -> NodeFilters | None:
        limit = self.limits[pod.labels["podgate.io/service"]]
        return None if limit is None else make_filters(pod, Scheduling(hot=Hot(cpu=Number(limit))))

    @rule(uid=uids, service=st.sampled_from(["web", "api"]), cpu=st.sampled_from("12"), refused=st.sets(names))
    def refuse(self, uid: str, service: str, cpu: str, refused: set[str]) -> None:
        pod = build_pod(uid, service, cpu)
        self.waiting.note_refusal(service, pod, frozenset(refused))
        self.nodes[uid] = pod, service, refused

    @rule(uid=uids)
    def forget(self, uid: str) -> None:
        self.waiting.forget(uid)
        self.nodes.pop(uid, None)

    @rule(name=names, millis=st.sampled_from([100, 400, 600, 900]))
    def measure(self, name: str, millis: int) -> None:
        node = SchedulableNode(name, 1000, 1000)
        self.rows.put(NodeRow.from_node(node, NodeLoad("prometheus", 0.0, millis, 0.0)))

    @rule(name=names)
    def drop(self, name: str) -> None:
        self.rows.drop(name)

    @rule(service=st.sampled_from(["web", "api"]), limit=st.sampled_from([0.3, 0.5, 0.8, None]))
    def change_policy(self, service: str, limit: float | None) -> None:
        self.limits[service], self.rules = limit, object()

    @invariant()
    def those_that_fit_are_found(self) -> None:
        for _ in range(2):
            for uid in self.waiting.begin_round(len(self.rows.by_name)):
                self.waiting.keep_noted(uid)
        for kind in self.waiting.list_kinds():
            self.waiting.judge(kind, self.rows, self.rules, self.find_filters)
        fitting = {
            uid
            for uid, (pod, _, refused) in self.nodes.items()
            if (filters := self.find_filters(pod)) is None
            or any((row := self.rows.by_name.get(name)) and filters.find_refusal(row) is None for name in refused)
        }
        assert {pod.uid for pod in self.waiting.list_fitting()} == fitting
        assert len(self.waiting) == len(self.nodes)


TestWaiting: Any = Waiting.TestCase
TestWaiting.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def keep_all(waiting: UnschedulablePods) -> None:
    for _ in range(2):
        for uid in waiting.begin_round(1):
            waiting.keep_noted(uid)


def test_memory_is_bounded_by_pods_kinds_and_names_of_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = UnschedulablePods()
    assert kinds.is_incomplete, "others may have been refused by an earlier process"
    kinds.forget_until(0)
    assert not kinds.is_incomplete
    for number in range(KINDS_MAX + 1):
        kinds.note_refusal("web", build_pod(f"p-{number}", cpu=str(number)), {"a"})
    keep_all(kinds)
    assert (len(kinds), kinds.is_incomplete) == (KINDS_MAX, True)
    kinds.forget_until(kinds.serial)
    assert (len(kinds), kinds.is_incomplete, kinds.list_kinds()) == (0, False, [])
    wide = UnschedulablePods()
    nodes = {f"node-{number}" for number in range(1000)}
    for number in range(200):
        wide.note_refusal("web", build_pod(f"p-{number}"), nodes)
    assert len(wide) == 100, "the names of the first ones are no longer held"
    monkeypatch.setattr("webhook.core.scheduling.unschedulable_pods._NODES_MIN", 10)
    keep_all(wide)
    assert (len(wide), wide.is_incomplete) == (0, True), "most of the nodes that were named are gone"
