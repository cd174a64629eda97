"""Report format of pushed outcomes: decoding, authorization of reporters, and encoding of the response.

A batch with one invalid outcome is rejected as a whole; the error names the place.
"""

import re
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta, Raw, Struct

from webhook.core.document.yaml.problems import written_path
from webhook.core.policy.model import Service
from webhook.core.policy_spec import OutcomeSource

MOST_OUTCOMES = 10_000
"""Per batch: what a busy gateway handles in one second."""

LONGEST_LATENCY_SECONDS = 86_400
MOST_LISTED = 20
"""Maximum number of refused outcomes listed in a response; the reporter can compute their total."""

_LARGEST_EXACT = 1 << 53
_LONGEST_SHOWN = 80  # characters of a value: enough to find it
_BODY = "(body)"
_REMEDIES = {
    "service": "write the name of a service of the policy",
    "ok": "write true, or false for an error",
    "latency": f"write seconds from 0 to {LONGEST_LATENCY_SECONDS}, such as 0.25",
    "uid": "write the uid of a Pod, or leave it out",
    "generation": "write the breaker's generation, a whole number from 0, or leave it out",
}
_NO_FIELD = f"the fields are {', '.join(_REMEDIES)}"
_NO_LIST = f"send a JSON list of at most {MOST_OUTCOMES} outcomes"
# A field's name may contain this pattern, too: only the last match, up to the end, is from the library.
_PLACED = re.compile(r"(.*) - at `\$\[(\d+)\](?:\.(\w+))?`", re.DOTALL)
_OF_AN_OBJECT = re.compile("Object (contains unknown|missing required) field `(.*)`", re.DOTALL)


class BadOutcomesError(Exception):
    """The body is not a valid batch of outcomes. The message is safe to show to the reporter."""


class Pushed(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """Outcome of one request of a service; `latency` in seconds. `uid`: the Pod whose outcome it is."""

    service: Annotated[str, Meta(min_length=1, max_length=63)]
    ok: bool
    latency: Annotated[float, Meta(ge=0, le=LONGEST_LATENCY_SECONDS)]
    uid: Annotated[str, Meta(min_length=1, max_length=253)] | None = None
    generation: Annotated[int, Meta(ge=0, le=_LARGEST_EXACT)] | None = None


class Refusal(StrEnum):
    """Reason for refusing an outcome. It is not disclosed to the reporter, as it would reveal other services."""

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


_decoder: msgspec.json.Decoder[tuple[Pushed, ...]] = msgspec.json.Decoder(
    Annotated[tuple[Pushed, ...], Meta(max_length=MOST_OUTCOMES)]
)
_entries = msgspec.json.Decoder(list[Raw])
_fields = msgspec.json.Decoder(dict[str, Raw])
_encoder = msgspec.json.Encoder()


def decode(body: bytes) -> tuple[Pushed, ...]:
    """Decode a batch; BadOutcomesError names the first error."""
    try:
        return _decoder.decode(body)
    except msgspec.ValidationError as error:
        raise BadOutcomesError(_in_words(str(error), body)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _no_json(error) from None


def refusal(service: Service | None, client_id: str) -> Refusal | None:
    """Return why a reporter may not push outcomes for a service (None: not in the policy); None if it may."""
    if service is None:
        return Refusal.NO_SERVICE
    outcomes = service.breaker.outcomes if service.breaker is not None else None
    if outcomes is None or outcomes.source is not OutcomeSource.PUSHED:
        return Refusal.NOT_PUSHED
    return None if client_id in outcomes.reporters else Refusal.NOT_NAMED


def refused(index: int, service: str, client_id: str) -> RefusedOutcome:
    """Return a refused outcome for the response: the same text for every reason."""
    remedy = "check the name, or have the policy list it in breaker.outcomes.reporters"
    return RefusedOutcome(index, service, f"no service of this name accepts outcomes from {client_id!r}: {remedy}")


def encode(accepted: int, refusals: Sequence[RefusedOutcome]) -> bytes:
    """Return the response body."""
    return _encoder.encode(_Answer(accepted, refusals))


def _no_json(error: Exception) -> BadOutcomesError:
    return BadOutcomesError(f"{_BODY}: not JSON: {error}: {_NO_LIST}")


def _in_words(error: str, body: bytes) -> str:
    """Return `path: value: reason: remedy`: the library names the place, but not the value."""
    placed = _PLACED.fullmatch(error)
    if placed is None:
        return f"{_BODY}: {error}: {_NO_LIST}"
    reason, index, field = placed[1], int(placed[2]), placed[3] or ""
    of_an_object = _OF_AN_OBJECT.fullmatch(reason)
    if of_an_object is not None:
        reason, field = f"{of_an_object[1]} field", of_an_object[2]
    try:
        entry = _entries.decode(body)[index]
        value = entry if not field else _fields.decode(entry).get(field)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as broken:  # not JSON after the first error
        raise _no_json(broken) from None
    path = written_path((index, field) if field else (index,))
    return f"{path}: {_shown(value)}: {reason}: {_REMEDIES.get(field, _NO_FIELD)}"


def _shown(value: Raw | None) -> str:
    if value is None:
        return "(absent)"
    text = " ".join(bytes(value).decode(errors="replace").split())
    cut = text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 1] + "…"
    return cut if cut.isprintable() else ascii(cut)[1:-1]
