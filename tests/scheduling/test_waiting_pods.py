"""Waiting Pods on a real kube-scheduler: those that fit are tried again, one by one where a controller leads."""

import asyncio
import contextlib
import os
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from tests.cluster.background_loop import BackgroundLoop
from tests.scheduling.extender_server import EXTENDER, NAMESPACE, ExtendedScheduler
from tests.scheduling.node_exporter import HOT_CORES, NodeExporters
from webhook.adapters.clocks import WallClock
from webhook.adapters.kubernetes import RequestedWakes, connect
from webhook.controller.pod_waker import PodWaker, PodWakeReports
from webhook.core.scheduling.unschedulable_pods import WOKEN_AT, PodReference
from webhook.ports import WatchReports

PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
MANY = 1000 if os.environ.get("PODGATE_TEST_SCHEDULING") == "soak" else 60
FITTING = 57
"""Pods of one cpu that a node of 64 takes from 2 used ones, below 0.8 with each of them, each with 0.85 of a cpu."""


class Waker:
    """The leading controller's part of the wakes, and what became of them."""

    def __init__(self, scheduler: ExtendedScheduler) -> None:
        self._scheduler = scheduler
        self.results: list[str] = []
        self.troubles: list[str] = []
        self._loop = BackgroundLoop("pod-waker")

    @contextlib.contextmanager
    def run(self) -> Iterator["Waker"]:
        with closing(self._loop):
            running = self._loop.start(self._run())
            try:
                yield self
            finally:
                running.cancel()
                self._loop.run(asyncio.sleep(0.1))

    async def _run(self) -> None:
        client = await connect(self._scheduler.plane.kubeconfig)
        watch_reports = WatchReports(lambda: None, self.troubles.append, lambda _: None)
        reports = PodWakeReports(self.results.append, self.troubles.append, lambda _: None)
        try:
            await PodWaker(RequestedWakes(client, reports=watch_reports), WallClock(), reports).run()
        finally:
            await client.close()


@pytest.fixture(scope="module")
def waker(scheduler: ExtendedScheduler) -> Iterator[Waker]:
    """Run a controller. The extender starts anew: it may have found before that there was none."""
    with Waker(scheduler).run() as running:
        scheduler.stop_extender()
        scheduler.start_extender()
        scheduler.plane.wait(lambda: scheduler.is_hot("hot"), "the load of the hot node", EXTENDER)
        yield running


@pytest.fixture(autouse=True)
def _clean(scheduler: ExtendedScheduler, exporters: NodeExporters) -> Iterator[None]:
    """Begin and end without Pods, and with one hot node."""
    yield
    scheduler.delete_all()
    for node in ("hot", "warm-1"):
        set_load(scheduler, exporters, node, HOT_CORES if node == "hot" else 4.0)


@pytest.fixture
def policy(scheduler: ExtendedScheduler) -> Iterator[str]:
    """Return the policy; it is as before after the test."""
    text = scheduler.policy.read_text()
    yield text
    scheduler.policy.write_text(text)


def read_annotation(scheduler: ExtendedScheduler, pod: str) -> str:
    found = scheduler.plane.api.get(f"{PODS}/{pod}") or {}
    return str(found["metadata"].get("annotations", {}).get(WOKEN_AT, ""))


def set_load(scheduler: ExtendedScheduler, exporters: NodeExporters, node: str, cores: float) -> None:
    """Set the load of a node, and wait until the extender knows on which side of the threshold it is."""
    exporters.set(node, cores=cores)
    scheduler.plane.wait(lambda: scheduler.is_hot(node) == (cores > 50), f"the load of {node}", EXTENDER)


def create_waiting(scheduler: ExtendedScheduler, pods: dict[str, str]) -> None:
    """Create Pods for one node each, and wait until each is refused and kept."""
    for name, node in pods.items():
        scheduler.create(name, only=node, cores="1")  # it has an annotation, as all Pods that were rewritten
    for name in pods:
        assert "above the cpu hot threshold" in scheduler.wait_until_refused(name)
    await_waiting(scheduler, len(pods))


def await_waiting(scheduler: ExtendedScheduler, count: int) -> None:
    def holds() -> bool:
        found = re.search(r"^podgate_extender_waiting_pods (\d+)", scheduler.metrics(), re.MULTILINE)
        return found is not None and int(found[1]) >= count

    scheduler.plane.wait(holds, "the Pods to be kept", EXTENDER)


@pytest.mark.usefixtures("waker")
def test_of_two_pods_that_wait_for_two_nodes_only_the_one_whose_node_cools_is_tried(
    scheduler: ExtendedScheduler, exporters: NodeExporters
) -> None:
    set_load(scheduler, exporters, "warm-1", HOT_CORES)
    create_waiting(scheduler, {"for-hot": "hot", "for-warm": "warm-1"})
    patches = count_requests(scheduler)
    exporters.set("hot", cores=2.0)
    assert scheduler.wait_until_bound("for-hot") == "hot"
    assert read_annotation(scheduler, "for-hot")
    assert not read_annotation(scheduler, "for-warm")
    done = {name: count - patches[name] for name, count in count_requests(scheduler).items()}
    assert (done["configmaps"], done["pods"]) == (1, 1)
    exporters.set("warm-1", cores=4.0)
    assert scheduler.wait_until_bound("for-warm") == "warm-1"


