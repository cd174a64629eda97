"""Cases of the filter of scheduler-plugins' NodeResourceTopologyMatch, in rows of our own, and where we differ.

A node is given by its scope and its zones, a Pod by what its containers request; `/` divides zones and containers. What
is requested is also the limit, unless the row says `Burstable`: then there is no limit for cpu and memory.
"""

from typing import Any, NamedTuple

import msgspec
import pytest

from webhook.core.kubernetes.pod import Pod
from webhook.core.policy_fields.scheduling import Numa, Scheduling
from webhook.core.scheduling.hot_node_filters import make_filters
from webhook.core.scheduling.numa import NumaZones
from webhook.core.scheduling.topology import TopologyReport

NAMES = {
    "mem": "memory",
    "huge": "hugepages-2Mi",
    "nic": "vendor/nic1",
    "absent": "vendor/notexistingnic",
    "shared": "vendor.com/old-nic-model",
    "extended": "namespace/extended",
    "disk": "ephemeral-storage",
}
CONTAINER, POD = "SingleNUMANodeContainerLevel", "SingleNUMANodePodLevel"
NODES = {
    "wide": (CONTAINER, "cpu=4 mem=8Gi nic=10 / cpu=8 mem=8Gi nic=10"),
    "narrow": (CONTAINER, "cpu=2 mem=4Gi huge=128Mi nic=5 / cpu=4 mem=4Gi huge=128Mi nic=2"),
    "by-pod": (POD, "cpu=2 mem=4Gi nic=5 / cpu=4 mem=4Gi nic=2"),
    "gap": (POD, "cpu=2 mem=4Gi nic=5 / cpu=4 mem=4Gi nic=2"),
    "large": (CONTAINER, "cpu=30 mem=60Gi huge=384Mi nic=16 / cpu=32 mem=64Gi huge=512Mi nic=32"),
    "large-by-pod": (POD, "cpu=30 mem=60Gi huge=384Mi nic=16 / cpu=32 mem=64Gi huge=512Mi nic=32"),
}
ZONE_NAMES = {"gap": ("node-0", "node-75")}
FITS, REFUSED = True, False


class Row(NamedTuple):
    node: str
    containers: str
    theirs: bool
    qos: str = ""
    init: str = ""
    why_not: str = ""
    """Why we decide otherwise, "" where we do not."""


