"""Pod fingerprints: the published vectors, and which Pods a report was made with."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.core.kubernetes.pod import Pod
from webhook.core.scheduling.pod_fingerprint import (
    PodFingerprint,
    PodIdentity,
    compute_fingerprint,
    find_contained,
    hash_pod,
    read_fingerprint,
    xxh64,
)

TINY = [("production", "jaeger-dpgjk"), ("production", "nginx-rt684"), ("production", "envoy-g9m22")]
SMALL = [
    ("analytics", "controller-69dkj"),
    *(("kube-public", f"{name}") for name in ("subscriber-tq6v7", "transformer-hfbng", "validator-c6pn5")),
    ("kube-system", "proxy-wszrd"),
    ("middleware", "processor-jkrl4"),
    *(("network", name) for name in ("gateway-vsll5", "importer-kzdfr", "importer-q5vt9")),
    ("staging", "prometheus-bwgbn"),
]
NIC, OLD_NIC = "vendor/nic", "vendor/old-nic"


@pytest.mark.parametrize(
    ("pods", "expected"),
    [(TINY, "pfp0v001607b76a0e9d3aeb4"), (SMALL, "pfp0v001567144e4a561bb5a"), ([], "pfp0v001ef46db3751d8e999")],
)
def test_fingerprints_are_those_of_podfingerprint_in_any_order(pods: list[tuple[str, str]], expected: str) -> None:
    for listed in (pods, pods[::-1]):
        assert compute_fingerprint(hash_pod(*pod) for pod in listed) == expected


@pytest.mark.parametrize(
    ("data", "seed", "expected"),
    [
        (b"", 0, 0xEF46DB3751D8E999),
        (b"a", 0, 0xD24EC4F1A98C6E5B),
        (b"abc", 0, 0x44BC2CF5AD770999),
        (bytes(range(100)), 0, 0x6AC1E58032166597),
        (bytes(range(100)), 1, 0x3D19A3A2098A7023),
    ],
)
def test_hash_is_xxh64(data: bytes, seed: int, expected: int) -> None:
    assert xxh64(data, seed) == expected


PINNED = {"has_whole_cpus": True, "has_memory": True, "devices": frozenset[str]()}
SHARED = PINNED | {"has_whole_cpus": False}
BURSTABLE = SHARED | {"has_memory": False}


def counted(*names: str, **kinds: dict[str, Any]) -> dict[str, PodIdentity]:
    """Return Pods, the oldest first."""
    every = dict.fromkeys(names, PINNED) | kinds
    return {name: PodIdentity("shop", name, float(at), **kind) for at, (name, kind) in enumerate(every.items())}


def fingerprint(*names: str, is_exclusive: bool = False) -> PodFingerprint:
    return PodFingerprint(compute_fingerprint(hash_pod("shop", name) for name in names), is_exclusive)


@given(count=st.integers(0, 20), missing=st.integers(0, 12))
def test_report_may_lack_the_eight_newest_pods(count: int, missing: int) -> None:
    names = [f"p{number}" for number in range(count)]
    reported = names[: max(0, count - missing)]
    expected = frozenset(reported) if count - len(reported) <= 8 else None
    assert find_contained(counted(*names), fingerprint(*reported), set()) == expected


def test_report_with_another_pod_or_without_an_old_one_contains_nothing() -> None:
    assert find_contained(counted("a", "b"), fingerprint("a", "b", "gone"), set()) is None
    assert find_contained(counted("a", "b"), fingerprint("b"), set()) is None


def build_pod(requests: dict[str, str], limits: dict[str, str] | None = None, *, init: str = "") -> Pod:
    def container(amounts: dict[str, str], bounds: dict[str, str]) -> dict[str, Any]:
        return {"name": "c", "resources": {"requests": amounts, "limits": bounds}}

    found = container(requests, requests if limits is None else limits)
    started = container({NIC: "1"}, {NIC: "1"}) | {"restartPolicy": init or None}
    spec = {"containers": [found], "initContainers": [started] if init else []}
    return msgspec.convert({"metadata": {"name": "p", "namespace": "shop"}, "spec": spec}, Pod)


@pytest.mark.parametrize(
    ("pod", "is_exclusive", "may_be"),
    [
        (build_pod({"cpu": "2", "memory": "1Gi"}), True, True),
        (build_pod({"cpu": "1500m", "memory": "1Gi"}), False, True),
        (build_pod({"cpu": "2", "memory": "1Gi"}, {"cpu": "3", "memory": "1Gi"}), False, False),
        (build_pod({NIC: "1"}), True, True),
        (build_pod({OLD_NIC: "1"}), False, False),
        (build_pod({}), False, False),
        (build_pod({"cpu": "100m"}, init="Always"), True, True),
        (build_pod({"cpu": "100m"}, init="Never"), False, False),
    ],
)
def test_exclusive_are_whole_cpus_of_guaranteed_pods_and_devices_of_zones_and_memory_may_be(
    pod: Pod, *, is_exclusive: bool, may_be: bool
) -> None:
    found = PodIdentity.from_pod(pod, 0.0)
    assert (found.is_exclusive({"cpu", NIC}), found.may_be_exclusive({"cpu", NIC})) == (is_exclusive, may_be)


@pytest.mark.parametrize("with_memory", [False, True])
def test_report_of_exclusive_pods_is_recognised_with_and_without_a_memory_manager(*, with_memory: bool) -> None:
    pods = counted(pinned=PINNED, shared=SHARED, burstable=BURSTABLE)
    names = ("pinned", "shared") if with_memory else ("pinned",)
    assert find_contained(pods, fingerprint(*names, is_exclusive=True), set()) == {*names}
    assert find_contained(pods, fingerprint(*pods), set()) == {*pods}


@pytest.mark.parametrize(
    ("attributes", "annotations", "expected"),
    [
        ({}, {}, None),
        ({"nodeTopologyPodsFingerprint": "pfp0v001aa"}, {}, PodFingerprint("pfp0v001aa", is_exclusive=False)),
        ({"nodeTopologyPodsFingerprint": "pfp0v002aa"}, {}, None),
        ({}, {"topology.node.k8s.io/fingerprint": "pfp0v001bb"}, PodFingerprint("pfp0v001bb", is_exclusive=False)),
        *(
            (
                {"nodeTopologyPodsFingerprint": "pfp0v001aa", "nodeTopologyPodsFingerprintMethod": method},
                {"topology.node.k8s.io/fingerprint": "pfp0v001bb"},
                expected,
            )
            for method, expected in (
                ("all", PodFingerprint("pfp0v001aa", is_exclusive=False)),
                ("exclude-terminal", PodFingerprint("pfp0v001aa", is_exclusive=False)),
                ("with-exclusive-resources", PodFingerprint("pfp0v001aa", is_exclusive=True)),
                ("of-tomorrow", None),
            )
        ),
    ],
)
def test_fingerprint_is_read_from_attributes_else_from_the_legacy_annotation(
    attributes: dict[str, str], annotations: dict[str, str], expected: PodFingerprint | None
) -> None:
    assert read_fingerprint(attributes, annotations) == expected
