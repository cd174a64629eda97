"""Decision record: one review with the figures of its moment. Explanations recompute everything else from it.

It has no field for environment, arguments, images, volumes or annotation values: see `pod_record`.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from webhook.core.admission.decision import Decision, Half, Verdict
from webhook.core.admission.messages.denials import utc
from webhook.core.admission.review import Request
from webhook.core.breaker import BreakerView
from webhook.core.findings import Code
from webhook.core.kubernetes.admission_response import ALLOWED
from webhook.core.kubernetes.pod import Pod
from webhook.core.policy_spec import Mode
from webhook.core.quota import Acquire, Holder, Receipt, Use
from webhook.core.quota.pod_cost import shown
from webhook.core.reporting.pod_record import controlling_owner

_ABSENT = Raw(b"null")


class RecordOrigin(NamedTuple):
    """The identifier of a record, the replica that decided, and the moment."""

    id: str
    replica: str
    at_us: int


def record_id(at_ms: int, number: int, replica: str) -> str:
    """Return the identifier of a replica's record with that number in its millisecond; as texts in order of time."""
    return f"{at_ms:013d}-{number:03d}-{replica}"


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


class RecordedLimit(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """Use of one limit after the decision, in the amounts of the denial's text.

    `name` is the pool's or the service's. `over`: the Pod exceeds it; then it fits from `free_at`, never, or, if
    neither is set, when enough live Pods have ended.
    """

    of: Holder
    name: str
    window: str
    resource: str
    hard: int | str
    used: int | str
    asked: int | str = 0
    surge: int | str = 0
    over: bool = False
    free_at: str = ""
    never: bool = False


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
) -> DecisionRecord:
    """Return the record of a review, without the Pod. `stages` are names and ends, in nanoseconds after the start."""
    pod, status, receipt, findings = request.pod, decision.status, decision.receipt, decision.findings
    owner = None if pod is None else controlling_owner(pod)
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
        None if owner is None else RecordedController(owner.kind, owner.name, owner.uid),
        decision.workload,
        list(dict.fromkeys([finding.code for finding in findings])) if findings else (),
        [RecordedFinding(one.code, one.concern, one.mode, one.message, one.field) for one in findings]
        if findings
        else (),
        decision.exemption,
        decision.degraded,
        () if receipt is None or decision.asked is None else _limits(decision.asked, receipt),
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


def _durations(stages: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    durations, begin_us = [], 0
    for name, end_ns in stages:
        end_us = end_ns // 1000
        durations.append((name, end_us - begin_us))
        begin_us = end_us
    return durations


@lru_cache(maxsize=256)  # one view of a breaker decides many Pods
def _breaker(view: BreakerView) -> RecordedBreaker:
    until = utc(view.open_until_us) if view.open_until_us else ""
    return RecordedBreaker(view.state, view.generation, until, view.reason)


def _limits(asked: Acquire, receipt: Receipt) -> list[RecordedLimit]:
    """Return the use of each limit of the plan; of those exceeded only, if the store did not report the others."""
    plan, cost = asked.plan, asked.cost
    over = {(use.of, use.window, use.resource): use for use in receipt.over} if receipt.over else {}
    if len(receipt.used) != len(plan.limits):
        return [_exceeded(use, plan.service) for use in receipt.over]
    rows = []
    for (holder, window, limit), used in zip(plan.limits, receipt.used, strict=True):
        use = over.get((holder, window.name, limit.resource)) if over else None
        if use is not None:
            rows.append(_exceeded(use, plan.service))
            continue
        name = plan.pool.name if holder is Holder.POOL and plan.pool is not None else plan.service
        resource = limit.resource
        amounts = _shown(resource, limit.hard), _shown(resource, used), _shown(resource, cost.get(limit.counts, 0))
        rows.append(RecordedLimit(holder, name, window.name, resource, *amounts))
    return rows


def _exceeded(use: Use, service: str) -> RecordedLimit:
    resource = use.resource
    return RecordedLimit(
        use.of,
        use.name or service,
        use.window,
        resource,
        _shown(resource, use.hard),
        _shown(resource, use.used),
        _shown(resource, use.asked),
        _shown(resource, use.surge) if use.surge else 0,
        over=True,
        free_at=utc(use.free_at_us) if use.free_at_us else "",
        never=use.free_at_us is None,
    )


_shown = lru_cache(maxsize=4096)(shown)
