"""The events of `replay`: one JSON object a line, told apart by the one key that names what happened."""

from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta, Struct

from webhook.errors import UserError


class Event(Struct, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """What all have: `at` in seconds from 0."""

    kind: ClassVar[str] = ""
    at: int | float


class PodAsks(Event, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """A Pod asks: both halves judge it."""

    kind: ClassVar[str] = "pod"
    pod: dict[str, Any]
    namespace: str
    uid: str | None = None
    dry_run: bool = False
    user: str = "kubernetes-admin"
    operation: str = "CREATE"
    sub_resource: str = ""
    old_pod: dict[str, Any] | None = None


class OutcomeFields(Struct, frozen=True, forbid_unknown_fields=True):
    """How one request or Pod fared; `latency` in seconds."""

    service: str
    ok: bool
    latency: Annotated[int, Meta(ge=0)] | Annotated[float, Meta(ge=0)] = 0
    uid: str | None = None
    generation: int | None = None


class OutcomeSeen(Event, frozen=True, forbid_unknown_fields=True, kw_only=True):
    kind: ClassVar[str] = "outcome"
    outcome: OutcomeFields


class Deleted(Event, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A Pod ended: a rate gives nothing back."""

    kind: ClassVar[str] = "deleted"
    deleted: str


class Refused(Event, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A Pod that was admitted never came to be: it is refunded at once."""

    kind: ClassVar[str] = "refused"
    refused: str


class StatusAsked(Event, frozen=True, forbid_unknown_fields=True, kw_only=True):
    kind: ClassVar[str] = "status"
    status: str


class NamespacesChange(Event, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True):
    kind: ClassVar[str] = "namespaceLabels"
    namespace_labels: dict[str, dict[str, str]]


class PolicyChange(Event, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The policy becomes that of a file, named relative to the events' folder."""

    kind: ClassVar[str] = "policy"
    policy: str


_BY_KEY: dict[str, type[Event]] = {
    kind.kind: kind for kind in (PodAsks, OutcomeSeen, Deleted, Refused, StatusAsked, NamespacesChange, PolicyChange)
}
EVENTS = tuple(_BY_KEY)
_NOT_YET = {"store": "a store that goes away needs Redis, which this version does not have"}


def parse(line: str) -> Event:
    """Read one line; UserError says what is wrong with it."""
    try:
        raw = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise UserError(f"not JSON: {error}", "write one JSON object a line") from None
    if not isinstance(raw, dict):
        raise UserError("not a JSON object", "write one JSON object a line")
    for key, reason in _NOT_YET.items():
        if key in raw:
            raise UserError(f"{key}: not supported yet: {reason}", "leave the line out")
    # `policy` and `status` events have no other event's key beside them; a Pod's line may have anything of its own.
    found = [key for key in _BY_KEY if key in raw]
    if len(found) != 1:
        what = f"{' and '.join(found)} in one line" if found else "no event in the line"
        raise UserError(what, f"give exactly one of {', '.join(EVENTS)}")
    try:
        return msgspec.convert(raw, _BY_KEY[found[0]])
    except msgspec.ValidationError as error:
        raise UserError(f"{found[0]}: {error}", "see podgate replay --help") from None
