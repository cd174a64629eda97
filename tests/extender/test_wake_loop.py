"""Wake loop in virtual time: each waiting Pod is woken by the nodes that refused it, and by nothing else."""

import asyncio
import json
from collections.abc import Iterable, Sequence

import msgspec
import pytest

from tests.core.reviewing import policy_of
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.kubernetes.pod import Pod
from webhook.core.kubernetes.pod_requests import NANO
from webhook.core.scheduling.measured_load import NodeLoad
from webhook.core.scheduling.node_table import KnownNode, SchedulableNode
from webhook.core.scheduling.numa import NumaZones
from webhook.core.scheduling.unschedulable_pods import WOKEN_AT, PodReference
from webhook.errors import SchedulerWakeError
from webhook.extender.extender import Extender
from webhook.extender.scheduling_records import SchedulingRecords
from webhook.extender.unschedulable_pod_events import UnschedulablePodEvents
from webhook.extender.wake_loop import (
    ALONE_SECONDS,
    ANSWER_SECONDS,
    INCOMPLETE_SECONDS,
    PODS_MAX,
    SchedulerWakeReports,
    WakeLoop,
)
from webhook.support.condition import Condition

MILLIS, COOL, WARM = 64_000.0, 10_000.0, 60_000.0
NODES = "nodes: {sources: [{prometheus: {url: 'http://p'}}]}"
RULES = "scheduling: {hot: {cpu: 0.8}}"


def compile_rules(rules: str, modes: str = "{scheduling: Enforce}") -> CompiledPolicy:
    web = f"- {{name: web, match: {{namespaces: [shop]}}, modes: {modes}, {rules}}}"
    other = "- {name: other, match: {namespaces: [other]}}"
    return CompiledPolicy(policy_of(f"{web}\n{other}", NODES))


class Cluster:
    """Hot nodes, Pods that were refused on them, and what is done to wake the Pods.

    `controller`: whether somebody annotates what the extender asks for.
    """

    def __init__(self, *nodes: str, rules: str = RULES, is_listed: bool = True, zone_cores: int = 0) -> None:
        self.now_seconds = 1_795_500_000.0
        self.policy = compile_rules(rules)
        self.extender = Extender(lambda: self.policy, SchedulingRecords(lambda: None), lambda: self.now_seconds)
        self.woken: list[set[str] | None] = []
        """What was woken: names, None for all."""
        self.has_controller = True
        self.refuses_requests = self.refuses_wakes = False
        self.pods: dict[str, Pod] = {}
        self.unanswered = 0
        self.said: list[str] = []

        def count_unanswered(count: int) -> None:
            self.unanswered += count

        conditions = [Condition(self.said.append, lambda reason: self.said.append(f"over: {reason}")) for _ in "ab"]
        reports = SchedulerWakeReports(lambda: None, lambda: None, count_unanswered, *conditions)
        self.extender.waiting.is_incomplete = False  # no other process was there before
        self.loop = WakeLoop(
            self.extender, self, self, lambda: self.extender.is_ready, reports, lambda: self.now_seconds
        )
        self.events = UnschedulablePodEvents(self.extender.table.index, self.extender.waiting, self.loop.on_answered)
        self.used = dict.fromkeys(nodes, WARM)
        self.zones = {name: NumaZones(({"cpu": zone_cores * NANO},), is_by_pod=False) for name in nodes if zone_cores}
        if is_listed:
            self.list_all()

    def list_all(self) -> None:
        table = self.extender.table
        table.index.on_nodes_listed(KnownNode(SchedulableNode(name, MILLIS, 2.0**40)) for name in self.used)
        table.configure(self.policy.policy.nodes, ["prometheus"])
        table.numa.on_numa_listed(self.zones)
        asyncio.run(self.events.on_list_begun())
        asyncio.run(self.events.on_listed(list(self.pods.values())))
        asyncio.run(self.events.on_list_complete())
        self.measure()

    def measure(self, **used: float) -> None:
        self.used |= used
        table = self.extender.table
        loads = {name: NodeLoad("prometheus", self.now_seconds, value, 0.0) for name, value in self.used.items()}
        table.take_measurements("prometheus", loads)
        table.settle(table.list_nodes())

    def try_pod(self, name: str, *asked: str, service: str = "web", cores: int = 1) -> list[str]:
        """Let the scheduler try a Pod on these nodes; return those that pass."""
        known = self.pods.get(name)
        amounts = {"cpu": str(cores), "memory": "1Gi"}
        containers = [{"name": "c", "resources": {"requests": amounts, "limits": amounts}}]
        metadata = {
            "name": name,
            "namespace": "shop",
            "uid": f"uid-{name}",
            "labels": {"podgate.io/service": service},
            "annotations": {} if known is None else dict(known.annotations),
        }
        document = {"metadata": metadata, "spec": {"containers": containers}}
        self.pods[name] = msgspec.convert(document, Pod)
        answer = json.loads(self.extender.filter(json.dumps({"Pod": document, "NodeNames": asked}).encode()))
        return list(answer.get("NodeNames", []))

    def bind(self, name: str, node: str) -> None:
        pod = self.pods[name]
        bound = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=node))
        asyncio.run(self.events.on_changed(bound, gone=False))

    def delete(self, name: str) -> None:
        asyncio.run(self.events.on_changed(self.pods.pop(name), gone=True))

    def run(self, seconds: int) -> list[set[str] | None]:
        """Let time pass; return what was woken meanwhile."""
        self.woken.clear()
        for _ in range(seconds):
            self.now_seconds += 1.0
            self.measure()
            asyncio.run(self.loop.round())
        return list(self.woken)

    async def wake(self) -> None:
        """Wake all: a `ports.SchedulerWake`."""
        if self.refuses_wakes:
            raise SchedulerWakeError("HTTP 403")
        self.woken.append(None)

    async def request(self, pods: Sequence[PodReference]) -> None:
        """Annotate what is asked for: a `ports.PodWakeRequests`."""
        if self.refuses_requests:
            raise SchedulerWakeError("HTTP 404")
        self.woken.append({pod.name for pod in pods})
        assert all(pod == PodReference("shop", pod.name, f"uid-{pod.name}") for pod in pods)
        if self.has_controller:
            for pod in pods:
                await self.annotate(pod.name)

    async def annotate(self, name: str, at: str = "") -> None:
        pod = self.pods[name]
        metadata = msgspec.structs.replace(pod.metadata, annotations={WOKEN_AT: at or f"{self.now_seconds:.3f}"})
        self.pods[name] = msgspec.structs.replace(pod, metadata=metadata)
        await self.events.on_changed(self.pods[name], gone=False)


