"""Events of `replay`: one JSON object per line, with one key that names its kind, and the outcomes among them."""

from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, BinaryIO, ClassVar, Literal

import msgspec
from msgspec import Meta, Struct

from webhook.commands.simulator import USER
from webhook.core.breaker import Transition
from webhook.core.breaker.outcome_types import Outcomes
from webhook.core.json_depth import UNREADABLE_JSON, bound_depth
from webhook.core.kubernetes.quantity import UnreadableTextError
from webhook.core.kubernetes.timestamps import parse_microseconds
from webhook.core.policy.model import Service
from webhook.core.policy_fields import OutcomeSource
from webhook.core.quota import CounterPlan
from webhook.core.reporting.replay_record import MEAN_SECONDS_MAX
from webhook.errors import UserError
from webhook.replay.controller import ReplayController, is_unknown
from webhook.replay.store_outage import StoreOutage
from webhook.support.input_files import read_bounded_lines

_TIME_SECONDS_MAX = 9_000_000_000
"""285 years: larger values in microseconds are not exact in a double. An epoch time in seconds fits."""

Seconds = Annotated[int, Meta(ge=0, le=_TIME_SECONDS_MAX)] | Annotated[float, Meta(ge=0, le=_TIME_SECONDS_MAX)]
Named = Annotated[str, Meta(min_length=1)]
Count = Annotated[int, Meta(ge=0, le=1_000_000)]
MeanSeconds = Annotated[int, Meta(ge=0, le=MEAN_SECONDS_MAX)] | Annotated[float, Meta(ge=0, le=MEAN_SECONDS_MAX)]