@pytest.mark.usefixtures("waker")
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("name: web\n", "name: former\n"),
        ("hot: {cpu: 0.2}", "hot: {cpu: 0.8}"),
        ("  scheduling: {hot: {cpu: 0.2}, estimate: {settle: 1s}}\n", ""),
    ],
    ids=["service removed", "threshold raised", "stanza removed"],
)
def test_change_of_the_policy_wakes_the_pods_that_it_kept_off(
    scheduler: ExtendedScheduler, exporters: NodeExporters, policy: str, before: str, after: str
) -> None:
    """The load is far from both thresholds: on a busy machine its rate dips."""

    def wait_until_exceeded() -> None:
        scheduler.plane.wait(lambda: "web" in scheduler.nodes()["hot"]["exceeds"], "the policy", EXTENDER)

    low = policy.replace("hot: {cpu: 0.8}", "hot: {cpu: 0.2}", 1)
    set_load(scheduler, exporters, "hot", 32.0)
    scheduler.policy.write_text(low)
    wait_until_exceeded()
    create_waiting(scheduler, {"waiting": "hot"})
    assert before in low
    scheduler.policy.write_text(low.replace(before, after, 1))
    assert scheduler.wait_until_bound("waiting") == "hot"
    scheduler.policy.write_text(policy)
    set_load(scheduler, exporters, "hot", HOT_CORES)
    wait_until_exceeded()


def test_pod_is_not_annotated_if_it_is_another_one_or_bound_and_is_if_it_has_no_annotations(
    scheduler: ExtendedScheduler,
) -> None:
    def wake(name: str, uid: str) -> bool:
        async def ask() -> bool:
            client = await connect(scheduler.plane.kubeconfig)
            try:
                reports = WatchReports(lambda: None, print, print)
                wakes = RequestedWakes(client, reports=reports)
                return await wakes.wake(PodReference(NAMESPACE, name, uid), time.time_ns() // 1000)
            finally:
                await client.close()

        return asyncio.run(ask())

    def uid(name: str) -> str:
        return str((scheduler.plane.api.get(f"{PODS}/{name}") or {})["metadata"]["uid"])

    scheduler.create("bound")
    scheduler.wait_until_bound("bound")
    for name in ("bare", "annotated"):
        scheduler.create(name, only="hot")
        scheduler.wait_until_refused(name)
    patch = {"metadata": {"annotations": {"kept": "as it is"}}}
    scheduler.plane.api.request("PATCH", f"{PODS}/annotated", patch, "application/merge-patch+json")
    found = {name: wake(name, uid(name)) for name in ("bare", "annotated", "bound")}
    assert found == {"bare": True, "annotated": True, "bound": False}
    assert all(read_annotation(scheduler, name) for name in ("bare", "annotated"))
    assert not read_annotation(scheduler, "bound")
    assert (scheduler.plane.api.get(f"{PODS}/annotated") or {})["metadata"]["annotations"]["kept"] == "as it is"
    assert not wake("bare", uid("annotated"))
    assert not wake("absent", uid("annotated"))


def count_requests(scheduler: ExtendedScheduler) -> dict[str, int]:
    """Return how many patches the API server has answered, by resource."""
    _, text = scheduler.plane.api.request("GET", "/metrics")
    counts = dict.fromkeys(("configmaps", "storageclasses", "pods"), 0)
    for labels, count in re.findall(r"^apiserver_request_total\{([^}]*)\} (\d+)", str(text), re.MULTILINE):
        resource = re.search(r'[{,]resource="(\w+)"', f"{{{labels}")
        if 'verb="PATCH"' in labels and 'subresource=""' in labels and resource and resource[1] in counts:
            counts[resource[1]] += int(count)
    return counts


def count_calls(scheduler: ExtendedScheduler) -> int:
    found = re.search(r'calls_total\{result="answered",verb="filter"\} (\d+)', scheduler.metrics())
    return 0 if found is None else int(found[1])


@pytest.mark.usefixtures("waker")
def test_of_many_pods_that_wait_those_that_fit_run_once_a_node_cools(
    scheduler: ExtendedScheduler, exporters: NodeExporters
) -> None:
    names = [f"many-{number}" for number in range(MANY)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: scheduler.create(name, "steady", only="hot"), names))
    await_waiting(scheduler, MANY)
    patches, calls = count_requests(scheduler), count_calls(scheduler)
    exporters.set("hot", cores=2.0)
    scheduler.plane.wait(lambda: not scheduler.is_hot("hot"), "the node to be cool", EXTENDER)
    cool_seconds = time.monotonic()

    def count_bound() -> int:
        bound = scheduler.plane.api.get(f"{PODS}?fieldSelector=spec.nodeName%3Dhot&limit=1000") or {}
        return len(bound["items"])

    scheduler.plane.wait(lambda: count_bound() >= FITTING, "those that fit to run", EXTENDER)
    took_seconds = time.monotonic() - cool_seconds
    done = {name: count - patches[name] for name, count in count_requests(scheduler).items()}
    print(f"{MANY} waiting, {count_bound()} bound {took_seconds:.1f} s after the node was cool; patches {done}")  # noqa: T201  a measurement is for people
    print(f"filter calls {count_calls(scheduler) - calls}")  # noqa: T201  as above
    assert done["storageclasses"] >= 1
    assert count_bound() <= FITTING + 2