QOS_AND_DEVICES = [
    Row("wide", "", FITS),
    Row("wide", "cpu=2 mem=2Gi", FITS),
    Row("wide", "cpu=8 mem=8Gi", FITS),
    Row("wide", "cpu=9 mem=1Gi nic=3", REFUSED),
    Row("wide", "cpu=2 mem=2Gi huge=0 nic=3", FITS),
    Row("wide", "cpu=2 mem=1Gi absent=0", FITS),
    Row("wide", "cpu=2 mem=2Gi extended=1 nic=3", FITS),
    Row("wide", "cpu=2 mem=2Gi extended=1", FITS),
    Row("wide", "cpu=4 extended=1 nic=3", FITS),
    Row("wide", "extended=1 nic=10", FITS),
    Row("wide", "nic=20", REFUSED),
    Row("narrow", "cpu=2 mem=2Gi nic=3", FITS),
    Row("narrow", "cpu=2 mem=2Gi huge=64Mi nic=3", FITS),
    Row("narrow", "cpu=2 mem=2Gi huge=256Mi nic=3", REFUSED),
    Row("narrow", "cpu=2 mem=2Gi huge=64Mi shared=3", FITS),
    Row("narrow", "cpu=2 mem=2Gi disk=100Mi", FITS),
    Row("narrow", "nic=5", FITS),
    Row("narrow", "cpu=4 nic=3", FITS),
    Row("narrow", "cpu=4 nic=11", REFUSED),
    Row("narrow", "cpu=2 nic=5", FITS),
    Row("narrow", "cpu=4 nic=5", FITS),
    Row("narrow", "mem=2Gi nic=11", REFUSED),
    Row("narrow", "mem=4Gi nic=5", FITS),
    Row("narrow", "mem=5Gi nic=5", FITS),
    Row("narrow", "cpu=3 mem=3Gi nic=11", REFUSED, "Burstable, below its limits"),
    Row("narrow", "cpu=3 mem=3Gi nic=5", FITS, "Burstable, below its limits"),
    Row("narrow", "cpu=5 mem=5Gi nic=5", FITS, "Burstable, below its limits"),
    Row("narrow", "cpu=4 mem=4Gi nic=11", REFUSED, "Burstable"),
    Row("narrow", "cpu=4 mem=4Gi nic=5", FITS, "Burstable"),
    Row("narrow", "cpu=5 mem=5Gi nic=5", FITS, "Burstable"),
    Row("by-pod", "nic=5", FITS),
    Row("by-pod", "nic=20", REFUSED),
    Row("by-pod", "cpu=2 nic=6", REFUSED),
    Row("by-pod", "cpu=2 nic=5", FITS),
    Row("by-pod", "cpu=20 nic=5", FITS),
    Row("by-pod", "mem=2Gi nic=6", REFUSED),
    Row("by-pod", "mem=2Gi nic=5", FITS),
    Row("by-pod", "mem=5Gi nic=5", FITS),
    Row("by-pod", "cpu=1 mem=1Gi nic=6", REFUSED, "Burstable, below its limits"),
    Row("by-pod", "cpu=1 mem=1Gi nic=5", FITS, "Burstable, below its limits"),
    Row("by-pod", "cpu=19 mem=5Gi nic=5", FITS, "Burstable, below its limits"),
    Row("by-pod", "cpu=2 mem=2Gi nic=6", REFUSED, "Burstable"),
    Row("by-pod", "cpu=2 mem=2Gi nic=5", FITS, "Burstable"),
    Row("by-pod", "cpu=20 mem=5Gi nic=5", FITS, "Burstable"),
    Row("by-pod", "cpu=1 mem=1Gi", FITS),
    Row("by-pod", "cpu=1 mem=1Gi absent=0 / cpu=1 mem=1Gi absent=0 / cpu=1 mem=1Gi absent=0", FITS),
    Row("by-pod", "cpu=3 mem=1Gi absent=0 / cpu=3 mem=1Gi absent=0 / cpu=3 mem=1Gi absent=0", REFUSED),
    Row("gap", "cpu=2 mem=4Gi", FITS),
    Row(
        "gap",
        "cpu=1 mem=1Gi absent=0 / cpu=1 mem=1Gi absent=0 / cpu=1 mem=1Gi absent=0",
        REFUSED,
        why_not="they drop zones with a number above 64; a kubelet that reports one has it",
    ),
]
WHOLE_PODS = [
    Row("large-by-pod", "cpu=2 mem=2Gi / cpu=4 mem=8Gi / cpu=26 mem=32Gi huge=512Mi nic=26", FITS),
    Row("large-by-pod", "cpu=2 mem=2Gi / cpu=8 mem=8Gi / cpu=26 mem=26Gi huge=52Mi nic=26", REFUSED),
    Row("large-by-pod", "cpu=2 mem=4Gi / cpu=4 mem=16Gi / cpu=26 mem=52Gi huge=52Mi nic=26", REFUSED),
    Row("large-by-pod", "cpu=2 mem=2Gi / cpu=4 mem=8Gi / cpu=26 mem=32Gi huge=3328Mi nic=26", REFUSED),
    Row("large-by-pod", "cpu=2 mem=2Gi / cpu=4 mem=8Gi / cpu=26 mem=26Gi huge=52Mi nic=52", REFUSED),
]
TWO_LARGE = "cpu=20 mem=40G / cpu=20 mem=40G"
CONTAINERS = [
    Row("large", "cpu=2 mem=4G", FITS),
    Row("large", "cpu=40 mem=4G", REFUSED),
    Row("large", "cpu=2 mem=100G", REFUSED),
    Row("large", "cpu=40 mem=100G", REFUSED),
    Row("large", TWO_LARGE, FITS),
    Row("large", "cpu=2 mem=6G huge=500Mi nic=16 / cpu=2 mem=6G huge=50Mi nic=8", FITS),
    Row("large", "cpu=1 mem=4G / cpu=1 mem=4G", REFUSED, init="cpu=40 mem=40G"),
    Row("large", "cpu=1 mem=4G / cpu=1 mem=4G", REFUSED, init="cpu=4 mem=70G"),
    Row("large", TWO_LARGE, FITS, init="cpu=4 mem=10G"),
    Row("large", f"{TWO_LARGE} / cpu=6 mem=10G", FITS, init="cpu=4 mem=10G / cpu=4 mem=10G / cpu=4 mem=10G"),
    Row("large", f"{TWO_LARGE} / cpu=20 mem=6G", REFUSED, init="cpu=30 mem=10G / cpu=30 mem=10G"),
    Row("large", "cpu=35 mem=40G", REFUSED, init="cpu=30 mem=10G / cpu=30 mem=10G"),
    Row("large", TWO_LARGE, FITS, init="cpu=30 mem=10G / cpu=30 mem=10G"),
    Row("large", f"{TWO_LARGE} / cpu=2 mem=6G", FITS, init="cpu=30 mem=10G / cpu=30 mem=10G / cpu=30 mem=10G"),
    Row("large", f"{TWO_LARGE} / cpu=2 mem=6G", FITS, init="cpu=3 mem=50G / cpu=3 mem=50G / cpu=3 mem=50G"),
    Row("large", "cpu=20 mem=40G / cpu=2 mem=6G", REFUSED, init="cpu=40 mem=50G / cpu=3 mem=50G / cpu=3 mem=50G"),
    Row("large", "cpu=20 mem=40G / cpu=2 mem=6G", REFUSED, init="cpu=20 mem=50G / cpu=40 mem=50G / cpu=3 mem=50G"),
]


