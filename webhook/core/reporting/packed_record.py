"""Packed forms of a decision record: its fields by position, in MessagePack, as servers keep them and share them.

What the reviews of a controller's Pods mostly have in common is packed once, as their group. Fields have the order of
the form. New ones go to its end, with a default.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import msgspec
from msgspec import Raw, Struct

from webhook.core.admission.decision import Decision, Half, Verdict
from webhook.core.admission.denials import utc
from webhook.core.kubernetes.admission_request import ALLOWED
from webhook.core.reporting.decision_record import (
    ABSENT,
    DecisionRecord,
    RecordedBreaker,
    RecordedController,
    RecordedFinding,
    RecordedStatus,
)


class GroupHead(Struct, frozen=True, gc=False, array_like=True):
    """The fields of a group that queries read."""

    decision: Verdict
    namespace: str
    service: str
    owner: RecordedController | None


class RecordGroup(GroupHead, frozen=True, gc=False, array_like=True):
    """The fields that records of a controller's Pods mostly share."""

    half: Half
    operation: str
    sub_resource: str
    dry_run: bool
    user: str
    status: RecordedStatus | None
    """None: allowed."""
    policy: str
    workload: str
    findings: tuple[RecordedFinding, ...]
    exemption: str
    degraded: str
    uncounted: bool
    stages: tuple[str, ...]
    namespace_labels: Mapping[str, str]
    overrides: str = ""
    overload: str = ""


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
        return record_id(self.at_ms, self.number, self.replica)


class OwnFields(OwnHead, frozen=True, gc=False, array_like=True):
    """The fields that each record has for itself."""

    at_ns: int
    ends_ns: tuple[int, ...]
    trace_id: str
    breaker: tuple[str, int, int, str] | None
    """State, generation, end of OPEN in microseconds or 0, reason."""


_pack = msgspec.msgpack.Encoder().encode
_own = msgspec.msgpack.Decoder(OwnFields).decode
_group = msgspec.msgpack.Decoder(RecordGroup).decode
packed_own: Callable[[tuple[object, ...]], bytes] = _pack
"""Packs the fields of `OwnFields`: a tuple in their order, so that no struct has to be made first."""
own_head_of = msgspec.msgpack.Decoder(OwnHead).decode
group_head_of = msgspec.msgpack.Decoder(GroupHead).decode
_STATUS_ALLOWED = RecordedStatus(ALLOWED.code)
_NO_LABELS: Mapping[str, str] = {}


def record_id(at_ms: int, number: int, replica: str) -> str:
    """Return the identifier of a replica's record with that number in its millisecond; as texts in order of time."""
    return f"{at_ms}-{number:03d}-{replica}"


def group_of(
    decision: Decision,
    stages: tuple[str, ...],
    owner: RecordedController | None,
    namespace_labels: Mapping[str, str] | None = None,
) -> bytes:
    """Return what the records of a Pod's siblings with this decision share."""
    status = decision.status
    return _pack(
        RecordGroup(
            decision.verdict,
            decision.call.namespace,
            decision.service or "",
            owner,
            decision.half,
            decision.call.operation,
            decision.call.sub_resource,
            decision.call.dry_run,
            decision.call.user,
            None if status is ALLOWED else RecordedStatus(status.code, status.reason, status.message),
            decision.policy_hash,
            decision.workload,
            tuple(
                [
                    RecordedFinding(finding.code, finding.concern, finding.mode, finding.message, finding.field)
                    for finding in decision.findings
                ]
            ),
            decision.deviation.exemption,
            decision.deviation.degraded,
            decision.charge.uncounted,
            stages,
            namespace_labels or _NO_LABELS,
            decision.inputs.overrides,
            decision.deviation.overload,
        )
    )


def unpacked(own: bytes | Raw, group: bytes | Raw) -> DecisionRecord:
    """Return the record of packed parts, without limits and Pods. Raises msgspec.MsgspecError."""
    fields, shared = _own(own), _group(group)
    return DecisionRecord(
        fields.id,
        datetime.fromtimestamp(fields.at_ns // 1000 / 1_000_000, UTC),
        fields.replica,
        shared.half,
        shared.operation,
        shared.namespace,
        fields.name,
        shared.user,
        shared.decision,
        shared.status or _STATUS_ALLOWED,
        shared.policy,
        shared.service,
        shared.sub_resource,
        shared.dry_run,
        fields.uid,
        shared.owner,
        shared.workload,
        tuple(dict.fromkeys(finding.code for finding in shared.findings)),
        shared.findings,
        shared.exemption,
        shared.degraded,
        (),  # limits
        None if fields.breaker is None else _breaker(*fields.breaker),
        shared.uncounted,
        _durations(shared.stages, fields.ends_ns),
        fields.trace_id,
        shared.namespace_labels,
        ABSENT,  # recorded
        ABSENT,  # recorded_old
        Raw(shared.overrides.encode()) if shared.overrides else ABSENT,
        shared.overload,
    )


def _breaker(state: str, generation: int, open_until_us: int, reason: str) -> RecordedBreaker:
    return RecordedBreaker(state, generation, utc(open_until_us) if open_until_us else "", reason)


def _durations(stages: tuple[str, ...], ends_ns: tuple[int, ...]) -> list[tuple[str, int]]:
    """Return each stage with its duration in microseconds."""
    begins_ns = (0, *ends_ns)
    return [(name, (end - begin) // 1000) for name, begin, end in zip(stages, begins_ns, ends_ns, strict=False)]
