"""Reservations of NUMA zones: which reports end them, and which do not."""

from typing import Any

import msgspec

from webhook.core.kubernetes.pod import Pod
from webhook.core.kubernetes.pod_requests import NANO
from webhook.core.kubernetes.timestamps import format_rfc3339
from webhook.core.policy_fields.scheduling import Estimate
from webhook.core.scheduling.numa import NumaZones
from webhook.extender.load_table import LoadTable

NODE = "a"


def build_pod(uid: str, phase: str = "Pending", scheduled_seconds: float | None = None, cores: int = 3) -> Pod:
    amounts = {"cpu": str(cores), "memory": "1Gi"}
    status: dict[str, Any] = {"phase": phase}
    if scheduled_seconds is not None:
        at = format_rfc3339(int(scheduled_seconds * 1_000_000))
        status["conditions"] = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": at}]
    container = {"name": "c", "resources": {"requests": amounts, "limits": amounts}}
    metadata = {"name": uid, "namespace": "shop", "uid": uid}
    document = {"metadata": metadata, "spec": {"nodeName": NODE, "containers": [container]}, "status": status}
    return msgspec.convert(document, Pod)


class Zones:
    """Two zones of one node, and the Pods there."""

    def __init__(self) -> None:
        self.now = 1_000_000.0
        self.table = LoadTable(lambda _: Estimate(), lambda: self.now, lambda *_: None)

    def report(self, *cores: int) -> None:
        self.table.numa.on_numa_changed(NODE, self.build(*cores))

    def list_reports(self, *cores: int) -> None:
        self.table.numa.on_numa_listed({NODE: self.build(*cores)})

    @staticmethod
    def build(*cores: int) -> NumaZones:
        return NumaZones(tuple({"cpu": count * NANO} for count in cores), is_by_pod=False)

    def show(self, pod: Pod) -> None:
        try:
            self.table.index.on_changed(pod, gone=False).send(None)
        except StopIteration:
            return
        raise AssertionError("it waited")

    def left(self) -> list[int]:
        found = self.table.numa.find_zones(NODE)
        assert found is not None
        return [zone["cpu"] // NANO for zone in found.zones]


def test_report_ends_only_what_it_may_contain() -> None:
    zones = Zones()
    zones.report(4, 4)
    zones.show(build_pod("p"))
    assert zones.left() == [1, 1]
    zones.now += 2
    zones.report(4, 4)  # what was reported before
    assert zones.left() == [1, 1]
    zones.report(4, 3)  # of something else: the Pod is still Pending
    assert zones.left() == [1, 0]
    zones.show(build_pod("p", "Running"))
    zones.now += 9
    zones.report(4, 2)
    assert zones.left() == [1, 0], "it runs for less than ten seconds"
    zones.now += 1
    zones.report(1, 2)
    assert zones.left() == [1, 2]


def test_repeated_report_ends_a_reservation_after_a_minute_and_five_minutes_do_without_any() -> None:
    zones = Zones()
    zones.report(4, 4)
    zones.show(build_pod("p", "Running"))
    zones.show(build_pod("q", cores=1))
    for seconds in (30, 29):
        zones.now += seconds
        zones.report(4, 4)
        zones.list_reports(4, 4)
        assert zones.left() == [0, 0]
    zones.now += 2
    zones.list_reports(4, 4)
    assert zones.left() == [0, 0], "a list is no new report"
    zones.report(4, 4)
    assert zones.left() == [3, 3]
    zones.now += 240
    assert zones.left() == [4, 4]


def test_restart_reserves_for_pods_that_the_listed_reports_may_not_contain() -> None:
    zones = Zones()
    for uid, phase, age, cores in (("old", "Running", 120, 1), ("new", "Running", 30, 2), ("slow", "Pending", 90, 1)):
        zones.show(build_pod(uid, phase, zones.now - age, cores))
    zones.list_reports(8, 8)  # the watch of reports starts later
    assert zones.left() == [5, 5]
    zones.now += 1
    zones.report(6, 8)
    assert zones.left() == [5, 7], "it contains the one that has run for 31 s"


def test_pod_that_is_gone_or_elsewhere_gives_its_zone_back() -> None:
    zones = Zones()
    zones.report(4, 4)
    pod = build_pod("p")
    zones.show(pod)
    zones.show(msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, phase="Failed")))
    assert zones.left() == [4, 4]
