"""Sources of load on real parts: Prometheus, metrics-server and requests one after another, and all profiles."""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from math import nan
from pathlib import Path
from typing import Any

import pytest

from tests.scheduling.conftest import NODES, RACK
from tests.scheduling.extender_server import EXTENDER, ExtendedScheduler
from tests.scheduling.metrics_api import NAME as METRICS_SERVER
from tests.scheduling.metrics_api import list_measured_nodes
from tests.scheduling.node_exporter import NodeExporters
from tests.timeouts import HANG_SECONDS
from webhook.adapters.node_loads import PrometheusLoads
from webhook.core.document import DocumentError, Purpose, load
from webhook.core.kubernetes.quantity import Duration, Number
from webhook.core.policy_fields.nodes import DecayRules, LoadSource, NodeQueries, Nodes, Profile, PrometheusSource
from webhook.core.scheduling.measured_load import NodeLoad
from webhook.errors import LoadSourceError

LADDER = "extender-with-ladder"
HEATED = "warm-1"
ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
POLICY = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
nodes:
  refresh: 1s
  window: 10s
  decay: {{every: 2s}}
  staleAfter: 25s
  sources: [{{prometheus: {{url: "{url}", profile: KubeletResource}}}}, {{metricsAPI: {{}}}}, {{requests: {{}}}}]
services:
- name: web
  match: {{namespaces: [shop], podSelector: {{matchLabels: {{app: web}}}}}}
  placement: {{schedulerName: podgate-scheduler}}
  scheduling: {{hot: {{cpu: 0.8}}}}
"""


@pytest.fixture
def ladder(scheduler: ExtendedScheduler, tmp_path: Path) -> Iterator[ExtendedScheduler]:
    """Ask a replica that reads the kubelets' metrics by Prometheus, then by metrics-server, then adds up requests."""
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY.format(url=scheduler.prometheus.url))
    scheduler.start_extender(LADDER, policy=policy)
    scheduler.balance(LADDER)
    scheduler.balancer.cut()
    yield scheduler
    scheduler.balance(EXTENDER)
    scheduler.stop_extender(LADDER)
    scheduler.delete_all()
    scheduler.plane.wait(lambda: scheduler.is_hot("hot"), "the load of the hot node", EXTENDER)


def test_each_source_takes_over_from_the_one_before_it_and_the_first_is_used_again_once_it_is_back(
    ladder: ExtendedScheduler,
) -> None:
    plane = ladder.plane

    def wait_until_hot(source: str) -> None:
        def condition() -> bool:
            load = ladder.nodes(LADDER)[HEATED]["load"]
            return (
                load is not None
                and load["source"] == source
                and (source == "requests" or ladder.is_hot(HEATED, LADDER))
            )

        plane.wait(condition, f"the load of the node by {source}", LADDER)

    def check_refused(name: str) -> None:
        ladder.create(name, only=HEATED)
        assert "1 node(s) above the cpu hot threshold 0.8" in ladder.wait_until_refused(name)

    ladder.create("heater", "none", only=HEATED, cores="60")
    wait_until_hot("prometheus")
    check_refused("by-prometheus")
    plane.wait(lambda: HEATED in list_measured_nodes(plane), "the metrics API", METRICS_SERVER)
    ladder.prometheus.stop(kill=True)
    wait_until_hot("metricsAPI")
    check_refused("by-metrics-api")
    plane.processes.stop(METRICS_SERVER, kill=True)
    wait_until_hot("requests")
    for name in ("by-prometheus", "by-metrics-api"):
        assert ladder.wait_until_bound(name) == HEATED, "requests refuse no node"
    ladder.prometheus.start()
    wait_until_hot("prometheus")
    check_refused("again")


