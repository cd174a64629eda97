"""Packed forms of a decision record: its fields by position, in MessagePack, as servers keep them and share them.

What the reviews of a controller's Pods mostly have in common is packed once, as their group. `DecisionRecord` declares
its fields and their places.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, get_type_hints

import msgspec
from msgspec import Raw, Struct

from webhook.core.admission.decision import Decision, Verdict
from webhook.core.admission.denials import format_utc
from webhook.core.kubernetes.admission_request import ALLOWED
from webhook.core.reporting.decision_record import (
    ABSENT,
    DecisionRecord,
    GroupField,
    RecordedBreaker,
    RecordedController,
    RecordedFinding,
    RecordedSlot,
    RecordedStatus,
)


class GroupHead(Struct, frozen=True, gc=False, array_like=True):
    """The fields of a group that queries read."""

    decision: Verdict
    namespace: str
    service: str
    owner: RecordedController | None


def _group_fields() -> dict[str, tuple[GroupField, Any]]:
    """Return the fields of a group with their types, in their order."""
    hints = get_type_hints(DecisionRecord, include_extras=True)
    found = {
        name: (mark, mark.packed or hint.__origin__)
        for name, hint in hints.items()
        for mark in getattr(hint, "__metadata__", ())
        if isinstance(mark, GroupField)
    }
    return dict(sorted(found.items(), key=lambda field: field[1][0].place))


_FIELDS = _group_fields()
_PLACES = {name: place for place, name in enumerate(_FIELDS)}
_AS_THEY_ARE = tuple(name for name, (mark, _) in _FIELDS.items() if mark.packed is None)
RecordGroup = msgspec.defstruct(
    "RecordGroup",
    [(name, kind, msgspec.field(default=mark.default)) for name, (mark, kind) in _FIELDS.items()],
    frozen=True,
    gc=False,
    array_like=True,
)
"""The fields that records of a controller's Pods mostly share."""
_VALUES = ", ".join(f"decision.{mark.source}" if mark.source else "None" for mark, _ in _FIELDS.values())
shared_values: Callable[[Decision], tuple[Any, ...]] = eval(  # noqa: S307  as fast as one that is written by hand
    f"lambda decision: ({_VALUES})"
)
"""Returns what a group has from its decision, each at its place: decisions with the same values have one group."""


class OwnHead(Struct, frozen=True, gc=False, array_like=True):
    """The fields of one record that queries read."""

    at_ms: int
    number: int
    replica: str
    name: str
    """The Pod's name, or its generateName while it has none."""
    uid: str

    @property
    def id(self) -> str:
        return format_record_id(self.at_ms, self.number, self.replica)


class OwnFields(OwnHead, frozen=True, gc=False, array_like=True):
    """The fields that each record has for itself."""

    at_ns: int
    ends_ns: tuple[int, ...]
    trace_id: str
    breaker: tuple[str, int, int, str] | None
    """State, generation, end of OPEN in microseconds or 0, reason."""
    slot: tuple[int, str, str, str] | None = None
    """The fields of a `RecordedSlot`; left out for a Pod without one."""


_pack = msgspec.msgpack.Encoder().encode
_decode_own = msgspec.msgpack.Decoder(OwnFields).decode
_decode_group: Callable[[bytes | Raw], Any] = msgspec.msgpack.Decoder(RecordGroup).decode
pack_own: Callable[[tuple[object, ...]], bytes] = _pack
"""Packs the fields of `OwnFields`: a tuple in their order, so that no struct has to be made first."""
decode_own_head = msgspec.msgpack.Decoder(OwnHead).decode
decode_group_head = msgspec.msgpack.Decoder(GroupHead).decode
_STATUS_ALLOWED = RecordedStatus(ALLOWED.code)
_NO_LABELS: Mapping[str, str] = {}


def format_record_id(at_ms: int, number: int, replica: str) -> str:
    """Return the identifier of a replica's record with that number in its millisecond; as texts in order of time."""
    return f"{at_ms}-{number:03d}-{replica}"


def pack_group(
    decision: Decision,
    stages: tuple[str, ...],
    owner: RecordedController | None,
    namespace_labels: Mapping[str, str] | None = None,
) -> bytes:
    """Return what the records of a Pod's siblings with this decision share."""
    status = decision.status
    fields = list(shared_values(decision))
    fields[_PLACES["service"]] = decision.service or ""
    fields[_PLACES["owner"]] = owner
    fields[_PLACES["status"]] = (
        None if status is ALLOWED else RecordedStatus(status.code, status.reason, status.message)
    )
    fields[_PLACES["findings"]] = [
        RecordedFinding(finding.code, finding.concern, finding.mode, finding.message, finding.field)
        for finding in decision.findings
    ]
    fields[_PLACES["stages"]] = stages
    fields[_PLACES["namespace_labels"]] = namespace_labels or _NO_LABELS
    return _pack(fields)


def unpack_record(own: bytes | Raw, group: bytes | Raw) -> DecisionRecord:
    """Return the record of packed parts, without limits and Pods. Raises msgspec.MsgspecError."""
    fields, shared = _decode_own(own), _decode_group(group)
    return DecisionRecord(
        **{name: getattr(shared, name) for name in _AS_THEY_ARE},
        id=fields.id,
        at=datetime.fromtimestamp(fields.at_ns // 1000 / 1_000_000, UTC),
        replica=fields.replica,
        name=fields.name,
        uid=fields.uid,
        status=shared.status or _STATUS_ALLOWED,
        codes=tuple(dict.fromkeys(finding.code for finding in shared.findings)),
        findings=shared.findings,
        breaker=None if fields.breaker is None else _make_breaker(*fields.breaker),
        slot=None if fields.slot is None else RecordedSlot(*fields.slot),
        stages=_compute_durations(shared.stages, fields.ends_ns),
        trace_id=fields.trace_id,
        overrides=Raw(shared.overrides.encode()) if shared.overrides else ABSENT,
    )


def _make_breaker(state: str, generation: int, open_until_us: int, reason: str) -> RecordedBreaker:
    return RecordedBreaker(state, generation, format_utc(open_until_us) if open_until_us else "", reason)


def _compute_durations(stages: tuple[str, ...], ends_ns: tuple[int, ...]) -> list[tuple[str, int]]:
    """Return each stage with its duration in microseconds."""
    begins_ns = (0, *ends_ns)
    return [(name, (end - begin) // 1000) for name, begin, end in zip(stages, begins_ns, ends_ns, strict=False)]
