"""Encoded records of decisions, as a server keeps them, and their shared form. The encoder makes them from reviews."""

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from webhook.core.quota import Acquire, Receipt
from webhook.core.reporting.decision_record import DecisionRecord
from webhook.core.reporting.limit_record import NO_LIMITS, pack_limits, unpack_limits
from webhook.core.reporting.packed_record import GroupHead, OwnHead, decode_group_head, decode_own_head, unpack_record
from webhook.core.reporting.pod_compression import decompress_pod, pack_pod

POD_BYTES_MAX = 8 * 1024
"""Size above which a recorded Pod is left out."""


class RecordHead(Struct, frozen=True, gc=False, array_like=True):
    """The fields of a record that queries read: the first of its shared form."""

    own: OwnHead
    group: GroupHead


class EncodedRecord(Struct, frozen=True, gc=False):
    """A decision record in parts: its own fields and its group's, packed; its recorded Pods in JSON, empty if left out.

    Limits are packed and Pods are compressed when the record is shared: most records never are.
    """

    own: bytes
    group: bytes
    pod: bytes = b""
    old_pod: bytes = b""
    asked: Acquire | None = None
    receipt: Receipt | None = None
    """The request to the store, and its answer; None if there was none."""
    size: int = 0
    """Bytes that it adds: it may share the group and the recorded Pod of earlier records."""

    @property
    def head(self) -> RecordHead:
        return RecordHead(decode_own_head(self.own), decode_group_head(self.group))

    def read(self) -> DecisionRecord:
        """Return the whole record."""
        return _make_record(self.own, self.group, self._pack_limits(), self.pod, self.old_pod)

    @property
    def shared(self) -> bytes:
        """Return the whole record in its packed form, as replicas share it."""
        return b"".join(
            (_ARRAY_OF_FIVE, self.own, self.group, self._pack_limits(), pack_pod(self.pod), pack_pod(self.old_pod))
        )

    def _pack_limits(self) -> bytes:
        return NO_LIMITS if self.asked is None or self.receipt is None else pack_limits(self.asked, self.receipt)


class _Shared(Struct, frozen=True, gc=False, array_like=True):
    own: Raw
    group: Raw
    limits: Raw
    pod: bytes
    old_pod: bytes


_ARRAY_OF_FIVE = b"\x95"
"""The beginning of a `_Shared`: MessagePack writes an array as its length and its elements."""
_unpack = msgspec.msgpack.Decoder(_Shared).decode
decode_shared_head = msgspec.msgpack.Decoder(RecordHead).decode
"""Returns the head of a record in its shared form. Raises msgspec.MsgspecError."""


def decode_shared_record(raw: bytes) -> DecisionRecord:
    """Return a record from its shared form. ValueError: it is none."""
    shared = _unpack(raw)
    return _make_record(
        shared.own,
        shared.group,
        shared.limits,
        decompress_pod(shared.pod, POD_BYTES_MAX),
        decompress_pod(shared.old_pod, POD_BYTES_MAX),
    )


def _make_record(
    own: bytes | Raw, group: bytes | Raw, limits: bytes | Raw, pod: bytes, old_pod: bytes
) -> DecisionRecord:
    pods = {"recorded": pod, "recorded_old": old_pod}
    present = {name: Raw(encoded) for name, encoded in pods.items() if encoded}
    return replace(unpack_record(own, group), limits=unpack_limits(limits), **present)
