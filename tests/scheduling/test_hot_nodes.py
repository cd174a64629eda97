"""Hot nodes on a real kube-scheduler, with load from a real Prometheus."""

import re
from collections import Counter

from tests.scheduling.conftest import NODES
from tests.scheduling.extender_server import SCHEDULER, SECOND, ExtendedScheduler
from tests.scheduling.node_exporter import HOT_CORES, NodeExporters


def test_hot_node_is_refused_in_the_pods_own_event_and_used_once_it_cools(
    scheduler: ExtendedScheduler, exporters: NodeExporters
) -> None:
    scheduler.create("free")
    scheduler.create("waiting", only="hot")
    scheduler.create("audited", "watched", only="hot")
    assert scheduler.wait_until_bound("free") != "hot"
    said = scheduler.wait_until_refused("waiting")
    assert said.startswith("0/4 nodes are available: 1 node(s) above the cpu hot threshold 0.8, 3 node(s) didn't match")
    assert scheduler.wait_until_bound("audited") == "hot", "Audit refuses nothing"
    assert scheduler.read_hottest()[0] == "hot"
    refused = re.findall(r'refused_nodes_total\{reason="hot_cpu",service="(\w+)"\} (\d+)', scheduler.metrics())
    assert {service for service, count in refused if int(count) > 0} >= {"web", "watched"}
    exporters.set("hot", cores=2.0)
    assert scheduler.wait_until_bound("waiting") == "hot"
    assert "podgate_extender_wakes_total 0.0" not in scheduler.metrics()
    exporters.set("hot", cores=HOT_CORES)
    scheduler.plane.wait(lambda: scheduler.is_hot("hot"), "the node to be hot again", "extender")
    scheduler.delete_all()


def test_pod_of_a_daemon_set_runs_on_its_hot_node_where_others_wait(scheduler: ExtendedScheduler) -> None:
    plane = scheduler.plane
    plane.wait(lambda: scheduler.is_hot("hot"), "the load of the hot node", "extender")
    labels = {"podgate.io/service": "web", "daemon": "agent"}
    plane.apply(
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": "agent", "namespace": "shop"},
            "spec": {
                "selector": {"matchLabels": {"daemon": "agent"}},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {"schedulerName": SCHEDULER, "containers": [{"name": "c", "image": "i"}]},
                },
            },
        }
    )

    def list_nodes() -> list[str]:
        pods = (plane.api.get("/api/v1/namespaces/shop/pods?labelSelector=daemon%3Dagent") or {})["items"]
        return sorted(pod["spec"].get("nodeName", "") for pod in pods)

    plane.wait(lambda: list_nodes() == sorted(NODES), "a Pod of the DaemonSet on each node", SECOND)
    plane.delete("/apis/apps/v1/namespaces/shop/daemonsets/agent?propagationPolicy=Foreground")
    scheduler.create("waiting-beside-it", only="hot")
    assert "1 node(s) above the cpu hot threshold 0.8" in scheduler.wait_until_refused("waiting-beside-it")
    scheduler.delete_all()


def test_explain_has_the_figures_of_the_event_and_after_cooling_says_where_the_pod_runs_and_why(
    scheduler: ExtendedScheduler, exporters: NodeExporters
) -> None:
    scheduler.plane.wait(lambda: scheduler.is_hot("hot"), "the node to be hot without assumed load", "extender")
    pod = scheduler.deploy("shown", only="hot")
    assert "1 node(s) above the cpu hot threshold 0.8" in scheduler.wait_until_refused(pod)

    def is_waiting() -> bool:
        document = scheduler.explain("deploy/shown", "-o", "json").document
        return bool(document["extender"] == scheduler.record(pod))  # unless it was tried again in between

    scheduler.plane.wait(is_waiting, "the same figures of explain and the extender", "extender")
    [hot] = scheduler.record(pod)["filter"]["refused"][0]["nodes"]
    assert (hot["node"], hot["load"]["source"]) == ("hot", "prometheus")
    assert hot["value"] > 0.8
    first = scheduler.explain("deploy/shown").out.splitlines()[0]
    by = r"refused by podgate-extender( \d+ s ago)?"
    cause = r"1 node above the cpu hot threshold 0\.8 \(hot \d+\.\d+ from prometheus, \d+ s old\)"
    assert re.fullmatch(f"Unschedulable: 1 of 1 Pods: {by}: {cause}", first), first
    exporters.set("hot", cores=2.0)
    assert scheduler.wait_until_bound(pod) == "hot"
    page = scheduler.explain("deploy/shown").out
    assert "1 of 1 node passed; bound to hot, the only node that passed" in page
    assert "  score     none: hot was the only node left, and kube-scheduler then asks for none" in page
    exporters.set("hot", cores=HOT_CORES)
    scheduler.plane.wait(lambda: scheduler.is_hot("hot"), "the node to be hot again", "extender")
    scheduler.create("placed")
    node = scheduler.wait_until_bound("placed")
    shown = scheduler.explain("pod", "placed").out
    assert f"; bound to {node}, " in shown
    assert shown.count(" of 10: free cpu 0.") == 3
    assert re.search(f"^  refused   {cause}", shown, re.MULTILINE), shown
    scheduler.delete_all()


