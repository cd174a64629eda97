"""Pod fingerprint: the set of Pods with which a report of zones was made, in the form pfp0v001, and the Pods it counts.

Source: podfingerprint of k8stopologyawareschedwg, and the exporters RTE and NFD. Why the hash is our own:
docs/design/zone-reports.md.
"""

import struct
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

from msgspec import Struct

from webhook.core.container_resources.qos import find_qos_class
from webhook.core.kubernetes import pod_requests
from webhook.core.kubernetes.pod import Pod
from webhook.core.policy_fields import QosClass

ATTRIBUTE, METHOD_ATTRIBUTE = "nodeTopologyPodsFingerprint", "nodeTopologyPodsFingerprintMethod"
ANNOTATION = "topology.node.k8s.io/fingerprint"
"""Where older exporters write it, of all Pods."""
_VERSION = "pfp0v001"
_EXCLUSIVE = "with-exclusive-resources"
_METHODS = frozenset({"", "all", "exclude-terminal", _EXCLUSIVE})
"""Without a method all Pods are counted. Terminal Pods are never among those that are compared."""


class PodFingerprint(Struct, frozen=True):
    """What a report says of its Pods; `is_exclusive`: it counts only those with exclusive resources."""

    value: str
    is_exclusive: bool


def read_fingerprint(attributes: Mapping[str, str], annotations: Mapping[str, str]) -> PodFingerprint | None:
    """Return the fingerprint of a report, None if it has none that is known."""
    method = attributes.get(METHOD_ATTRIBUTE, "")
    value = attributes.get(ATTRIBUTE)
    if value is None:
        method, value = "", annotations.get(ANNOTATION, "")
    is_known = value.startswith(_VERSION) and method in _METHODS
    return PodFingerprint(value, method == _EXCLUSIVE) if is_known else None


class PodIdentity(Struct, gc=False):
    """A Pod on a node as fingerprints know it, and whether it counts where only Pods with exclusive resources do."""

    namespace: str
    name: str
    since_seconds: float
    has_whole_cpus: bool
    has_memory: bool
    """Exclusive only by a Memory Manager, whose policy nobody reports."""
    devices: frozenset[str]
    _hash: int | None = None

    @classmethod
    def from_pod(cls, pod: Pod, since_seconds: float) -> "PodIdentity":
        # Init containers other than sidecars give back what they have.
        starting = [container for container in pod.spec.init_containers or () if pod_requests.is_sidecar(container)]
        resources = [container.resources for container in (*starting, *(pod.spec.containers or ()))]
        asked = [amounts for found in resources if found for amounts in (found.requests, found.limits) if amounts]
        names = frozenset(name for amounts in asked for name in amounts)
        has_cpus = has_memory = False
        has_limits = pod.spec.resources is not None or all(
            found is not None and found.limits and "cpu" in found.limits for found in resources
        )
        if has_limits and find_qos_class(pod) is QosClass.GUARANTEED:  # the limits are looked at first: it is cheaper
            cpus = [pod_requests.read_amount(amounts, "cpu") or 0 for amounts in asked]
            has_cpus = any(cpu and cpu % pod_requests.NANO == 0 for cpu in cpus)
            has_memory = any(name == "memory" or name.startswith("hugepages-") for name in names)
        devices = frozenset(name for name in names if "/" in name)
        return cls(pod.metadata.namespace, pod.metadata.name, since_seconds, has_cpus, has_memory, devices)

    def compute_hash(self) -> int:
        """Return its hash. It is computed once, when it is first asked for: most Pods are on nodes without reports."""
        if self._hash is None:
            self._hash = hash_pod(self.namespace, self.name)
        return self._hash

    def is_exclusive(self, resources: set[str]) -> bool:
        """Return whether it has whole cpus, or devices among the resources of zones."""
        return self.has_whole_cpus or not self.devices.isdisjoint(resources)

    def may_be_exclusive(self, resources: set[str]) -> bool:
        """Return whether it has these, or memory."""
        return self.has_memory or self.is_exclusive(resources)


