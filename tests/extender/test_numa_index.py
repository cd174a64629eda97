"""Reservations of NUMA zones: which reports end them, and which do not."""

from collections.abc import Iterable
from typing import Any

import msgspec

from tests.extender.bursts import run_at_once
from webhook.core.kubernetes.pod import Pod, Resources
from webhook.core.kubernetes.pod_requests import NANO
from webhook.core.kubernetes.timestamps import format_rfc3339
from webhook.core.policy_fields.scheduling import Estimate
from webhook.core.scheduling.numa import NumaZones
from webhook.core.scheduling.pod_fingerprint import PodFingerprint, compute_fingerprint, hash_pod
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
        self.table.numa.counts_pods = True

    def report(self, *cores: int, pods: Iterable[str] | None = None, is_exclusive: bool = False) -> None:
        """Report what is available in each zone, with the fingerprint of these Pods if they are given."""
        self.table.numa.on_numa_changed(NODE, self.build(*cores, pods=pods, is_exclusive=is_exclusive))

    def list_reports(self, *cores: int, pods: Iterable[str] | None = None) -> None:
        self.table.numa.on_numa_listed({NODE: self.build(*cores, pods=pods)})

    @staticmethod
    def build(*cores: int, pods: Iterable[str] | None = None, is_exclusive: bool = False) -> NumaZones:
        fingerprint = None
        if pods is not None:
            fingerprint = PodFingerprint(compute_fingerprint(hash_pod("shop", pod) for pod in pods), is_exclusive)
        return NumaZones(tuple({"cpu": count * NANO} for count in cores), is_by_pod=False, fingerprint=fingerprint)

    def show(self, *pods: Pod, gone: bool = False) -> None:
        for pod in pods:
            run_at_once(self.table.index.on_changed(pod, gone=gone))

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


def test_report_that_repeats_the_last_one_ends_nothing_and_five_minutes_do() -> None:
    zones = Zones()
    zones.report(4, 4)
    zones.show(build_pod("p", "Running"))
    zones.show(build_pod("q", cores=1))
    for seconds in (30, 29, 60, 120):
        zones.now += seconds
        zones.report(4, 4)
        zones.list_reports(4, 4)
        assert zones.left() == [0, 0]
    zones.now += 62
    assert zones.left() == [4, 4]


def test_restart_reserves_for_all_pods_that_the_listed_reports_may_not_contain() -> None:
    zones = Zones()
    ages = (
        ("old", "Running", 301, 1),
        ("late", "Running", 120, 2),
        ("new", "Running", 5, 2),
        ("slow", "Pending", 90, 1),
    )
    for uid, phase, age, cores in ages:
        zones.show(build_pod(uid, phase, zones.now - age, cores))
    zones.list_reports(8, 8)  # the watch of reports starts later, and nobody knows how old this one is
    assert zones.left() == [3, 3]
    zones.now += 1
    zones.report(6, 8)
    assert zones.left() == [3, 5], "it contains the one that has run for 121 s"


# Reports with the fingerprint of their Pods.


def test_report_that_was_made_with_a_pod_ends_its_reservation_at_once() -> None:
    zones = Zones()
    zones.report(8, 8, pods=())
    zones.show(build_pod("p"), build_pod("q", cores=2))
    assert zones.left() == [3, 3]
    zones.report(5, 8, pods=("p",))
    assert zones.left() == [3, 6], "q is newer"
    zones.report(5, 6, pods=("p", "q"))
    assert zones.left() == [5, 6]


def test_report_that_was_made_with_other_pods_is_used_and_ends_nothing_but_by_five_minutes() -> None:
    zones = Zones()
    zones.report(8, 8, pods=())
    zones.show(build_pod("p", "Running"))
    zones.now += 60
    zones.report(8, 4, pods=("p", "gone"))
    assert zones.left() == [5, 1]
    zones.now += 241
    assert zones.left() == [8, 4]


def test_report_is_recognised_whenever_its_pods_are_shown() -> None:
    zones = Zones()
    zones.report(5, 8, pods=("p",))
    zones.now += 1
    zones.show(build_pod("p", scheduled_seconds=zones.now - 2))
    assert zones.left() == [5, 8], "the watch of Pods was late"
    zones.show(build_pod("p"), gone=True)
    zones.now += 1
    zones.show(build_pod("p", scheduled_seconds=zones.now))
    assert zones.left() == [2, 5], "another Pod of that name, as of a StatefulSet"


def test_restart_keeps_exactly_the_reservations_that_the_listed_report_does_not_contain() -> None:
    for is_report_first in (False, True):
        zones = Zones()
        if is_report_first:
            zones.list_reports(5, 8, pods=("p",))
        zones.show(build_pod("p", "Running", zones.now - 100), build_pod("q", "Running", zones.now - 40, cores=2))
        if not is_report_first:
            zones.list_reports(5, 8, pods=("p",))
        assert zones.left() == [3, 6]
        zones.now += 60
        zones.report(5, 8, pods=("p",))
        zones.list_reports(5, 8, pods=("p",))
        assert zones.left() == [3, 6]


def test_pods_that_were_known_before_reports_were_needed_are_counted_once_they_are_listed_again() -> None:
    zones = Zones()
    zones.table.numa.counts_pods = False
    old, new = build_pod("old", "Running", zones.now - 3000), build_pod("new")
    zones.show(old)
    zones.table.numa.counts_pods = True
    zones.show(new)
    zones.report(5, 8, pods=("old", "new"))
    assert zones.left() == [2, 5], "it does not know of the old one"
    index = zones.table.index
    for step in (index.on_list_begun(), index.on_listed([old, new]), index.on_list_complete()):
        run_at_once(step)
    assert zones.left() == [5, 8], "without another report"


def test_pod_that_the_exporter_leaves_out_goes_by_its_time() -> None:
    """Cpus that are no whole number are shared, so that a report by exclusive resources never counts the Pod."""
    zones = Zones()
    zones.report(8, 8, pods=(), is_exclusive=True)
    shared = build_pod("shared", "Running", cores=1)
    amounts: Any = {"cpu": "1500m", "memory": "1Gi"}
    [container] = shared.spec.containers or ()
    container = msgspec.structs.replace(container, resources=Resources(amounts, amounts))
    spec = msgspec.structs.replace(shared.spec, containers=(container,))
    zones.show(build_pod("p", "Running"), msgspec.structs.replace(shared, spec=spec))
    zones.now += 9
    zones.report(5, 8, pods=("p",), is_exclusive=True)
    assert zones.left() == [3, 6], "1.5 of the shared one"
    zones.now += 1
    zones.report(5, 7, pods=("p",), is_exclusive=True)
    assert zones.left() == [5, 7]


def test_pod_that_is_gone_or_elsewhere_gives_its_zone_back() -> None:
    zones = Zones()
    zones.report(4, 4)
    pod = build_pod("p")
    zones.show(pod)
    zones.show(msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, phase="Failed")))
    assert zones.left() == [4, 4]
    zones.show(build_pod("q", cores=1))
    zones.report(3, 4, pods=("q",))
    assert zones.left() == [3, 4], "it is not counted any more"
