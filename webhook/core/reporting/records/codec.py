"""Encoded records of decisions, as a server keeps them, and their shared form. The encoder makes them from reviews."""

from collections.abc import Sequence

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import astuple, replace

from webhook.core.reporting.decision_record import DecisionRecord
from webhook.core.reporting.limit_record import LimitUses, RecordedLimit, limit_rows
from webhook.core.reporting.records.packed import GroupHead, OwnHead, group_head_of, own_head_of, unpacked
from webhook.core.reporting.records.pod_compression import compressed, decompressed

POD_MAX_BYTES = 8 * 1024
"""Size above which a recorded Pod is left out."""


class RecordHead(Struct, frozen=True, gc=False, array_like=True):
    """The fields of a record that queries read: the first of its shared form."""

    own: OwnHead
    group: GroupHead


class EncodedRecord(Struct, frozen=True, gc=False):
    """A decision record in parts: its own fields and its group's, packed; its recorded Pods in JSON, empty if left out.

    Rows of limits are made and Pods are compressed when the record is read or shared: each takes as long as all else.
    """

    own: bytes
    group: bytes
    pod: bytes = b""
    old_pod: bytes = b""
    limits: LimitUses | None = None
    size: int = 0
    """Bytes that it adds to those of earlier records, whose group and recorded Pod it may share."""

    @property
    def head(self) -> RecordHead:
        return RecordHead(own_head_of(self.own), group_head_of(self.group))

    def read(self) -> DecisionRecord:
        """Return the whole record."""
        return _whole(self.own, self.group, self._rows(), self.pod, self.old_pod)

    @property
    def shared(self) -> bytes:
        """Return the whole record in its packed form, as replicas share it."""
        rows = tuple([astuple(row) for row in self._rows()])
        return _pack((Raw(self.own), Raw(self.group), rows, compressed(self.pod), compressed(self.old_pod)))

    def _rows(self) -> list[RecordedLimit]:
        return [] if self.limits is None else limit_rows(self.limits)


class _SharedLimit(RecordedLimit, frozen=True, gc=False, array_like=True):
    """A limit by the position of its fields."""


class _Shared(Struct, frozen=True, gc=False, array_like=True):
    own: Raw
    group: Raw
    limits: tuple[_SharedLimit, ...]
    pod: bytes
    old_pod: bytes


_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(_Shared).decode
head_of_shared = msgspec.msgpack.Decoder(RecordHead).decode
"""Returns the head of a record in its shared form. Raises msgspec.MsgspecError."""


def record_of_shared(raw: bytes) -> DecisionRecord:
    """Return a record from its shared form. ValueError: it is none."""
    one = _unpack(raw)
    rows = [RecordedLimit(*astuple(row)) for row in one.limits]
    return _whole(
        one.own,
        one.group,
        rows,
        decompressed(one.pod, POD_MAX_BYTES),
        decompressed(one.old_pod, POD_MAX_BYTES),
    )


def _whole(
    own: bytes | Raw, group: bytes | Raw, limits: Sequence[RecordedLimit], pod: bytes, old_pod: bytes
) -> DecisionRecord:
    pods = {"recorded": pod, "recorded_old": old_pod}
    present = {name: Raw(one) for name, one in pods.items() if one}
    return replace(unpacked(own, group), limits=limits, **present)
