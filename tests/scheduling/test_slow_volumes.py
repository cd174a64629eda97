"""Bursts of Pods with slow volumes, on a real kube-scheduler that publishes nodes in Pods, or in claims alone."""

import os
import time
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.scheduling.extender_server import EXTENDER, OTHER, SECOND, ExtendedScheduler
from tests.scheduling.node_exporter import NodeExporters
from tests.scheduling.slow_volumes import SlowVolumes
from webhook.core.scheduling.assumed_load import CONFIRMED_SECONDS

pytestmark = pytest.mark.usefixtures("other")

CORES, HOT, FACTOR = 64, 0.8, 0.85
PUBLISHED_IN_CLAIMS = "--feature-gates=NominatedNodeNameForExpectation=false"
"""As before Kubernetes 1.35."""


class Burst(NamedTuple):
    """Pods, half of them created after the tentative counts of the others have ended.

    By what is measured alone, most of each half would go to the cool node, which has not room for that.
    """

    pods: int
    limit_cores: float
    volume_seconds: float
    warm_cores: float
    cool_cores: float = 1.0

    @property
    def expected_cores(self) -> float:
        return FACTOR * self.limit_cores


BURST = Burst(60, 2.0, 20.0, 20.0) if os.environ.get("PODGATE_TEST_SCHEDULING") == "soak" else Burst(12, 8.0, 7.0, 30.0)


@pytest.fixture
def publishing(scheduler: ExtendedScheduler, request: pytest.FixtureRequest) -> Iterator[str]:
    """Run the scheduler with these flags. Without the extender it places no Pod."""
    flag = str(request.param)
    restart(scheduler, *filter(None, [flag]), ignorable=False)
    yield flag
    scheduler.delete_all()
    restart(scheduler)


def restart(scheduler: ExtendedScheduler, *flags: str, **extender: bool) -> None:
    scheduler.plane.processes.stop(SECOND)
    scheduler.start_scheduler(*flags, **extender)


@pytest.mark.parametrize("publishing", ["", PUBLISHED_IN_CLAIMS], indirect=True, ids=["pods", "claims"])
def test_burst_with_slow_volumes_and_a_killed_replica_ends_at_most_one_pod_above_the_threshold(
    scheduler: ExtendedScheduler, exporters: NodeExporters, publishing: str
) -> None:
    used = {"cool": BURST.cool_cores, "warm-1": BURST.warm_cores, "warm-2": BURST.warm_cores}
    for node, cores in used.items():
        exporters.set(node, cores=cores)

    def is_measured(replica: str) -> bool:
        shown = scheduler.nodes(replica)
        return all(abs(shown[node]["cpuShare"] - cores / CORES) < 1 / CORES for node, cores in used.items())

    for replica in (EXTENDER, OTHER):
        scheduler.plane.wait(lambda replica=replica: is_measured(replica), "the load", replica)
    resources = {"requests": {"cpu": "100m"}, "limits": {"cpu": f"{1000 * BURST.limit_cores:g}m"}}
    containers = [{"name": "c", "image": "i", "resources": resources}]
    names = [f"slow-{number}" for number in range(BURST.pods)]
    with SlowVolumes(scheduler.plane, BURST.volume_seconds) as volumes:

        def create(*created: str) -> None:
            for name in created:
                scheduler.create(name, "steady", containers=containers, volumes=volumes.claim(name))

        create(*names[: BURST.pods // 2])
        begun_seconds = time.monotonic()
        scheduler.stop_extender(OTHER, kill=True)
        scheduler.start_extender(OTHER)
        time.sleep(max(0.0, begun_seconds + 1.2 * CONFIRMED_SECONDS - time.monotonic()))
        create(*names[BURST.pods // 2 :])
        nominated = set()
        for name in names:
            while not (node := scheduler.find_node(name)):
                nominated |= {*filter(None, [scheduler.find_nominated(name)])}
                scheduler.plane.processes.require(SECOND)
            assert node != "hot"
        found = Counter(scheduler.find_node(name) for name in names)
    assert bool(nominated) is not bool(publishing)
    shares = {node: (cores + found[node] * BURST.expected_cores) / CORES for node, cores in used.items()}
    print(f"{BURST}: {dict(found)}, highest share {max(shares.values()):.3f}")  # noqa: T201  a measurement is for people
    assert max(shares.values()) <= HOT + BURST.expected_cores / CORES, shares
    for node in used:
        exporters.set(node, cores=4.0)