class ReplayEvent(Struct, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """Common field of all events: `at`, in seconds from 0."""

    kind: ClassVar[str] = ""
    at: Seconds


class PodAsks(ReplayEvent, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """A request for a Pod, sent to both webhooks."""

    kind: ClassVar[str] = "pod"
    pod: dict[str, Any]
    namespace: Named
    uid: Named | None = None
    dry_run: bool = False
    user: str = USER
    operation: Literal["CREATE", "UPDATE", "DELETE", "CONNECT"] = "CREATE"
    sub_resource: str = ""
    old_pod: dict[str, Any] | None = None

    @property
    def changes_what_lives(self) -> bool:
        """Return whether admission of this request creates a Pod, or enlarges one."""
        return self.operation == "CREATE" or self.sub_resource == "resize"


class OutcomeFields(Struct, frozen=True, forbid_unknown_fields=True):
    """The outcome of one request or Pod; `latency` in seconds."""

    service: str
    ok: bool
    latency: Seconds = 0
    uid: Named | None = None
    generation: int | None = None


class OutcomeSeen(ReplayEvent, frozen=True, forbid_unknown_fields=True, kw_only=True):
    kind: ClassVar[str] = "outcome"
    outcome: OutcomeFields


class SumFields(Struct, frozen=True, forbid_unknown_fields=True):
    """Counts of requests by result; `latency` is their mean, in seconds."""

    service: str
    succeeded: Count = 0
    failed: Count = 0
    latency: MeanSeconds = 0
    generation: int | None = None


class OutcomesSeen(ReplayEvent, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Many outcomes at one time, as in a gateway's metrics."""

    kind: ClassVar[str] = "outcomes"
    outcomes: SumFields


class PodDeleted(ReplayEvent, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A Pod was deleted: its live usage is released, rate windows are not refunded."""

    kind: ClassVar[str] = "deleted"
    deleted: Named


class PodUnschedulable(ReplayEvent, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A Pod has found no node for `unschedulableFor` of its service's shares."""

    kind: ClassVar[str] = "unschedulable"
    unschedulable: Named


class PodBound(ReplayEvent, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A Pod has found a node."""

    kind: ClassVar[str] = "bound"
    bound: Named


class PodRefused(ReplayEvent, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A Pod was admitted but never created: it is refunded at once."""

    kind: ClassVar[str] = "refused"
    refused: Named


class StatusAsked(ReplayEvent, frozen=True, forbid_unknown_fields=True, kw_only=True):
    kind: ClassVar[str] = "status"
    status: str


class StoreChange(ReplayEvent, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The store becomes unavailable or available; `whenStoreUnavailable` applies in between."""

    kind: ClassVar[str] = "store"
    store: Literal["down", "up"]


class RecordedFields(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Description of a recording: its start time, its share of the services, and the policy in force."""

    since: str | None = None
    sample_every: Annotated[int, Meta(ge=1)] | None = None
    policy_hash: str | None = None


class Recorded(ReplayEvent, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A line that `serve --record` wrote: the first one says which moment second 0 is."""

    kind: ClassVar[str] = "recorded"
    recorded: RecordedFields

    @property
    def origin_us(self) -> int | None:
        """The moment of second 0; None if the line does not say it. UnreadableTextError: it is no time."""
        return None if self.recorded.since is None else parse_microseconds(self.recorded.since)


class NamespacesChange(ReplayEvent, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True):
    kind: ClassVar[str] = "namespaceLabels"
    namespace_labels: dict[str, dict[str, str]]


class PolicyChange(ReplayEvent, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The policy is replaced by that of a file, named relative to the events' folder."""

    kind: ClassVar[str] = "policy"
    policy: str


_EVENTS: tuple[type[ReplayEvent], ...] = (
    *(PodAsks, OutcomeSeen, PodDeleted, PodRefused, StatusAsked),
    *(NamespacesChange, PolicyChange, StoreChange, Recorded, OutcomesSeen, PodUnschedulable, PodBound),
)
_BY_KEY = {event.kind: event for event in _EVENTS}
EVENTS = tuple(_BY_KEY)
EXAMPLES = (
    '{"at": 1.5, "pod": {...}, "namespace": "payments", "uid": "u1"}    dryRun, user, operation, subResource, oldPod',
    '{"at": 2.0, "outcome": {"service": "payment-api", "ok": false, "latency": 0.3}}    uid, generation',
    '{"at": 2.0, "outcomes": {"service": "payment-api", "succeeded": 40, "failed": 2, "latency": 0.2}}    generation',
    '{"at": 3.0, "deleted": "u1"}',
    '{"at": 3.0, "refused": "u1"}',
    '{"at": 3.0, "unschedulable": "u1"}    or "bound"',
    '{"at": 9.0, "status": "payment-api"}',
    '{"at": 9.5, "namespaceLabels": {"payments": {"tier": "prod"}}}',
    '{"at": 9.9, "policy": "stricter.yaml"}',
    '{"at": 9.9, "store": "down"}    or "up"',
)
"""An example of each kind, and its optional fields."""
_SHOWN_CHARACTERS_MAX = 80  # characters of a value


def read_events(lines: BinaryIO, name: str) -> Iterator[tuple[int, ReplayEvent]]:
    """Yield the number and the event of each line that is not empty; UserError names the first invalid line."""
    before = 0.0
    for number, line in enumerate(read_bounded_lines(lines, name), start=1):
        if not line.strip():
            continue
        try:
            event = parse(line.removeprefix(BOM_UTF8) if number == 1 else line)
            if event.at < before:
                message = f"at: {event.at:g}: time does not go back, the line before was at {before:g}"
                raise UserError(message)  # noqa: TRY301  reported with its line, like the others
        except UserError as error:
            raise UserError(f"{name}:{number}: {error}", error.remedy) from None
        before = event.at
        yield number, event


def parse(line: bytes) -> ReplayEvent:
    """Parse one line; UserError if it is invalid."""
    try:
        raw = bound_depth(msgspec.json.decode(line))
    except UNREADABLE_JSON as error:
        raise UserError(f"not JSON: {error}", "write one JSON object a line") from None
    if not isinstance(raw, dict):
        raise UserError("not a JSON object", "write one JSON object a line")
    # A `policy` or `status` event has no other event's key; the line of a Pod may have any further fields.
    found = [key for key in _BY_KEY if key in raw]
    if len(found) != 1:
        what = f"{' and '.join(found)} in one line" if found else "no event in the line"
        raise UserError(what, f"give exactly one of {', '.join(EVENTS)}")
    try:
        event = msgspec.convert(raw, _BY_KEY[found[0]])
    except msgspec.ValidationError as error:
        raise UserError(_describe_error(str(error), raw, found[0]), "see podgate replay --help") from None
    if isinstance(event, Recorded):
        _check_origin(event)
    return event


def _check_origin(event: Recorded) -> None:
    """UserError: the moment of second 0 is no time, so that schedules would count from 1970."""
    try:
        _ = event.origin_us
    except UnreadableTextError as error:
        shown = _show(event.recorded.since)
        raise UserError(f"recorded.since: {shown}: {error.reason}", error.remedy) from None


def _describe_error(error: str, raw: dict[str, Any], kind: str) -> str:
    """Return the message with the field and its value, if the decoder reports the field."""
    reason, _, path = error.partition(" - at `$.")
    path = path.rstrip("`")
    if not path:
        return f"{kind}: {reason}"
    value: Any = raw
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    if path.endswith("[...]"):
        # The decoder does not report which entry it is.
        stem = path.partition("[")[0]
        return f"{stem}: {_show(raw.get(stem))}: {reason}"
    if "[" in path or value is None:
        return f"{path}: {reason}"
    return f"{path}: {_show(value)}: {reason}"


def _show(value: Any) -> str:
    return msgspec.json.encode(value).decode()[:_SHOWN_CHARACTERS_MAX]


_SECOND_US = 1_000_000


async def record(
    outage: StoreOutage,
    controller: ReplayController,
    service: Service,
    plan: CounterPlan,
    fields: OutcomeFields | SumFields,
) -> Sequence[Transition]:
    """Record the outcomes of an event; return the breaker's transitions, except those that the controller reports.

    A Pod start is identified by its uid: the store remembers the generation under which the Pod was admitted, and
    whether it had an outcome. An outcome of a Pod that this replay has not admitted counts too, as one with a
    generation does.
    """
    latency_us = round(fields.latency * _SECOND_US)
    if isinstance(fields, SumFields):
        total_us = latency_us * (fields.succeeded + fields.failed)
        sums = Outcomes(fields.succeeded, fields.failed, total_us, generation=fields.generation)
        return await outage.record_outcomes(plan, [sums])
    if _has_starts(service) and fields.uid is not None and fields.generation is None:
        dropped = await controller.report_start(plan.service, fields.uid, ok=fields.ok, latency_us=latency_us)
        if not is_unknown(dropped):
            return ()
    outcome = Outcomes.from_single(ok=fields.ok, latency_us=latency_us, uid=fields.uid, generation=fields.generation)
    return await outage.record_outcomes(plan, [outcome])


def _has_starts(service: Service) -> bool:
    outcomes = service.breaker.outcomes if service.breaker is not None else None
    return outcomes is not None and outcomes.source is OutcomeSource.POD_START
