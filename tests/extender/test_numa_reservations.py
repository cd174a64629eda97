"""Cases of the cache of scheduler-plugins' NodeResourceTopologyMatch, in rows of our own, and where we differ.

Theirs is the cache `overreserve`. Zones are of 30 cpus and 60 Gi at first, Pod p takes 8 and 16 Gi, Pod q 4 and 8 Gi.
Their other cases are about marks on nodes for the next comparison, and about a field that selects the method of
fingerprints: we compare when a report comes, by the method that it names, and have neither.
"""

from typing import Any, NamedTuple

import msgspec
import pytest

from tests.extender.bursts import run_at_once
from webhook.core.kubernetes.pod import Pod
from webhook.core.kubernetes.pod_requests import NANO
from webhook.core.policy_fields.scheduling import Estimate
from webhook.core.scheduling.numa import NumaZones
from webhook.core.scheduling.pod_fingerprint import (
    PodFingerprint,
    PodIdentity,
    compute_fingerprint,
    hash_pod,
    read_fingerprint,
)
from webhook.extender.load_table import LoadTable

GI = (1 << 30) * NANO
CPUS = {"p": 8, "q": 4}
BEFORE, WITH_P = (30, 30), (30, 22)


def build_pod(name: str, node: str, phase: str) -> Pod:
    amounts = {"cpu": str(CPUS[name]), "memory": f"{2 * CPUS[name]}Gi"}
    container = {"name": "c", "resources": {"requests": amounts, "limits": amounts}}
    document = {
        "metadata": {"name": name, "namespace": "shop", "uid": name},
        "spec": {"nodeName": node, "containers": [container]},
        "status": {"phase": phase},
    }
    return msgspec.convert(document, Pod)


