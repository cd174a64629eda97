"""Decision record: one review with the figures of its moment. Explanations recompute everything else from it.

It has no field for environment, arguments, images, volumes or annotation values: see `pod_record`.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from webhook.core.admission.decision import Decision, Finding, Half, Verdict
from webhook.core.admission.messages.denials import utc
from webhook.core.admission.review import Request
from webhook.core.breaker import BreakerView
from webhook.core.findings import Code
from webhook.core.kubernetes.admission_response import ALLOWED
from webhook.core.kubernetes.pod import Pod
from webhook.core.policy_spec import Mode
from webhook.core.reporting.limit_record import RecordedLimit
from webhook.core.reporting.pod_record import controlling_owner

_ABSENT = Raw(b"null")


class RecordOrigin(Struct, frozen=True, gc=False):
    """The identifier of a record, the replica that decided, and the moment."""

    id: str
    replica: str
    at_us: int


def record_id(at_ms: int, number: int, replica: str) -> str:
    """Return the identifier of a replica's record with that number in its millisecond; as texts in order of time."""
    return f"{at_ms}-{number:03d}-{replica}"


class RecordedController(Struct, frozen=True, gc=False, omit_defaults=True):
    """The owner that is the Pod's controller."""

    kind: str = ""
    name: str = ""
    uid: str = ""


class RecordedStatus(Struct, frozen=True, gc=False, omit_defaults=True):
    code: int
    reason: str = ""
    message: str = ""


class RecordedFinding(Struct, frozen=True, gc=False, omit_defaults=True):
    code: Code
    concern: str
    mode: Mode
    message: str
    field: str = ""


class RecordedBreaker(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """The breaker as the decision saw it."""

    state: str
    generation: int
    open_until: str = ""
    reason: str = ""


class DecisionRecord(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """One decision. Empty fields are left out of the JSON form."""

    id: str
    at: datetime
    replica: str
    half: Half
    operation: str
    namespace: str
    name: str
    """The Pod's name, or its generateName while it has none."""
    user: str
    decision: Verdict
    status: RecordedStatus
    policy: str = ""
    service: str = ""
    sub_resource: str = ""
    dry_run: bool = False
    uid: str = ""
    """Empty in the mutating half of a CREATE: the API server sets it later."""
    owner: RecordedController | None = None
    workload: str = ""
    codes: Sequence[str] = ()
    findings: Sequence[RecordedFinding] = ()
    exemption: str = ""
    degraded: str = ""
    limits: Sequence[RecordedLimit] = ()
    breaker: RecordedBreaker | None = None
    uncounted: bool = False
    stages: Sequence[tuple[str, int]] = ()
    """Each stage with its duration in microseconds."""
    trace_id: str = ""
    namespace_labels: Mapping[str, str] = {}
    recorded: Raw = _ABSENT
    """The Pod as the request had it, without the name and uid that the record has."""
    recorded_old: Raw = _ABSENT
    """The Pod before an UPDATE, in the same form."""

    @property
    def is_denied(self) -> bool:
        return self.decision is Verdict.DENY

    @property
    def pod(self) -> Pod | None:
        """Return the recorded Pod; None if it was too large."""
        return self._decoded(self.recorded)

    @property
    def old_pod(self) -> Pod | None:
        """Return the recorded Pod before an UPDATE."""
        return self._decoded(self.recorded_old)

    def _decoded(self, recorded: Raw) -> Pod | None:
        pod = msgspec.json.decode(recorded, type=Pod | None)
        if pod is None:
            return None
        name = "" if self.name == pod.metadata.generate_name else self.name
        return replace(pod, metadata=replace(pod.metadata, name=name, uid=self.uid))


_NO_FINDINGS: tuple[Sequence[Code], Sequence[RecordedFinding]] = (), ()
_STATUS_ALLOWED = RecordedStatus(ALLOWED.code)
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(DecisionRecord)


def decision_record(
    decision: Decision,
    request: Request,
    origin: RecordOrigin,
    stages: Sequence[tuple[str, int]] = (),
    trace_id: str = "",
    namespace_labels: Mapping[str, str] | None = None,
    owner: RecordedController | None = None,
) -> DecisionRecord:
    """Return the record of a review, without Pods and limits, which `record_codec` adds.

    `stages` are names and ends, in nanoseconds after the start; `owner` is `controller_of` the Pod.
    """
    pod, status, receipt, findings = request.pod, decision.status, decision.receipt, decision.findings
    view = None if receipt is None else receipt.breaker
    # In the order of the fields: by keyword it takes three times as long.
    return DecisionRecord(
        origin.id,
        datetime.fromtimestamp(origin.at_us / 1_000_000, UTC),
        origin.replica,
        decision.half,
        decision.operation,
        decision.namespace,
        "" if pod is None else pod.metadata.name or pod.metadata.generate_name,
        decision.user,
        decision.verdict,
        _STATUS_ALLOWED if status is ALLOWED else RecordedStatus(status.code, status.reason, status.message),
        decision.policy_hash,
        decision.service or "",
        decision.sub_resource,
        decision.dry_run,
        decision.pod_uid,
        owner,
        decision.workload,
        *(_findings(findings) if findings else _NO_FINDINGS),
        decision.exemption,
        decision.degraded,
        (),  # limits
        None if view is None else _breaker(view),
        decision.uncounted,
        _durations(stages),
        trace_id,
        namespace_labels or {},
    )


def encode(record: DecisionRecord) -> bytes:
    return _encoder.encode(record)


def decode(raw: bytes) -> DecisionRecord:
    """Return a record from its JSON form. Raises msgspec.MsgspecError."""
    return _decoder.decode(raw)


def controller_of(pod: Pod) -> RecordedController | None:
    owner = controlling_owner(pod)
    return None if owner is None else RecordedController(owner.kind, owner.name, owner.uid)


@lru_cache(maxsize=256)  # Pods that are denied together mostly have the same findings
def _findings(findings: tuple[Finding, ...]) -> tuple[Sequence[Code], Sequence[RecordedFinding]]:
    codes = tuple(dict.fromkeys(finding.code for finding in findings))
    return codes, tuple(RecordedFinding(one.code, one.concern, one.mode, one.message, one.field) for one in findings)


def _durations(stages: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    durations, begin_ns = [], 0
    for name, end_ns in stages:
        durations.append((name, (end_ns - begin_ns) // 1000))
        begin_ns = end_ns
    return durations


@lru_cache(maxsize=256)  # one view of a breaker decides many Pods
def _breaker(view: BreakerView) -> RecordedBreaker:
    until = utc(view.open_until_us) if view.open_until_us else ""
    return RecordedBreaker(view.state, view.generation, until, view.reason)