def parse(text: str) -> list[dict[str, str]]:
    parts = [dict(entry.split("=") for entry in part.split()) for part in text.split("/")] if text else []
    return [{NAMES.get(name, name): amount for name, amount in part.items()} for part in parts]


def build_zones(node: str) -> NumaZones:
    policy, zones = NODES[node]
    names = ZONE_NAMES.get(node, ("node-0", "node-1"))
    document = {
        "topologyPolicies": [policy],
        "zones": [
            {"name": name, "type": "Node", "resources": [{"name": key, "available": each[key]} for key in each]}
            for name, each in zip(names, parse(zones), strict=True)
        ],
    }
    found = msgspec.convert(document, TopologyReport).read_bound_zones()
    assert found is not None
    return found


def build_pod(row: Row) -> Pod:
    def container(amounts: dict[str, str]) -> dict[str, Any]:
        limits = amounts if "Burstable" not in row.qos else {name: amounts[name] for name in amounts if "/" in name}
        if "below" in row.qos:
            limits = amounts | {"cpu": "50", "memory": "60Gi"}
        return {"name": "c", "resources": {"requests": amounts, "limits": limits}}

    spec = {name: [container(each) for each in parse(text)] for name, text in _containers_of(row).items()}
    return msgspec.convert({"metadata": {"name": "p", "namespace": "shop"}, "spec": spec}, Pod)


def _containers_of(row: Row) -> dict[str, str]:
    return {"containers": row.containers, "initContainers": row.init}


@pytest.mark.parametrize("row", [*QOS_AND_DEVICES, *WHOLE_PODS, *CONTAINERS], ids=str)
def test_pod_fits_where_scheduler_plugins_let_it_unless_the_row_says_why_not(row: Row) -> None:
    demand = make_filters(build_pod(row), Scheduling(numa=Numa.REQUIRED)).numa
    fits = demand is None or demand.fits(build_zones(row.node))
    assert fits is (row.theirs if not row.why_not else not row.theirs)


def test_all_published_cases_are_here_and_few_differ() -> None:
    assert [len(rows) for rows in (QOS_AND_DEVICES, WHOLE_PODS, CONTAINERS)] == [49, 5, 17]
    assert sum(bool(row.why_not) for row in (*QOS_AND_DEVICES, *WHOLE_PODS, *CONTAINERS)) == 1