class Cluster:
    """Node a has zones, node b has none."""

    def __init__(self) -> None:
        self.table = LoadTable(lambda _: Estimate(), lambda: 1_000_000.0, lambda *_: None)
        self.table.numa.counts_pods = True
        self.report(BEFORE, None)

    def report(self, cpus: tuple[int, int], fingerprint: PodFingerprint | None) -> None:
        zones = tuple({"cpu": cpu * NANO, "memory": 2 * cpu * GI} for cpu in cpus)
        self.table.numa.on_numa_changed("a", NumaZones(zones, is_by_pod=False, fingerprint=fingerprint))

    def run(self, step: str) -> None:
        """Do `bind POD NODE`, `start POD NODE`, `end POD NODE`, or `report before|with-p of FINGERPRINT`."""
        verb, what, *rest = step.split()
        if verb == "report":
            pods = {"of p": ("p",), "of others": ("r",)}.get(" ".join(rest))
            fingerprint = None
            if pods is not None:
                fingerprint = PodFingerprint(compute_fingerprint(hash_pod("shop", pod) for pod in pods), False)  # noqa: FBT003  a field
            elif rest == ["of", "tomorrow"]:
                fingerprint = read_fingerprint({"nodeTopologyPodsFingerprint": "pfp0vFFFFdeadbeef000000"}, {})
            self.report(BEFORE if what == "before" else WITH_P, fingerprint)
            return
        pod = build_pod(what, rest[0], "Pending" if verb == "bind" else "Running")
        run_at_once(self.table.index.on_changed(pod, gone=verb == "end"))

    def left(self, node: str = "a") -> tuple[int, ...] | None:
        found = self.table.numa.find_zones(node)
        if found is None:
            return None
        assert all(zone["memory"] // GI == 2 * zone["cpu"] // NANO for zone in found.zones)
        return tuple(zone["cpu"] // NANO for zone in found.zones)


class Row(NamedTuple):
    steps: tuple[str, ...]
    theirs: tuple[int, int] | None
    """Cpus that are left in the zones; None: they refuse the node to all Pods."""
    ours: tuple[int, int]
    why: str = ""


ROWS = [
    Row((), (30, 30), (30, 30)),
    Row(("bind p a",), (22, 22), (22, 22)),
    Row(("bind p b",), (30, 30), (30, 30)),
    Row(("end p a",), (30, 30), (30, 30)),
    Row(("bind p a", "end p a"), (30, 30), (30, 30)),
    Row(("bind p a", "start p a", "report with-p of p"), WITH_P, WITH_P),
    Row(("bind p a", "report with-p of p"), (22, 22), WITH_P, "a kubelet counts Pods that are still Pending"),
    Row(
        ("bind p a", "start p a", "report with-p"),
        (22, 22),
        (22, 14),
        "a report without fingerprint is used: it may be the only kind that an exporter writes",
    ),
    Row(
        ("bind p a", "start p a", "report with-p of others"),
        (22, 22),
        (22, 14),
        "what is left is never more than the report says, also while it does not match",
    ),
    Row(("bind p a", "start p a", "report with-p of tomorrow"), (22, 22), (22, 14), "as without a fingerprint"),
    Row(("bind p a", "start p a", "report before of others", "bind q a"), (18, 18), (18, 18)),
    Row(("bind p a", "start p a", "report with-p of p", "bind q a"), (26, 18), (26, 18)),
    Row(("bind p a", "bind q a", "start p a", "report with-p of p"), (18, 18), (26, 18), "q is known to be newer"),
    Row(("start p b",), (30, 30), (30, 30)),
    Row(("start p a",), None, (22, 22), "a Pod of another scheduler takes what it requests, and no more"),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: ", ".join(row.steps) or "nothing")
def test_what_is_left_is_as_in_scheduler_plugins_unless_the_row_says_why_not(row: Row) -> None:
    cluster = Cluster()
    for step in row.steps:
        cluster.run(step)
    assert cluster.left() == row.ours
    assert (row.theirs == row.ours) is not bool(row.why)
    assert cluster.left("b") is None


NIC = "vendor/nic"
GUARANTEED, SHARED = {"cpu": "2", "memory": "1Gi"}, {"cpu": "1500m", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("containers", "init", "restarts", "zones", "theirs"),
    [
        ((), (), "", {NIC}, False),
        ((GUARANTEED,), (), "", {"cpu"}, True),
        ((GUARANTEED,), (), "", set(), True),
        ((SHARED,), (), "", {"cpu"}, True),
        ((GUARANTEED | {NIC: "1"},), (), "", {NIC}, True),
        ((), (GUARANTEED,), "", {"cpu"}, False),
        ((), (GUARANTEED,), "Always", {"cpu"}, True),
        (({NIC: "1"},), (), "", {NIC}, True),
        (({NIC: "1"},), (), "", {"vendor/other"}, False),
        (({NIC: "1"},), (), "", set(), False),
        ((), ({NIC: "1"},), "", {NIC}, False),
        ((), ({NIC: "1"},), "Always", {NIC}, True),
        (({"cpu": "2", NIC: "1"},), (), "", {NIC}, True),
        (({"cpu": "2"},), (), "", {"cpu"}, False),
    ],
)
def test_pods_that_may_have_exclusive_resources_are_those_of_scheduler_plugins(
    containers: tuple[dict[str, str], ...],
    init: tuple[dict[str, str], ...],
    restarts: str,
    zones: set[str],
    *,
    theirs: bool,
) -> None:
    def container(amounts: dict[str, str], policy: str = "") -> dict[str, Any]:
        limits = {"limits": amounts} if amounts in (GUARANTEED, SHARED) or NIC in amounts else {}
        return {"name": "c", "resources": {"requests": amounts} | limits, "restartPolicy": policy or None}

    spec = {
        "containers": [container(amounts) for amounts in containers],
        "initContainers": [container(amounts, restarts) for amounts in init],
    }
    pod = msgspec.convert({"metadata": {"name": "p", "namespace": "shop"}, "spec": spec}, Pod)
    assert PodIdentity.from_pod(pod, 0.0).may_be_exclusive(zones) is theirs