def wait_for_loads(
    scheduler: ExtendedScheduler,
    profile: Profile,
    condition: Callable[[Mapping[str, NodeLoad]], bool],
    queries: NodeQueries = NodeQueries(),  # noqa: B008  frozen
) -> None:
    """Wait until what the profile measures of the nodes is as a condition says."""
    source = PrometheusSource(url=scheduler.prometheus.url, profile=profile, queries=queries)
    nodes = Nodes(
        sources=(LoadSource(prometheus=source),),
        window=Duration.parse("4s"),
        decay=DecayRules(factor=Number(0.8), every=Duration.parse("2s")),
    )

    async def wait() -> None:
        loads, found = PrometheusLoads("prometheus", source, nodes), {}
        try:
            async with asyncio.timeout(HANG_SECONDS):
                while not condition(found):
                    await asyncio.sleep(0.3)
                    found = await loads.measure(time.time())
        except TimeoutError:
            pytest.fail(f"{profile}: {found}")
        finally:
            await loads.close()

    asyncio.run(wait())


def find_cpu(found: Mapping[str, NodeLoad], node: str) -> float:
    load = found.get(node)
    return -1.0 if load is None or load.cpu_millis is None else load.cpu_millis


def test_cadvisor_metrics_are_those_of_whole_nodes_with_their_pressure(
    scheduler: ExtendedScheduler, exporters: NodeExporters
) -> None:
    exporters.set("warm-1", memory_bytes=7e9, stalled=0.05)
    wait_for_loads(
        scheduler,
        Profile.KUBELET_CADVISOR,
        lambda found: (
            found.keys() == NODES.keys()
            and abs(find_cpu(found, "warm-1") - 4000) < 400
            and found["warm-1"].memory_bytes == 7e9
            and abs((found["warm-1"].memory_pressure or 0) - 0.2) < 0.02
            and abs((found["warm-1"].io_pressure or 0) - 0.1) < 0.01
            and abs((found["warm-1"].cpu_pressure or 0) - 0.05) < 0.005
        ),
    )
    exporters.set("warm-1", memory_bytes=0.0, stalled=0.0)


def test_load_of_a_node_that_two_jobs_scrape_is_not_added_up(scheduler: ExtendedScheduler) -> None:
    counted = scheduler.prometheus.query('count by (node) (node_memory_MemTotal_bytes{node="warm-1"})')
    assert [series["value"][1] for series in counted] == ["2"]
    wait_for_loads(scheduler, Profile.NODE_EXPORTER, lambda found: abs(find_cpu(found, "warm-1") - 4000) < 400)


@pytest.mark.parametrize(
    ("window", "every", "error"),
    [
        ("11000s", "1s", ""),
        ("11001s", "1s", "exceeded maximum resolution of 11,000 points per timeseries"),
        ("10m", "1500ms", ""),
        ("720h", "72h", ""),
    ],
)
def test_windows_are_those_that_prometheus_answers(
    scheduler: ExtendedScheduler, window: str, every: str, error: str
) -> None:
    source = PrometheusSource(url=scheduler.prometheus.url)
    decay = DecayRules(every=Duration.parse(every))
    nodes = Nodes((LoadSource(prometheus=source),), window=Duration.parse(window), decay=decay)
    text = f"apiVersion: podgate.io/v1alpha1\nkind: Policy\nnodes:\n  window: {window}\n  decay: {{every: {every}}}\n"
    text += f"  refresh: 1s\n  sources: [{{prometheus: {{url: {source.url}}}}}]\n"
    text += "services: [{name: web, match: {namespaces: [shop]}}]\n"

    async def measure() -> str:
        loads = PrometheusLoads("prometheus", source, nodes)
        try:
            await loads.measure(time.time())
        except LoadSourceError as failure:
            return str(failure)
        finally:
            await loads.close()
        return ""

    found = asyncio.run(measure())
    assert error in found
    assert bool(found) == bool(error)
    with pytest.raises(DocumentError) if error else nullcontext():
        load(text.encode(), Purpose.LINT)


