"""Load of nodes in a canary: a service that only the candidate has is not refused nodes for want of its sources."""

import asyncio
import json

import pytest
from msgspec.structs import replace

from tests.core.reviewing import policy_of
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.policy_fields.rollout import CanaryBy
from webhook.core.rollout.canary import BasePolicy, pair
from webhook.core.rollout.composition import compose
from webhook.core.rollout.selection import Reach
from webhook.core.scheduling.measured_load import NodeLoad
from webhook.core.scheduling.node_table import KnownNode, SchedulableNode
from webhook.extender.extender import Extender
from webhook.extender.load_refresher import name_sources
from webhook.extender.scheduling_records import SchedulingRecords

NOW_SECONDS = 1_795_500_000.0
SOURCE, OTHER, REQUESTS = "metricsAPI: {}", "prometheus: {url: 'https://p:9090'}", "requests: {}"
NO_LOAD = "node(s) had no fresh load"
HOT = "node(s) above the cpu hot threshold 0.8"


def write_service(name: str, scheduling: str = "") -> str:
    stanza = f", placement: {{schedulerName: podgate-scheduler}}, scheduling: {scheduling}" if scheduling else ""
    return f"- {{name: {name}, match: {{namespaces: [{name}]}}{stanza}}}\n"


REFUSING = "{hot: {cpu: 0.8}, whenUnknown: Refuse}"


def write_nodes(*sources: str) -> str:
    return f"nodes: {{sources: [{', '.join(f'{{{source}}}' for source in sources)}]}}" if sources else ""


def put_together(stable: tuple[str, ...], candidate: tuple[str, ...], *, old: str = "") -> BasePolicy:
    """Return the policies of a canary with these sources, of which the candidate adds service `new`."""
    before = replace(policy_of(write_service("old", old), write_nodes(*stable)), hash="0" * 16)
    services = write_service("old", old) + write_service("new", REFUSING)
    after = replace(policy_of(services, write_nodes(*candidate)), hash="1" * 16)
    reach = Reach(CanaryBy.NAMESPACE, namespaces=("new",))
    composed = compose(before, after, reach)
    return pair(before.policy, after.policy, reach)(*map(CompiledPolicy, (composed.base, composed.canary)))


def filter_nodes(policy: CompiledPolicy, service: str) -> dict[str, str]:
    """Return why nodes are refused to a Pod: each source measures an idle and a hot one, and none the third."""
    extender = Extender(lambda: policy, SchedulingRecords(lambda: None), lambda: NOW_SECONDS)
    table, asked = extender.table, ["idle", "hot", "new"]
    table.index.on_nodes_listed(KnownNode(SchedulableNode(name, 64_000.0, 2.0**40)) for name in asked)
    asyncio.run(table.index.on_list_begun())
    asyncio.run(table.index.on_list_complete())
    nodes = policy.policy.nodes
    named = name_sources(nodes.sources) if nodes is not None else []
    table.configure(nodes, [name for name, _ in named])
    for name, source in named:
        if source.requests is None:
            loads = {"idle": 1_000.0, "hot": 60_000.0}
            table.take_measurements(name, {node: NodeLoad(name, NOW_SECONDS, load) for node, load in loads.items()})
    table.settle(table.list_nodes())
    metadata = {"name": "p", "namespace": service, "uid": "u", "labels": {"podgate.io/service": service}}
    pod = {"metadata": metadata, "spec": {"containers": [{}]}}
    found = json.loads(extender.filter(json.dumps({"Pod": pod, "NodeNames": asked}).encode()))
    return {**found.get("FailedNodes", {}), **found.get("FailedAndUnresolvableNodes", {})}


@pytest.mark.parametrize(
    ("stable", "candidate", "refused"),
    [
        pytest.param((), (SOURCE,), {"hot": HOT, "new": NO_LOAD}, id="the first sources"),
        pytest.param((SOURCE,), (SOURCE,), {"hot": HOT, "new": NO_LOAD}, id="the same sources"),
        pytest.param((REQUESTS,), (OTHER, REQUESTS), {}, id="the first source that measures"),
        pytest.param((SOURCE,), (OTHER,), {"hot": HOT}, id="another source"),
    ],
)
def test_a_new_service_is_judged_by_its_sources_or_by_the_load_that_is_known(
    stable: tuple[str, ...], candidate: tuple[str, ...], refused: dict[str, str]
) -> None:
    assert filter_nodes(put_together(stable, candidate), "new") == refused


def test_a_service_in_force_keeps_its_rules_and_its_sources() -> None:
    both = put_together((SOURCE,), (OTHER,), old=REFUSING)
    assert both.policy.nodes is not None
    assert [name for name, _ in name_sources(both.policy.nodes.sources)] == ["metricsAPI"]
    assert filter_nodes(both, "old") == {"hot": HOT, "new": NO_LOAD}