def list_waiting(cluster: Cluster) -> set[str]:
    return {uid.removeprefix("uid-") for uid in cluster.extender.waiting.list_uids()}


def test_of_two_pods_of_one_shape_that_wait_for_two_nodes_the_one_whose_node_cools_is_woken() -> None:
    cluster = Cluster("a", "b")
    assert cluster.try_pod("for-a", "a") == []
    assert cluster.try_pod("for-b", "b") == []
    assert cluster.run(5) == []
    cluster.measure(a=COOL)
    assert cluster.run(3) == [{"for-a"}]
    assert cluster.try_pod("for-a", "a") == ["a"]
    cluster.measure(b=COOL)
    assert cluster.run(3) == [{"for-b"}]


def test_woken_pod_that_is_refused_again_waits_again_and_one_that_other_rules_refuse_is_left_to_them() -> None:
    cluster = Cluster("a")
    cluster.try_pod("p", "a")
    cluster.run(3)
    cluster.measure(a=COOL)
    assert cluster.run(2) == [{"p"}]
    cluster.measure(a=WARM)
    cluster.try_pod("p", "a")
    assert cluster.run(20) == []
    cluster.measure(a=COOL)
    assert cluster.run(20) == [{"p"}], "no extender is asked if no node is left for it to judge"
    assert list_waiting(cluster) == set()


@pytest.mark.parametrize(
    "policy",
    [
        compile_rules("scheduling: {hot: {cpu: 0.97}}"),
        compile_rules("scheduling: {hot: {memory: 0.8}}"),
        compile_rules("quota: {windows: [{window: 10s, hard: {pods: 4}}]}"),
        compile_rules(RULES, "{scheduling: Audit}"),
        compile_rules(RULES, "{scheduling: Disabled}"),
        CompiledPolicy(policy_of("- {name: other, match: {namespaces: [other]}}", NODES)),
    ],
    ids=["threshold", "other rule", "no stanza", "audit", "disabled", "no service"],
)
def test_change_of_the_policy_wakes_the_pods_that_it_no_longer_keeps_off(policy: CompiledPolicy) -> None:
    cluster = Cluster("a", "b")
    cluster.try_pod("p", "a", "b")
    assert cluster.run(5) == []
    cluster.policy = policy
    assert cluster.run(2) == [{"p"}]


