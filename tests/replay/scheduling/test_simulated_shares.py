"""Simulated Pods of a service with shares: divided by their slots, and elsewhere while a variant has no nodes."""

from functools import partial
from typing import Any

from msgspec.structs import replace

from webhook.app.offline import Offline
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.document import Purpose, load
from webhook.core.scheduling.measured_load import NodeLoad
from webhook.core.scheduling.node_table import SchedulableNode
from webhook.replay.scheduling.nodes import SimulatedNode
from webhook.replay.scheduling.pods import ScheduledPod, generate_pods
from webhook.replay.scheduling.simulated_shares import VariantOutcome
from webhook.replay.scheduling.simulation import SchedulerComparison, compare_schedulers

GIB = 1 << 30
POLICY = CompiledPolicy(
    load(
        b"""
apiVersion: podgate.io/v1alpha1
kind: Policy
nodes: {sources: [{prometheus: {url: "https://prometheus:9090"}}, {requests: {}}]}
services:
- name: web
  match: {namespaces: [shop]}
  placement:
    shares:
      base: {variant: on-demand, pods: 2}
      variants:
      - {name: spot, weight: 80, nodeSelector: {kind: spot}, tolerations: [{key: spot, operator: Exists}]}
      - {name: on-demand, weight: 20, nodeSelector: {kind: on-demand}}
      unschedulableFor: 60s
      openFor: 10m
""",
        Purpose.SCHEDULE,
    ).policy
)


def build_nodes(**kinds: str) -> list[SimulatedNode]:
    """Return nodes of 10 cores with the label `kind`."""
    return [
        SimulatedNode(
            SchedulableNode(name, 10_000.0, 100.0 * GIB, labels={"kind": kind}),
            load=NodeLoad("recorded", 0.0, 0.0, 0.0),
            taints=(),
        )
        for name, kind in kinds.items()
    ]


async def compare(
    nodes: list[SimulatedNode], pods: list[ScheduledPod], after_seconds: float = 900
) -> SchedulerComparison:
    environment = partial(Offline, POLICY.loaded)
    return await compare_schedulers(POLICY, nodes, [], pods, after_seconds, 5, environment=environment)


def create(count: int, at_seconds: float = 0, cpu: str = "1") -> list[ScheduledPod]:
    return [
        replace(pod, at_seconds=at_seconds)
        for pod in generate_pods(count, 0, "web", {"cpu": cpu, "memory": "1Gi"}, 0.5)
    ]


def count_pods(comparison: SchedulerComparison) -> list[dict[str, int]]:
    return [
        {found.variant: found.pods for found in outcome.variants}
        for outcome in (comparison.default, comparison.without_assumed_load, comparison.extender)
    ]


async def test_pods_of_a_workload_are_divided_exactly_under_every_scheduler() -> None:
    found = await compare(build_nodes(a="spot", b="on-demand"), create(10))
    assert count_pods(found) == [{"spot": 6, "on-demand": 4}] * 3
    assert {node.name: node.pods for node in found.default.nodes} == {"a": 6, "b": 4}


async def test_pods_of_a_variant_without_nodes_fall_back_once_it_opens() -> None:
    found = await compare(build_nodes(a="on-demand"), create(10))
    spot, last = found.extender.variants
    assert spot == VariantOutcome("web", "spot", pods=0, fell_back=6, evicted=6, openings=1)
    assert last == VariantOutcome("web", "on-demand", pods=10)
    assert (found.extender.placed, found.extender.waiting) == (10, 0)
    assert 60 <= found.extender.longest_wait_seconds <= 70


async def test_an_open_variant_is_probed_by_new_pods() -> None:
    nodes = build_nodes(a="on-demand", b="spot")
    full = replace(nodes[1], pods_max=0)
    early, late = create(10), [replace(pod, pod=rename(pod.pod)) for pod in create(1, at_seconds=700)]
    found = await compare([nodes[0], full], [*early, *late])
    spot = found.default.variants[0]
    assert (spot.openings, spot.evicted, spot.fell_back) == (2, 7, 7), "the probe has found no node either"
    assert found.default.waiting == 1, "10 Pods fill the other node"


async def test_a_probe_that_finds_a_node_closes_the_variant() -> None:
    spot = replace(build_nodes(a="spot")[0], pods_max=1)
    pods = create(4)  # slots 3 and 4 are spot: the first has the only room, and ends
    pods[2] = replace(pods[2], ends_seconds=500.0)
    late = [replace(pod, pod=rename(pod.pod)) for pod in create(1, at_seconds=700)]
    found = await compare([spot, *build_nodes(b="on-demand")], [*pods, *late])
    outcome = found.default.variants[0]
    assert (outcome.openings, outcome.evicted, outcome.fell_back, outcome.pods) == (1, 1, 1, 1)
    assert {node.name: node.pods for node in found.default.nodes} == {"a": 1, "b": 3}


def rename(pod: Any) -> Any:
    return replace(pod, metadata=replace(pod.metadata, uid="late", name="late"))


async def test_a_pod_that_has_ended_frees_its_slot() -> None:
    pods = create(3)
    ended = replace(pods[0], ends_seconds=50.0)
    successor = replace(pods[0], at_seconds=100.0, pod=rename(pods[0].pod))
    found = await compare(build_nodes(a="spot", b="on-demand"), [ended, *pods[1:], successor])
    assert count_pods(found)[0] == {"spot": 1, "on-demand": 2}, "the third slot alone is spot"


async def test_nothing_is_said_of_variants_under_a_policy_without_shares() -> None:
    plain = CompiledPolicy(
        load(
            b"apiVersion: podgate.io/v1alpha1\nkind: Policy\nservices: [{name: web, match: {namespaces: [shop]}}]\n",
            Purpose.SCHEDULE,
        ).policy
    )
    found = await compare_schedulers(
        plain, build_nodes(a="spot"), [], create(2), 60.0, 5, environment=partial(Offline, plain.loaded)
    )
    assert found.default.variants == ()