def test_node_whose_tasks_stand_still_is_refused_until_its_pressure_falls(
    scheduler: ExtendedScheduler, exporters: NodeExporters
) -> None:
    exporters.set("warm-1", stalled=0.1)

    def pressure() -> float:
        return scheduler.nodes()["warm-1"]["load"]["memory_pressure"] or 0.0

    scheduler.plane.wait(lambda: pressure() > 0.2, "the pressure", "extender")
    scheduler.create("pressed", "pressed", only="warm-1")
    assert "1 node(s) above the memory pressure threshold 0.1" in scheduler.wait_until_refused("pressed")
    exporters.set("warm-1", stalled=0.0)
    assert scheduler.wait_until_bound("pressed") == "warm-1"
    scheduler.delete_all()


def test_burst_of_sixty_pods_brings_no_node_above_the_threshold(
    scheduler: ExtendedScheduler, exporters: NodeExporters
) -> None:
    """Their requests would fit onto the coolest node, which their load would fill twice.

    None passes that would bring a node above the threshold, although the scheduler may take another node than the best
    one, and its watch may show that after the next call.
    """
    exporters.set("cool", cores=1.0)
    scheduler.plane.wait(lambda: scheduler.nodes()["cool"]["cpuShare"] < 2 / 64, "the load to fall", "extender")
    resources = {"requests": {"cpu": "100m"}, "limits": {"cpu": "2600m"}}
    containers = [{"name": "c", "image": "i", "resources": resources}]
    expected_cores = 0.85 * 2.6
    simulated = scheduler.simulate(60, "steady", containers)
    for number in range(60):
        scheduler.create(f"burst-{number}", "steady", containers=containers)
    found = Counter(scheduler.wait_until_bound(f"burst-{number}") for number in range(60))
    assert set(found) == {"cool", "warm-1", "warm-2"}
    used = {name: (1.0 if name == "cool" else 4.0) + count * expected_cores for name, count in found.items()}
    assert max(used.values()) <= 0.8 * 64, used
    assert set(simulated) == set(found), "the real scheduler chooses among equal nodes at random"
    exporters.set("cool", cores=4.0)
    scheduler.delete_all()


def test_node_with_a_dead_exporter_gets_no_pod_until_its_load_is_known_again_or_forgotten(
    scheduler: ExtendedScheduler, exporters: NodeExporters
) -> None:
    exporters.set("hot", is_dead=True)
    scheduler.create("early", only="hot")
    assert "above the cpu hot threshold" in scheduler.wait_until_refused("early")
    wait = scheduler.plane.wait
    wait(lambda: scheduler.nodes()["hot"]["isSilent"], "the load to be stale", "extender")
    assert scheduler.nodes()["hot"]["load"]["source"] == "prometheus", "its last load"
    for number in range(10):
        scheduler.create(f"elsewhere-{number}")
    assert "hot" not in {scheduler.wait_until_bound(f"elsewhere-{number}") for number in range(10)}
    bound = scheduler.wait_until_bound("early")
    assert bound == "hot", "forgotten: whenUnknown is Admit"
    assert scheduler.nodes()["hot"]["load"]["source"] == "requests"
    for number in range(5):
        scheduler.create(f"last-{number}")
    assert "hot" not in {scheduler.wait_until_bound(f"last-{number}") for number in range(5)}, "it scores last"
    exporters.set("hot", is_dead=False)
    wait(lambda: scheduler.is_hot("hot"), "the load of the hot node", "extender")
    scheduler.delete_all()


def test_pods_are_scheduled_without_the_extender_and_it_is_used_again_after_its_restart(
    scheduler: ExtendedScheduler,
) -> None:
    scheduler.stop_extender(kill=True)
    scheduler.create("open", only="hot")
    assert scheduler.wait_until_bound("open") == "hot", "ignorable"
    scheduler.start_extender()
    scheduler.plane.wait(lambda: scheduler.is_hot("hot"), "the load of the hot node", "extender")
    scheduler.create("closed", only="hot")
    assert "above the cpu hot threshold" in scheduler.wait_until_refused("closed")
    scheduler.delete_all()
