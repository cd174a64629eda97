"""Pushed outcomes: their report format, the authorization of reporters, and sums by service and generation.

A batch with one invalid outcome is rejected as a whole; the error names the place.
"""

import re
from collections import deque
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta, Raw, Struct

from webhook.core.breaker.outcome_types import Outcomes
from webhook.core.document.yaml.problems import format_path
from webhook.core.json_depth import UNREADABLE_JSON
from webhook.core.policy.model import Service
from webhook.core.policy_fields import OutcomeSource
from webhook.core.quota import CounterPlan

OUTCOMES_MAX = 10_000
"""In one batch: the requests that a busy gateway handles in one second."""

LATENCY_SECONDS_MAX = 86_400
REFUSALS_LISTED_MAX = 20
"""Maximum number of refused outcomes listed in a response; the reporter can compute their total."""

_GENERATION_MAX = 1 << 53
_SHOWN_CHARACTERS_MAX = 80  # of a value in an error: enough to find it in the batch
_BODY = "(body)"
_REMEDIES = {
    "service": "write the name of a service of the policy",
    "ok": "write true, or false for an error",
    "latency": f"write seconds from 0 to {LATENCY_SECONDS_MAX}, such as 0.25",
    "uid": "write the uid of a Pod, or leave it out",
    "generation": "write the breaker's generation, a whole number from 0, or leave it out",
}
_NO_FIELD = f"the fields are {', '.join(_REMEDIES)}"
_NO_LIST = f"send a JSON list of at most {OUTCOMES_MAX} outcomes"
# A field's name may contain this pattern too; only the last match, at the end, is the library's.
_FAULT_PLACE = re.compile(r"(.*) - at `\$\[(\d+)\](?:\.(\w+))?`", re.DOTALL)
_FIELD_FAULT = re.compile("Object (contains unknown|missing required) field `(.*)`", re.DOTALL)


class BadOutcomesError(Exception):
    """The body is not a valid batch of outcomes. The message is safe to show to the reporter."""


