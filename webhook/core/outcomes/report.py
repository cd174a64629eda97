"""Outcomes that reporters push: bytes in, typed outcomes out; who may report for which service; bytes out.

A batch that is wrong in one place is refused as a whole, and says where.
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
"""In one batch: what a busy gateway sees in a second. They are read in 3 ms."""

LONGEST_LATENCY_SECONDS = 86_400
MOST_LISTED = 20
"""Refused outcomes that an answer names; how many they are in all, the sender can tell."""

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
# What an object calls its field may hold all of this too: only the last, up to the end, is the library's own.
_PLACED = re.compile(r"(.*) - at `\$\[(\d+)\](?:\.(\w+))?`", re.DOTALL)
_OF_AN_OBJECT = re.compile("Object (contains unknown|missing required) field `(.*)`", re.DOTALL)


class BadOutcomesError(Exception):
    """The body is no batch of outcomes; the message is for its sender, and safe to show."""


class Pushed(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """How one request of a service fared; `latency` in seconds. `uid`: that of the Pod which it was an outcome of."""

    service: Annotated[str, Meta(min_length=1, max_length=63)]
    ok: bool
    latency: Annotated[float, Meta(ge=0, le=LONGEST_LATENCY_SECONDS)]
    uid: Annotated[str, Meta(min_length=1, max_length=253)] | None = None
    generation: Annotated[int, Meta(ge=0, le=_LARGEST_EXACT)] | None = None


class Refusal(StrEnum):
    """Why nobody hears an outcome. Its sender is not told which: that would be to learn of other services."""

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
    """Read a batch; BadOutcomesError names the first thing that is wrong with it."""
    try:
        return _decoder.decode(body)
    except msgspec.ValidationError as error:
        raise BadOutcomesError(_in_words(str(error), body)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _no_json(error) from None


def refusal(service: Service | None, client_id: str) -> Refusal | None:
    """Return why a service of the policy, None where there is none, does not hear this reporter."""
    if service is None:
        return Refusal.NO_SERVICE
    outcomes = service.breaker.outcomes if service.breaker is not None else None
    if outcomes is None or outcomes.source is not OutcomeSource.PUSHED:
        return Refusal.NOT_PUSHED
    return None if client_id in outcomes.reporters else Refusal.NOT_NAMED


def refused(index: int, service: str, client_id: str) -> RefusedOutcome:
    """Return what the sender hears, whatever the refusal was."""
    remedy = "check the name, or have the policy list it in breaker.outcomes.reporters"
    return RefusedOutcome(index, service, f"no service of this name hears {client_id!r}: {remedy}")


def encode(accepted: int, refusals: Sequence[RefusedOutcome]) -> bytes:
    """Return the answer's bytes."""
    return _encoder.encode(_Answer(accepted, refusals))


def _no_json(error: Exception) -> BadOutcomesError:
    return BadOutcomesError(f"{_BODY}: not JSON: {error}: {_NO_LIST}")


def _in_words(error: str, body: bytes) -> str:
    """Write `path: value: reason: remedy`: the library says where it is, but not what stands there."""
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
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as broken:  # it is, behind what was found first
        raise _no_json(broken) from None
    path = written_path((index, field) if field else (index,))
    return f"{path}: {_shown(value)}: {reason}: {_REMEDIES.get(field, _NO_FIELD)}"


def _shown(value: Raw | None) -> str:
    if value is None:
        return "(absent)"
    text = " ".join(bytes(value).decode(errors="replace").split())
    cut = text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 1] + "…"
    return cut if cut.isprintable() else ascii(cut)[1:-1]
