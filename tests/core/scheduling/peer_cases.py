"""Helpers of the tests that hold the extender against published cases of other schedulers' plugins."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec

from tests.core.reviewing import policy_of
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.kubernetes.pod import Pod
from webhook.core.policy_fields.scheduling import Scheduling
from webhook.core.scheduling.assumed_load import estimate_load
from webhook.core.scheduling.measured_load import NodeLoad
from webhook.core.scheduling.node_table import KnownNode, SchedulableNode
from webhook.extender.extender import Extender
from webhook.extender.scheduling_records import SchedulingRecords

GIB = float(1 << 30)
NOW_SECONDS = 1_795_500_000.0


class Held(StrEnum):
    """Result of a comparison. What differs has its reason."""

    SAME = "same"
    BETTER = "better"
    OTHER = "other"


@dataclass(frozen=True)
class Case:
    """One published case: the node's use in cores and GiB, what Pods ask for, and the outcome of both.

    `theirs` and `ours` are the resource that refuses, "" if the node passes, or a score.
    """

    name: str
    theirs: str | int
    ours: str | int
    held: Held = Held.SAME
    why: str = ""
    used: tuple[float, float] | None = (0.0, 0.0)
    varies: tuple[float, float] | None = None
    """Standard deviations."""
    asks: dict[str, str] = field(default_factory=dict)
    limits: dict[str, str] | None = None
    assigned: Sequence[dict[str, str]] = ()
    rules: str = "{}"
    """The stanza `scheduling`."""
    age_seconds: float = 0.0
    has_label: bool = True


def check_case(case: Case) -> None:
    """Check that what is stated about a case holds together: only equal outcomes are the same."""
    assert (case.theirs == case.ours) == (case.held is Held.SAME), case
    assert case.why or case.held is Held.SAME, case


class PeerExtender:
    """An extender with the node of a case, and another one, so that a node without load is noticed."""

    def __init__(self, case: Case, cores: float, gibibytes: float) -> None:
        service = "name: web, match: {namespaces: [shop]}, placement: {schedulerName: s}"
        policy = policy_of(
            f"- {{{service}, scheduling: {case.rules}}}\n",
            "nodes: {sources: [{prometheus: {url: 'http://p'}}], forgetAfter: 90s}",
        )
        compiled = CompiledPolicy(policy)
        self._case = case
        self.records = SchedulingRecords(lambda: None)
        self.extender = Extender(lambda: compiled, self.records, lambda: NOW_SECONDS)
        table = self.extender.table
        table.index.on_nodes_listed(
            KnownNode(SchedulableNode(name, 1000 * cores, gibibytes * GIB)) for name in ("n", "other")
        )
        table.configure(policy.policy.nodes, ["prometheus"])
        loads = {"other": NodeLoad("prometheus", NOW_SECONDS, 0.0, 0.0)}
        if case.used is not None:
            cpu, memory = case.used
            loads["n"] = NodeLoad("prometheus", NOW_SECONDS - case.age_seconds, 1000 * cpu, memory * GIB)
            if case.varies is not None:
                millis, bytes_ = 1000 * case.varies[0], case.varies[1] * GIB
                loads["n"] = msgspec.structs.replace(
                    loads["n"], cpu_deviation_millis=millis, memory_deviation_bytes=bytes_
                )
        table.take_measurements("prometheus", loads)
        table.settle(table.list_nodes())
        asyncio.run(table.index.on_list_begun())
        asyncio.run(table.index.on_list_complete())
        rules = self.extender.list_services()["web"].rules
        for number, asks in enumerate(case.assigned):
            pod = msgspec.convert(build_pod(f"assigned-{number}", asks, asks), Pod)
            table.assign(pod, estimate_load(pod, rules.estimate), 60.0, "n")

    @property
    def rules(self) -> Scheduling:
        return self.extender.list_services()["web"].rules

    def filter(self) -> str:
        """Return the resource for which the node is refused, "" if it passes."""
        found = json.loads(self.extender.filter(self._build_request()))
        reason = found.get("FailedAndUnresolvableNodes", {}).get("n", "")
        return next((name for name in ("cpu", "memory", "fresh load") if name in reason), reason)

    def score(self) -> int:
        found = json.loads(self.extender.prioritize(self._build_request()))
        return int(next(priority["Score"] for priority in found if priority["Host"] == "n"))

    def _build_request(self) -> bytes:
        case = self._case
        pod = build_pod("incoming", case.asks, case.asks if case.limits is None else case.limits)
        if not case.has_label:
            del pod["metadata"]["labels"]
        return json.dumps({"Pod": pod, "NodeNames": ["n", "other"]}).encode()


def build_pod(name: str, requests: dict[str, str], limits: dict[str, str]) -> dict[str, Any]:
    resources = {"requests": requests, "limits": limits}
    metadata = {"name": name, "namespace": "shop", "uid": name, "labels": {"podgate.io/service": "web"}}
    return {"metadata": metadata, "spec": {"containers": [{"name": "c", "resources": resources}]}}
