"""Simulated scheduling: small cases by hand, and the bound that assumed load keeps on every generated cluster."""

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.document import Purpose, load
from webhook.core.kubernetes.quantity import Number
from webhook.core.policy_fields.scheduling import ScoreWeights
from webhook.core.scheduling.measured_load import NodeLoad
from webhook.core.scheduling.node_table import SchedulableNode
from webhook.replay.scheduling.nodes import SimulatedNode
from webhook.replay.scheduling.pods import ScheduledPod, generate_pods
from webhook.replay.scheduling.simulation import SchedulerComparison, compare_schedulers

GIB = 1 << 30
POLICY = CompiledPolicy(
    load(
        b"""
apiVersion: podgate.io/v1alpha1
kind: Policy
nodes: {sources: [{prometheus: {url: "https://prometheus:9090"}}, {requests: {}}]}
services:
- {name: web, match: {namespaces: [shop]}, placement: {schedulerName: s}, scheduling: {hot: {cpu: 0.8}}}
""",
        Purpose.SCHEDULE,
    ).policy
)
HOT = 0.8
HOT_REASON = "node(s) would be above the cpu hot threshold 0.8 with this Pod"
RISK = ScoreWeights(*map(Number, (0, 0, 0, 0, -1)))
USAGE = 0.85
"""As the policy estimates."""


def nodes(*shares: float, cpu_millis: float = 10_000.0) -> list[SimulatedNode]:
    """Return nodes a, b, ... with used shares of cpu, and no Pods."""
    return [
        SimulatedNode(
            SchedulableNode(name, cpu_millis, 100.0 * GIB),
            load=NodeLoad("recorded", 0.0, share * cpu_millis, 10.0 * GIB),
        )
        for name, share in zip("abcdefgh", shares, strict=False)
    ]


async def compare(found: list[SimulatedNode], pods: list[ScheduledPod]) -> SchedulerComparison:
    return await compare_schedulers(POLICY, found, [], pods, 900.0, 5)


def cpu_pods(count: int, cpu: str = "1", every_seconds: float = 0.0) -> list[ScheduledPod]:
    return generate_pods(count, every_seconds, "web", {"cpu": cpu, "memory": "1Gi"}, USAGE)


async def test_burst_stops_below_the_threshold_with_assumed_load_and_goes_beyond_without() -> None:
    """Each Pod takes 0.085 of a node: a takes 3, until 0.755; b takes one, until 0.785."""
    found = await compare(nodes(0.5, 0.7), cpu_pods(8))
    assert {node.name: (node.pods, node.cpu_end) for node in found.extender.nodes} == {"a": (3, 0.755), "b": (1, 0.785)}
    assert (found.extender.placed, found.extender.waiting) == (4, 4)
    assert found.extender.refused[HOT_REASON] == 4
    herd = found.without_assumed_load
    assert (herd.placed, herd.waiting, herd.refused) == (8, 0, {})
    assert {node.name: node.pods for node in found.default.nodes} == {"a": 4, "b": 4}
    assert [node.cpu_peak for node in found.default.nodes] == [0.84, 1.04]


async def test_pods_one_by_one_see_what_was_measured_of_those_before() -> None:
    found = await compare(nodes(0.7), cpu_pods(3, every_seconds=300.0))
    assert (found.extender.placed, found.without_assumed_load.placed, found.default.placed) == (1, 2, 3)


async def test_waiting_pod_is_placed_once_the_measured_average_has_fallen() -> None:
    """The node has 0.67 until a Pod ends at 400 s: 0.5 then. Its average passes 0.63 within two samples."""
    first, second = cpu_pods(2, cpu="2")
    ending = ScheduledPod(0.0, first.pod, first.usage, ends_seconds=400.0)
    waiting = ScheduledPod(300.0, second.pod, second.usage)
    found = (await compare(nodes(0.5), [ending, waiting])).extender
    assert (found.placed, found.waited, found.waiting) == (2, 1, 0)
    assert 100.0 < found.longest_wait_seconds <= 160.0
    assert found.nodes[0].pods == 1


async def test_node_whose_load_varies_gets_no_pods_where_its_risk_is_weighed() -> None:
    found = nodes(0.5, 0.55)
    varying = replace(found[0], load=replace(found[0].load, cpu_deviation_millis=2_000.0))
    services = tuple(
        replace(service, scheduling=replace(service.scheduling, score=RISK)) for service in POLICY.policy.services
    )
    weighed = CompiledPolicy(replace(POLICY.loaded, policy=replace(POLICY.policy, services=services)))
    runs = [
        await compare_schedulers(policy, [varying, found[1]], [], cpu_pods(1), 60.0, 5) for policy in (POLICY, weighed)
    ]
    assert [[node.pods for node in run.extender.nodes] for run in runs] == [[1, 0], [0, 1]]


async def test_pod_of_another_service_goes_by_requests_alone() -> None:
    pods = generate_pods(2, 0.0, "other", {"cpu": "1", "memory": "1Gi"}, USAGE)
    found = await compare(nodes(0.9, 0.1), pods)
    assert found.extender == found.default
    assert [node.pods for node in found.default.nodes] == [1, 1]


async def test_pod_that_fits_nowhere_waits_under_every_scheduler() -> None:
    found = await compare(nodes(0.1), cpu_pods(1, cpu="11"))
    assert [run.waiting for run in (found.default, found.without_assumed_load, found.extender)] == [1, 1, 1]
    assert found.default.refused == {"Insufficient cpu": 1}


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.floats(0.0, 1.0), min_size=1, max_size=6),
    st.integers(1, 40),
    st.sampled_from(["100m", "500m", "2"]),
    st.sampled_from([0.0, 0.3, 7.0, 45.0]),
)
async def test_no_pod_makes_a_node_hotter_than_the_threshold(
    shares: list[float], count: int, cpu: str, every_seconds: float
) -> None:
    pods = cpu_pods(count, cpu, every_seconds)
    found = (await compare_schedulers(POLICY, nodes(*shares), [], pods, 300.0, 5)).extender
    for node in found.nodes:
        assert node.cpu_peak <= max(node.cpu_before, HOT) + 1e-3, node
    assert found.placed + found.waiting == count