class PushedOutcome(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """Outcome of one request of a service; `latency` in seconds. `uid`: the Pod whose outcome it is."""

    service: Annotated[str, Meta(min_length=1, max_length=63)]
    ok: bool
    latency: Annotated[float, Meta(ge=0, le=LATENCY_SECONDS_MAX)]
    uid: Annotated[str, Meta(min_length=1, max_length=253)] | None = None
    generation: Annotated[int, Meta(ge=0, le=_GENERATION_MAX)] | None = None


class Refusal(StrEnum):
    """Reason for refusing an outcome. The reporter does not get it: it would reveal other services."""

    NO_SERVICE = "noService"
    NOT_PUSHED = "notPushed"
    NOT_NAMED = "notNamed"


class RefusedOutcome(Struct, frozen=True):
    index: int
    service: str
    reason: str


class _Answer(Struct, frozen=True):
    accepted: int
    refused: Sequence[RefusedOutcome]


_decoder: msgspec.json.Decoder[tuple[PushedOutcome, ...]] = msgspec.json.Decoder(
    Annotated[tuple[PushedOutcome, ...], Meta(max_length=OUTCOMES_MAX)]
)
_entries = msgspec.json.Decoder(list[Raw])
_fields = msgspec.json.Decoder(dict[str, Raw])
_encoder = msgspec.json.Encoder()


def decode(body: bytes) -> tuple[PushedOutcome, ...]:
    """Decode a batch; BadOutcomesError names the first error."""
    try:
        return _decoder.decode(body)
    except msgspec.ValidationError as error:
        raise BadOutcomesError(_describe_fault(str(error), body)) from None
    except UNREADABLE_JSON as error:
        raise _build_no_json_error(error) from None


def find_refusal(service: Service | None, client_id: str) -> Refusal | None:
    """Return why a reporter may not push outcomes for a service, None if it may. No `service`: not in the policy."""
    if service is None:
        return Refusal.NO_SERVICE
    outcomes = service.breaker.outcomes if service.breaker is not None else None
    if outcomes is None or outcomes.source is not OutcomeSource.PUSHED:
        return Refusal.NOT_PUSHED
    return None if client_id in outcomes.reporters else Refusal.NOT_NAMED


def build_refused_outcome(index: int, service: str, client_id: str) -> RefusedOutcome:
    """Return a refused outcome for the response, whose text is the same for every reason."""
    remedy = "check the name, or have the policy list it in breaker.outcomes.reporters"
    return RefusedOutcome(index, service, f"no service of this name accepts outcomes from {client_id!r}: {remedy}")


def encode(accepted: int, refusals: Sequence[RefusedOutcome]) -> bytes:
    """Return the response body."""
    return _encoder.encode(_Answer(accepted, refusals))


def _build_no_json_error(error: Exception) -> BadOutcomesError:
    return BadOutcomesError(f"{_BODY}: not JSON: {error}: {_NO_LIST}")


def _describe_fault(error: str, body: bytes) -> str:
    """Return `path: value: reason: remedy`: the library's error has the place, but not the value."""
    placed = _FAULT_PLACE.fullmatch(error)
    if placed is None:
        return f"{_BODY}: {error}: {_NO_LIST}"
    reason, index, field = placed[1], int(placed[2]), placed[3] or ""
    of_an_object = _FIELD_FAULT.fullmatch(reason)
    if of_an_object is not None:
        reason, field = f"{of_an_object[1]} field", of_an_object[2]
    try:
        entry = _entries.decode(body)[index]
        value = entry if not field else _fields.decode(entry).get(field)
    except UNREADABLE_JSON as broken:  # the rest of the body is not JSON
        raise _build_no_json_error(broken) from None
    path = format_path((index, field) if field else (index,))
    return f"{path}: {_format_value(value)}: {reason}: {_REMEDIES.get(field, _NO_FIELD)}"


def _format_value(value: Raw | None) -> str:
    if value is None:
        return "(absent)"
    text = " ".join(bytes(value).decode(errors="replace").split())
    cut = text if len(text) <= _SHOWN_CHARACTERS_MAX else text[: _SHOWN_CHARACTERS_MAX - 1] + "…"
    return cut if cut.isprintable() else ascii(cut)[1:-1]


SLOT_US = 100_000
"""The shortest interval of a policy. Slots are aligned as intervals are: an interval of 1s has ten whole slots."""

SUMS_WAITING_MAX = 20_000
"""Enough for two batches of outcomes with Pod uids, or for all services of the largest policy for 400 ms."""


class Sum(Struct, gc=False):
    """Sum of the outcomes of requests within one slot, or one outcome with a Pod's `uid`."""

    slot: int
    generation: int | None
    uid: str | None = None
    succeeded: int = 0
    failed: int = 0
    latency_us: int = 0

    @property
    def count(self) -> int:
        return self.succeeded + self.failed

    def build_outcomes(self, now_us: int) -> Outcomes:
        """Return the sum with its age, measured from the middle of its slot.

        The store has its own clock, so its intervals may begin anywhere in a slot. Measured from the middle, the age of
        an outcome is wrong by at most 50 ms; if the clocks agree within 50 ms, each outcome counts in its interval.
        """
        age_us = max(0, now_us - self.slot * SLOT_US - SLOT_US // 2)
        return Outcomes(self.succeeded, self.failed, self.latency_us, self.uid, self.generation, age_us)


class PendingOutcomes(NamedTuple):
    """Pending sums of one service, in order of arrival."""

    plan: CounterPlan
    sums: list[Sum]


class DroppedOutcomes(NamedTuple):
    """Number of outcomes dropped for a service."""

    service: str
    outcomes: int


class _ServiceSums(NamedTuple):
    """Pending sums of one service: all in order of arrival, and those that can still grow by slot and generation."""

    plan: CounterPlan
    order: deque[Sum]
    summed: dict[tuple[int, int | None], Sum]


class Sums:
    """Pending sums of all services. Beyond `most` sums, the service with the most pending sums loses its oldest.

    So a push never drops a sum of another service that has no more pending sums than the pushing service, or no more
    than an even share of `most`.
    """

    def __init__(self, most: int = SUMS_WAITING_MAX) -> None:
        self._most = most
        self._waiting: dict[tuple[str, str], _ServiceSums] = {}
        self._count = 0
        self._alike: dict[int, dict[tuple[str, str], _ServiceSums]] = {}
        """Services by their number of pending sums, to find a service with the most."""

    def __len__(self) -> int:
        return self._count

    def add(self, plan: CounterPlan, outcomes: Sequence[PushedOutcome], at_us: int) -> list[DroppedOutcomes]:
        """Add outcomes of one service that arrived at `at_us`; return the outcomes that were dropped to make room."""
        slot, service = at_us // SLOT_US, self._waiting.get(plan.key)
        if service is None:
            service = self._waiting[plan.key] = _ServiceSums(plan, deque(), {})
        for outcome in outcomes:
            total = service.summed.get((slot, outcome.generation)) if outcome.uid is None else None
            if total is None:
                total = Sum(slot, outcome.generation, outcome.uid)
                self._append(service, total)
            if outcome.ok:
                total.succeeded += 1
            else:
                total.failed += 1
            total.latency_us += round(outcome.latency * 1_000_000)
        return [self._drop(service) for _ in range(self._count - self._most)]

    def take(self, most_each: int = SUMS_WAITING_MAX, before_slot: int | None = None) -> list[PendingOutcomes]:
        """Remove and return the oldest sums of each service, at most `most_each`, of slots before `before_slot`."""
        popped = [
            PendingOutcomes(service.plan, self._pop(service, most_each, before_slot))
            for service in tuple(self._waiting.values())
        ]
        return [pending for pending in popped if pending.sums]

    def take_service(self, plan: CounterPlan) -> list[Sum]:
        """Remove and return all sums of one service."""
        service = self._waiting.get(plan.key)
        return [] if service is None else self._pop(service, SUMS_WAITING_MAX, None)

    def _append(self, service: _ServiceSums, total: Sum) -> None:
        service.order.append(total)
        if total.uid is None:
            service.summed[total.slot, total.generation] = total
        self._update_counts(service, 1)

    def _pop(self, service: _ServiceSums, most: int, before_slot: int | None) -> list[Sum]:
        order, popped = service.order, list[Sum]()
        while order and len(popped) < most and (before_slot is None or order[0].slot < before_slot):
            total = order.popleft()
            popped.append(total)
            if total.uid is None:
                del service.summed[total.slot, total.generation]
        if popped:
            self._update_counts(service, -len(popped))
        return popped

    def _update_counts(self, service: _ServiceSums, by: int) -> None:
        """Update the counts after a service's pending sums changed in number by `by`."""
        key, count = service.plan.key, len(service.order)
        self._count += by
        if count != by:
            alike = self._alike[count - by]
            del alike[key]
            if not alike:
                del self._alike[count - by]
        if count:
            self._alike.setdefault(count, {})[key] = service
        else:
            del self._waiting[key]

    def _drop(self, pusher: _ServiceSums) -> DroppedOutcomes:
        most = max(self._alike)
        service = pusher if len(pusher.order) == most else next(iter(self._alike[most].values()))
        [dropped] = self._pop(service, 1, None)
        return DroppedOutcomes(service.plan.service, dropped.count)