def test_change_of_the_policy_that_still_keeps_pods_off_wakes_none() -> None:
    cluster = Cluster("a", "b")
    cluster.try_pod("p", "a", "b")
    cluster.run(3)
    for threshold in (0.85, 0.7, 0.9):
        cluster.policy = compile_rules(f"scheduling: {{hot: {{cpu: {threshold}}}}}")
        assert cluster.run(3) == []


def test_pod_that_has_nodes_left_waits_for_the_others_if_it_is_not_bound() -> None:
    """A filter or an extender that is asked later may refuse the nodes that this one passed."""
    cluster = Cluster("a", "b")
    cluster.measure(b=COOL)
    assert cluster.try_pod("bound", "a", "b") == ["b"]
    assert cluster.try_pod("waits", "a", "b") == ["b"]
    cluster.bind("bound", "b")
    cluster.run(3)
    cluster.measure(a=COOL)
    assert cluster.run(3) == [{"waits"}]


def test_pod_that_is_bound_or_deleted_or_absent_from_a_list_is_not_woken() -> None:
    cluster = Cluster("a")
    for name in ("bound", "deleted", "missed", "waits"):
        cluster.try_pod(name, "a")
    cluster.run(3)
    cluster.bind("bound", "x")
    cluster.delete("deleted")
    asyncio.run(cluster.events.on_list_begun())
    cluster.try_pod("new", "a")
    asyncio.run(cluster.events.on_listed([cluster.pods["waits"]]))
    asyncio.run(cluster.events.on_list_complete())
    cluster.measure(a=COOL)
    assert set().union(*(woken or set() for woken in cluster.run(5))) == {"waits", "new"}


def test_more_than_twenty_pods_are_woken_by_one_change_for_all() -> None:
    cluster = Cluster("a", "b")
    few, many = [f"few-{number}" for number in range(PODS_MAX)], [f"many-{number}" for number in range(PODS_MAX + 1)]
    try_all(cluster, few, "a")
    try_all(cluster, many, "b")
    cluster.run(3)
    cluster.measure(a=COOL)
    assert cluster.run(3) == [set(few)]
    cluster.measure(b=COOL)
    assert cluster.run(3) == [None]
    assert list_waiting(cluster) == set()


def try_all(cluster: Cluster, names: Iterable[str], *nodes: str) -> None:
    for name in names:
        cluster.try_pod(name, *nodes)


def test_without_a_controller_all_are_woken_at_once_and_a_controller_is_found_later() -> None:
    cluster = Cluster("a", "b")
    cluster.has_controller = False
    cluster.try_pod("p", "a")
    cluster.try_pod("q", "b")
    cluster.run(3)
    cluster.measure(a=COOL)
    assert cluster.run(2 + int(ANSWER_SECONDS)) == [{"p"}, None]
    assert cluster.unanswered == 1
    assert cluster.said == ["no controller has annotated the Pods that were asked for"]
    cluster.try_pod("q", "b")
    cluster.run(6)
    cluster.measure(b=COOL)
    assert cluster.run(2) == [None], "nobody is asked again so soon"
    cluster.run(int(ALONE_SECONDS))
    cluster.has_controller = True
    cluster.measure(a=WARM)
    cluster.try_pod("p", "a")
    cluster.run(3)
    cluster.measure(a=COOL)
    assert cluster.run(3) == [{"p"}]
    assert cluster.said[1:] == ["over: no controller has annotated the Pods that were asked for"]


def test_request_that_fails_wakes_all_at_once_and_a_wake_that_fails_is_repeated() -> None:
    cluster = Cluster("a")
    cluster.refuses_requests = cluster.refuses_wakes = True
    cluster.try_pod("p", "a")
    cluster.run(3)
    cluster.measure(a=COOL)
    assert cluster.run(3) == []
    assert cluster.said == ["HTTP 404", "HTTP 403"]
    assert list_waiting(cluster) == {"p"}
    cluster.refuses_wakes = False
    assert cluster.run(6) == [None]
    assert cluster.said[2:] == ["over: HTTP 403"]