_NEWEST_MAX = 8
"""Newest Pods of a node that a report may lack."""


def find_contained(
    pods: Mapping[str, PodIdentity], fingerprint: PodFingerprint, resources: set[str]
) -> frozenset[str] | None:
    """Return the uids of the Pods with which a report was made: all that it counts but for the newest ones.

    None if it was made with others. `resources` are those of the zones.
    """
    oldest_first = sorted(pods, key=lambda uid: pods[uid].since_seconds)
    tested: list[list[str]] = []
    for is_counted in _choose_tests(fingerprint, resources):
        counted = [uid for uid in oldest_first if is_counted(pods[uid])]
        if counted in tested:
            continue
        tested.append(counted)
        hashes = [pods[uid].compute_hash() for uid in counted]
        for count in range(len(counted), max(-1, len(counted) - _NEWEST_MAX - 1), -1):
            if compute_fingerprint(hashes[:count]) == fingerprint.value:
                return frozenset(counted[:count])
    return None


def _choose_tests(fingerprint: PodFingerprint, resources: set[str]) -> tuple[Callable[[PodIdentity], bool], ...]:
    if not fingerprint.is_exclusive:
        return (lambda _: True,)
    return (lambda pod: pod.is_exclusive(resources), lambda pod: pod.may_be_exclusive(resources))


def compute_fingerprint(hashes: Iterable[int]) -> str:
    """Return the fingerprint of a set of Pods, of which these are the hashes."""
    ordered = sorted(hashes)
    return f"{_VERSION}{xxh64(struct.pack(f'<{len(ordered)}Q', *ordered)):016x}"


def hash_pod(namespace: str, name: str) -> int:
    return xxh64(name.encode(), _hash_namespace(namespace))


@lru_cache(maxsize=1024)
def _hash_namespace(namespace: str) -> int:
    return xxh64(namespace.encode())


_BITS = (1 << 64) - 1
_P1, _P2, _P3, _P4, _P5 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
_STRIPE_BYTES, _LANE_BYTES = 32, 8


def xxh64(data: bytes, seed: int = 0) -> int:
    """Return the hash XXH64 of some bytes."""
    whole = len(data) - len(data) % _STRIPE_BYTES
    result = _mix_stripes(data[:whole], seed) if whole else seed + _P5
    result = (result + len(data)) & _BITS
    words = (len(data) - whole) // _LANE_BYTES
    for (lane,) in struct.iter_unpack("<Q", data[whole : whole + words * _LANE_BYTES]):
        result = (_rotate(result ^ _mix_lane(0, lane), 27) * _P1 + _P4) & _BITS
    rest = data[whole + words * _LANE_BYTES :]
    if len(rest) >= 4:  # noqa: PLR2004  half of a lane
        result = (_rotate(result ^ (int.from_bytes(rest[:4], "little") * _P1 & _BITS), 23) * _P2 + _P3) & _BITS
        rest = rest[4:]
    for byte in rest:
        result = _rotate(result ^ (byte * _P5 & _BITS), 11) * _P1 & _BITS
    result = (result ^ result >> 33) * _P2 & _BITS
    result = (result ^ result >> 29) * _P3 & _BITS
    return result ^ result >> 32


def _mix_stripes(data: bytes, seed: int) -> int:
    lanes = [(seed + _P1 + _P2) & _BITS, (seed + _P2) & _BITS, seed, (seed - _P1) & _BITS]
    for stripe in struct.iter_unpack("<4Q", data):
        lanes = [_mix_lane(lane, word) for lane, word in zip(lanes, stripe, strict=True)]
    result = sum(_rotate(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & _BITS
    for lane in lanes:
        result = ((result ^ _mix_lane(0, lane)) * _P1 + _P4) & _BITS
    return result


def _mix_lane(lane: int, word: int) -> int:
    return _rotate((lane + word * _P2) & _BITS, 31) * _P1 & _BITS


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & _BITS
