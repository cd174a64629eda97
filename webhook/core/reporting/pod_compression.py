"""Compression of recorded Pods, in JSON, with a dictionary of what most Pods have."""

import zlib
from functools import lru_cache

import msgspec

_LEVEL, _WINDOW_BITS, _MEMORY = 6, 13, 6
"""For texts of at most 8 KB."""
# Records that are kept can be read with this dictionary only: another one needs another form of record.
_USUAL = b"".join(
    (
        b'"podAffinity":{"podAntiAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":100,',
        b'"podAffinityTerm":{"labelSelector":{"matchLabels":{"topologyKey":"kubernetes.io/hostname"',
        b'"topologySpreadConstraints":[{"maxSkew":1,"topologyKey":"topology.kubernetes.io/zone",',
        b'"whenUnsatisfiable":"ScheduleAnyway","DoNotSchedule","initContainers":[{"restartPolicy":"Always","nodeName":"',
        b'"nodeSelector":{"kubernetes.io/arch":"amd64","priorityClassName":"preemptionPolicy":"PreemptLowerPriority",',
        b'"runtimeClassName":"schedulingGates":[{"name":"overhead"{"metadata":{"name":"","generateName":"",',
        b'"namespace":"","labels":{"app":"app.kubernetes.io/name":"app.kubernetes.io/instance":"pod-template-hash":"',
        b'podgate.io/service":""},"annotations":{"podgate.io/policy-hash":"',
        b'"},"ownerReferences":[{"kind":"StatefulSet","DaemonSet","Job","ReplicaSet","name":"","uid":"',
        b'","controller":true}]},"spec":{"containers":[{"name":"","resources":{"requests":{"cpu":"100m",',
        b'"memory":"256Mi"},"limits":{"memory":"512Mi"}}}],"schedulerName":"default-scheduler",',
        b'"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":',
        b'[{"matchExpressions":[{"key":"topology.kubernetes.io/zone","operator":"In","values":[""]}]}]}}},',
        b'"tolerations":[{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute",',
        b'"tolerationSeconds":300},{"key":"node.kubernetes.io/unreachable","operator":"Exists","effect":"NoExecute",',
        b'"tolerationSeconds":300},{"key":"","operator":"Equal","value":"","effect":"NoSchedule"}],"priority":0}}',
    )
)


_pack = msgspec.msgpack.Encoder().encode


@lru_cache(maxsize=512)  # Pods of one controller mostly share one
def pack_pod(pod: bytes) -> bytes:
    """Return a compressed Pod as a binary of MessagePack, an empty one for none."""
    return _pack(compress_pod(pod))


def compress_pod(pod: bytes) -> bytes:
    if not pod:
        return b""
    compression = zlib.compressobj(_LEVEL, zlib.DEFLATED, _WINDOW_BITS, _MEMORY, zdict=_USUAL)
    return compression.compress(pod) + compression.flush()


def decompress_pod(raw: bytes, bytes_max: int) -> bytes:
    """Return a Pod that `compress_pod` compressed. ValueError: it is something else, or larger than `bytes_max`."""
    if not raw:
        return b""
    decompression = zlib.decompressobj(_WINDOW_BITS, zdict=_USUAL)
    try:
        pod = decompression.decompress(raw, bytes_max + 1)
    except zlib.error as error:
        raise ValueError(f"a recorded Pod cannot be decompressed: {error}") from None
    if not decompression.eof or len(pod) > bytes_max:
        raise ValueError(f"a recorded Pod is incomplete, or larger than {bytes_max} bytes")
    return pod