def test_replica_that_another_one_was_faster_than_forgets_the_pod() -> None:
    cluster = Cluster("a")
    cluster.try_pod("p", "a")
    cluster.run(3)
    asyncio.run(cluster.annotate("p"))
    cluster.measure(a=COOL)
    assert cluster.run(5) == []


def test_late_events_of_a_pod_from_before_its_last_try_do_not_end_its_waiting() -> None:
    cluster = Cluster("a")
    cluster.try_pod("p", "a")
    cluster.run(3)
    asyncio.run(cluster.annotate("p"))
    cluster.try_pod("p", "a")
    cluster.run(3)
    asyncio.run(cluster.events.on_changed(cluster.pods["p"], gone=False))
    assert list_waiting(cluster) == {"p"}


def test_annotation_that_a_tenant_has_written_hides_no_wake() -> None:
    cluster = Cluster("a")
    cluster.try_pod("p", "a")
    asyncio.run(cluster.annotate("p", "9999-01-01T00:00:00.000Z"))
    cluster.try_pod("p", "a")
    cluster.run(3)
    cluster.measure(a=COOL)
    assert cluster.run(10) == [{"p"}]
    assert (cluster.unanswered, list_waiting(cluster)) == (0, set())


def test_pod_that_waits_for_its_volumes_is_not_woken() -> None:
    cluster = Cluster("a", "b")
    cluster.measure(b=COOL)
    cluster.try_pod("p", "a", "b")
    cluster.run(3)
    pod = cluster.pods["p"]
    nominated = msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, nominated_node_name="b"))
    asyncio.run(cluster.events.on_changed(nominated, gone=False))
    cluster.measure(a=COOL)
    assert cluster.run(3) == []


def test_pod_that_was_refused_before_nodes_were_listed_is_woken_once_they_are() -> None:
    cluster = Cluster("a", is_listed=False)
    assert cluster.try_pod("p", "a") == []
    assert cluster.run(5) == []
    cluster.used["a"] = COOL
    cluster.list_all()
    assert cluster.run(3) == [{"p"}]


def test_pod_that_was_refused_for_unknown_load_is_woken_once_it_is_known() -> None:
    cluster = Cluster("a", rules="scheduling: {hot: {cpu: 0.8}, whenUnknown: Refuse}")
    cluster.now_seconds += 3600.0
    table = cluster.extender.table
    table.settle(table.list_nodes())
    assert cluster.try_pod("p", "a") == []
    cluster.used["a"] = COOL
    assert cluster.run(3) == [{"p"}]


def test_zone_that_grows_wakes_the_pods_that_fit_into_it() -> None:
    cluster = Cluster("a", rules="scheduling: {numa: Required}", zone_cores=2)
    assert cluster.try_pod("small", "a", cores=4) == []
    assert cluster.try_pod("large", "a", cores=8) == []
    cluster.run(3)
    cluster.extender.table.numa.on_numa_changed("a", NumaZones(({"cpu": 6 * NANO},), is_by_pod=False))
    assert cluster.run(3) == [{"small"}]


def test_pods_beyond_the_bound_are_woken_every_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webhook.core.scheduling.unschedulable_pods.PODS_MAX", 2)
    cluster = Cluster("a")
    try_all(cluster, ["p", "q", "r"], "a")
    assert cluster.run(int(INCOMPLETE_SECONDS) + 5) == [None]
    try_all(cluster, ["p", "q", "r"], "a")
    assert len(cluster.extender.waiting) == 0
    assert cluster.run(int(INCOMPLETE_SECONDS) - 10) == []
    assert len(cluster.extender.waiting) == 2
    assert cluster.run(10) == [None]


def test_pods_that_an_earlier_process_refused_are_woken_once_a_minute_after_the_start() -> None:
    cluster = Cluster("a")
    cluster.extender.waiting.is_incomplete = True
    assert cluster.run(int(INCOMPLETE_SECONDS)) == []
    assert cluster.run(10 * int(INCOMPLETE_SECONDS)) == [None]
