"""Packed form of a decision record: its fields by position, in MessagePack, as servers keep it and share it.

Fields have the order of the form. New ones go to its end, with a default.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache

import msgspec
from msgspec import Raw, Struct

from webhook.core.admission.decision import Decision, Finding, Half, Verdict
from webhook.core.admission.messages.denials import utc
from webhook.core.admission.review import Request
from webhook.core.breaker import BreakerView
from webhook.core.kubernetes.admission_response import ALLOWED
from webhook.core.reporting.decision_record import (
    ABSENT,
    DecisionRecord,
    RecordedBreaker,
    RecordedController,
    RecordedFinding,
    RecordedStatus,
)


class RecordOrigin(Struct, frozen=True, gc=False):
    """The identifier of a record: its time, its number in this millisecond, the replica; the moment, stages, trace."""

    at_ms: int
    number: int
    replica: str
    at_us: int
    stages: tuple[str, ...] = ()
    ends_ns: tuple[int, ...] = ()
    trace_id: str = ""


class RecordHead(Struct, frozen=True, gc=False, array_like=True):
    """The fields of a record that queries read: the first of its packed form."""

    at_ms: int
    number: int
    replica: str
    decision: Verdict
    namespace: str
    name: str
    """The Pod's name, or its generateName while it has none."""
    service: str
    uid: str
    owner: RecordedController | None

    @property
    def id(self) -> str:
        return record_id(self.at_ms, self.number, self.replica)


class PackedRecord(RecordHead, frozen=True, gc=False, array_like=True):
    """All fields but the limits and the recorded Pods."""

    at_us: int
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
    breaker: RecordedBreaker | None
    uncounted: bool
    stages: tuple[str, ...]
    ends_ns: tuple[int, ...]
    trace_id: str
    namespace_labels: Mapping[str, str]
    overrides: str = ""
    overload: str = ""


_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(PackedRecord).decode
head_of = msgspec.msgpack.Decoder(RecordHead).decode
_STATUS_ALLOWED = RecordedStatus(ALLOWED.code)
_NO_LABELS: Mapping[str, str] = {}


def record_id(at_ms: int, number: int, replica: str) -> str:
    """Return the identifier of a replica's record with that number in its millisecond; as texts in order of time."""
    return f"{at_ms}-{number:03d}-{replica}"


def packed(
    decision: Decision,
    request: Request,
    origin: RecordOrigin,
    owner: RecordedController | None,
    namespace_labels: Mapping[str, str] | None = None,
) -> bytes:
    """Return the packed record of a review, without limits and Pods, which `record_codec` adds."""
    pod, status, findings = request.pod, decision.status, decision.findings
    view = None if decision.receipt is None else decision.receipt.breaker
    # In the order of the fields: by keyword it takes three times as long.
    return _pack(
        PackedRecord(
            origin.at_ms,
            origin.number,
            origin.replica,
            decision.verdict,
            decision.namespace,
            "" if pod is None else pod.metadata.name or pod.metadata.generate_name,
            decision.service or "",
            decision.pod_uid,
            owner,
            origin.at_us,
            decision.half,
            decision.operation,
            decision.sub_resource,
            decision.dry_run,
            decision.user,
            None if status is ALLOWED else RecordedStatus(status.code, status.reason, status.message),
            decision.policy_hash,
            decision.workload,
            _findings(findings) if findings else (),
            decision.exemption,
            decision.degraded,
            None if view is None else _breaker(view),
            decision.uncounted,
            origin.stages,
            origin.ends_ns,
            origin.trace_id,
            namespace_labels or _NO_LABELS,
            decision.overrides,
            decision.overload,
        )
    )


def unpacked(raw: bytes) -> DecisionRecord:
    """Return the record of a packed one, without limits and Pods. Raises msgspec.MsgspecError."""
    one = _unpack(raw)
    return DecisionRecord(
        one.id,
        datetime.fromtimestamp(one.at_us / 1_000_000, UTC),
        one.replica,
        one.half,
        one.operation,
        one.namespace,
        one.name,
        one.user,
        one.decision,
        one.status or _STATUS_ALLOWED,
        one.policy,
        one.service,
        one.sub_resource,
        one.dry_run,
        one.uid,
        one.owner,
        one.workload,
        tuple(dict.fromkeys(finding.code for finding in one.findings)),
        one.findings,
        one.exemption,
        one.degraded,
        (),  # limits
        one.breaker,
        one.uncounted,
        _durations(one.stages, one.ends_ns),
        one.trace_id,
        one.namespace_labels,
        ABSENT,  # recorded
        ABSENT,  # recorded_old
        Raw(one.overrides.encode()) if one.overrides else ABSENT,
        one.overload,
    )


@lru_cache(maxsize=256)  # Pods that are denied together mostly have the same findings
def _findings(findings: tuple[Finding, ...]) -> tuple[RecordedFinding, ...]:
    return tuple(RecordedFinding(one.code, one.concern, one.mode, one.message, one.field) for one in findings)


@lru_cache(maxsize=256)  # one view of a breaker decides many Pods
def _breaker(view: BreakerView) -> RecordedBreaker:
    until = utc(view.open_until_us) if view.open_until_us else ""
    return RecordedBreaker(view.state, view.generation, until, view.reason)


def _durations(stages: tuple[str, ...], ends_ns: tuple[int, ...]) -> list[tuple[str, int]]:
    """Return each stage with its duration in microseconds."""
    begins_ns = (0, *ends_ns)
    return [(name, (end - begin) // 1000) for name, begin, end in zip(stages, begins_ns, ends_ns, strict=False)]