def test_counter_that_starts_again_changes_nothing_and_a_node_that_reports_nan_is_left_out(
    scheduler: ExtendedScheduler, exporters: NodeExporters
) -> None:
    latency = NodeQueries(latency="max by (node) (node_memory_MemTotal_bytes) * 0 + 0.25")
    exporters.set("warm-2", cpu_seconds=0.0)
    exporters.set("warm-1", memory_bytes=nan)

    def is_as_before(found: Mapping[str, NodeLoad]) -> bool:
        assert find_cpu(found, "warm-2") < 50_000, "its former value in the 4 s of a rate would be 250,000 and more"
        return (
            abs(find_cpu(found, "warm-2") - 4000) < 400
            and found["warm-2"].latency_seconds == 0.25
            and "warm-1" not in found
        )

    wait_for_loads(scheduler, Profile.NODE_EXPORTER, is_as_before, latency)
    exporters.set("warm-1", memory_bytes=0.0)
    wait_for_loads(scheduler, Profile.NODE_EXPORTER, lambda found: "warm-1" in found)


def test_pods_go_to_the_rack_of_the_pods_that_they_are_to_be_near_to_else_to_their_zone(
    scheduler: ExtendedScheduler, exporters: NodeExporters
) -> None:
    scheduler.create("anchor", "anchor", only="warm-1")
    assert scheduler.wait_until_bound("anchor") == "warm-1"
    exporters.set("cool", cores=40.0)
    scheduler.plane.wait(lambda: scheduler.nodes()["cool"]["cpuShare"] > 0.5, "the load of the node", EXTENDER)
    scheduler.create("in-its-rack", "near")
    assert scheduler.wait_until_bound("in-its-rack") == "warm-1"
    scheduler.create("in-its-zone", "near", affinity=not_on("warm-1"))
    assert scheduler.wait_until_bound("in-its-zone") == "cool", "the other zone has a cooler node"
    exporters.set("cool", cores=4.0)
    scheduler.delete_all()


def test_pods_go_to_the_region_of_the_pods_that_they_are_to_be_near_to_where_no_zone_is_shared(
    scheduler: ExtendedScheduler, exporters: NodeExporters
) -> None:
    """The nodes move while the extender runs."""
    moved = {"cool": ("c", "east"), "warm-2": ("b", "east"), "warm-1": ("a", "west")}
    before = {name: scheduler.plane.api.get(f"/api/v1/nodes/{name}")["metadata"]["labels"] for name in moved}
    exporters.set("cool", cores=40.0)
    scheduler.plane.wait(lambda: scheduler.nodes()["cool"]["cpuShare"] > 0.5, "the load of the node", EXTENDER)
    for name, (zone, region) in moved.items():
        relabel(scheduler, name, {ZONE: zone, RACK: f"{zone}1", REGION: region})
    scheduler.create("far-anchor", "anchor", only="warm-2")
    assert scheduler.wait_until_bound("far-anchor") == "warm-2"
    scheduler.create("in-its-region", "near", affinity=not_on("warm-2"))
    assert scheduler.wait_until_bound("in-its-region") == "cool", "the other region has a cooler node"
    terms = {score["node"]: round(score["near"], 2) for score in scheduler.record("in-its-region")["score"]["best"]}
    assert terms == {"cool": 0.33, "warm-1": 0.0}
    for name, labels in before.items():
        relabel(scheduler, name, {key: labels.get(key) for key in (ZONE, RACK, REGION)})
    exporters.set("cool", cores=4.0)
    scheduler.delete_all()


def relabel(scheduler: ExtendedScheduler, node: str, labels: Mapping[str, str | None]) -> None:
    patch = {"metadata": {"labels": labels}}
    status, answer = scheduler.plane.api.request(
        "PATCH", f"/api/v1/nodes/{node}", patch, "application/merge-patch+json"
    )
    assert status == 200, answer


def not_on(node: str) -> dict[str, Any]:
    """Return the affinity of a Pod that may be on all other nodes."""
    others = [{"key": "kubernetes.io/hostname", "operator": "NotIn", "values": [node]}]
    required = {"nodeSelectorTerms": [{"matchExpressions": others}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
