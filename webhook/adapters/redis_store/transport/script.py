"""The Lua script, called by its hash, sent again if unknown. Why one: docs/design/one-script.md.

Its text is rendered once. Beside the constants, these names stand for the fields of a record X, which crosses in a call
(`records.py`) or is stored in Redis, and for the values of an operation X:

- `X_FIELD`: the index of a field in a record X; `X_FIELD_OFFSET`: its distance from the record's start in a flat list.
- `X_FIELDS`: all fields of a record or an operation, as variables; `X_LENGTH`: their number.
- `X{field = value, ...}`: a record, and `X_VALUES{field = value, ...}`: its values, both in the record's order.
"""

import re
from collections.abc import Mapping, Sequence
from hashlib import sha1
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from redis.exceptions import NoScriptError

from webhook.adapters.redis_store.transport.connection import SharedConnection
from webhook.adapters.redis_store.transport.records import PASSED, AnnouncementMessage, Names
from webhook.adapters.redis_store.transport.stream import Command
from webhook.core.breaker import EXPIRED, HELD, TRANSITIONS, BreakerView, State, TransitionCause
from webhook.core.breaker.manual import EXCUSED_MAX, EXCUSED_US, FORCED_BY
from webhook.core.breaker.record import EVERY_SOURCE, SHUT
from webhook.core.breaker.trip_detection import FAILED_MAX
from webhook.core.quota import EXACT_AMOUNT_MAX

SHARED: Mapping[str, Names] = {
    "RING_HEAD": ("last", "offset", "behind", "born", "windows", "returned"),
    "WINDOW": ("newest", "current", "sums"),
    "RETURNED": ("at", "others"),
    "RESET": ("asked", "upto"),
    "POD": (
        *("expires", "charged_at", "generation", "probe", "refunded", "service", "scope", "fleet", "cost", "high"),
        *("windows", "source", "settled"),
    ),
    "CHARGED_WINDOW": ("seconds", "resources", "counters"),
    "BREAKER_RECORD": (
        *("state", "generation", "since", "open_until", "reason", "successes", "leases", "errors", "latency", "events"),
        *("failed", "early", "tripped_at", "tripped_by", "reset_at", "excused", "asked", "passed", "alone"),
    ),
    "RUN": ("interval", "number", "outcomes", "amount", "streak", "later", "sources"),
    "LATER": ("number", "outcomes", "amount", "sources"),
    "LEASE": ("uid", "expires", "generation"),
    "EVENT": ("at", "source"),
    "EXCUSE": ("source", "until_us"),
    "LIVE_HEAD": ("sums", "over", "count", "changes"),
    "VIEW": BreakerView.__struct_fields__,
    "ANNOUNCEMENT": AnnouncementMessage._fields,
}
"""Records that Redis stores or publishes, by the name that they have in Lua.

Servers of other versions read them: they may only gain fields at their end.
"""


def _split_around(field: str, names: Names) -> tuple[Names, Names]:
    """Return the names before a field and after it."""
    at = names.index(field)
    return names[:at], names[at + 1 :]


_BEFORE_WINDOWS, _AFTER_WINDOWS = _split_around("windows", SHARED["POD"])
_BEFORE_EVENTS, _AFTER_EVENTS = _split_around("events", SHARED["BREAKER_RECORD"])
PARTS: Mapping[str, Names] = {
    "POD_BEFORE_WINDOWS": _BEFORE_WINDOWS,
    "POD_AFTER_WINDOWS": _AFTER_WINDOWS,
    "BREAKER_BEFORE_EVENTS": _BEFORE_EVENTS,
    "BREAKER_AFTER_EVENTS": _AFTER_EVENTS,
    "VIEW_START": _split_around("tripped_at_us", SHARED["VIEW"])[0],
}
"""Parts of records that are written or sent by themselves."""

OPERATIONS: Mapping[str, Names] = {
    "acquire": (
        *("own_key", "pod_key", "live_key"),
        *("scope", "place", "cost_text", "source", "peek", "is_no_event"),
    ),
    "acquire_group": ("own_key", "live_key", "scope", "members"),
    "resize": ("own_key", "pod_key", "live_key", "scope", "place", "cost_text", "peek", "old"),
    "book": ("own_key", "pod_key", "live_key", "scope", "place", "cost_text", "at"),
    "observe": (
        *("own_key", "pod_key", "live_key"),
        *("scope", "place", "cost_text", "created_at", "is_live", "is_sure", "live_cost_text"),
    ),
    "find_charge": ("pod_key",),
    "find_charged_us": ("pod_key", "peek"),
    "find_place": ("pod_key",),
    "refund": ("own_key", "pod_key", "home_key", "breaker_key", "live_key", "pool_live_key"),
    "withdraw": ("own_key", "pod_key", "home_key", "breaker_key", "live_key", "pool_live_key", "scope", "at"),
    "stop_waiting": ("pod_key", "live_key", "pool_live_key", "service"),
    "list_overdue": ("age", "most"),
    "list_counting_scopes": (),
    "list_live_scopes": (),
    "count_live": (),
    "list_live": ("live_key", "cursor", "found"),
    "mark_complete": (),
    "forget_whole": ("cursor",),
    "list_pool_live": ("pool_live_key", "cursor", "found"),
    "mark_pool_complete": ("pool_live_key",),
    "drop_pool_pod": ("pod_key", "pool_live_key", "service"),
    "reset_windows": ("own_key", "asked", "only_seconds"),
    "count_settled": ("replica", "afresh"),
    "snapshot": (),
    "tick": (),
    "compare": ("ticked_at", "fingerprints"),
    "record_outcomes": ("outcomes",),
    "record_start": ("pod_key", "ok", "latency", "age"),
    "suppress_quota_events": ("sources",),
    "apply_override": ("asked",),
    "propose": ("view",),
    "probe": ("probe_key",),
    # Of these two, the action follows, and its values.
    "queue": ("queue_key",),
    "slots": ("slots_key",),
}
"""The values of each operation, by its name in Lua and in `operations.py`. Those that end in `_key` are the numbers of
keys. An operation on any number of keys has them before its values."""

QUEUE_ACTIONS: Mapping[str, Names] = {
    "register": ("uid", "most", "ttl_ms"),
    "restore": ("members", "ttl_ms"),
    "page": ("cursor", "count", "ttl_ms"),
    "times": ("uids",),
    "count": (),
    "forget": ("uids",),
}
"""The values of each action on a queue, by its name in Lua and in `queue_index.py`."""

SLOT_ACTIONS: Mapping[str, Names] = {
    "claim": ("uid", "is_dry_run", "ttl_ms"),
    "learn": ("replicas", "held", "age", "is_new", "ttl_ms"),
    "free": ("held",),
    "confirm": ("held", "ttl_ms"),
    "doubt": (),
    "forget_owner": (),
}
"""The values of each action on an owner's slots, by its name in Lua and in `slots.py`."""

_Value = str | bool | int | Mapping[str, "_Value"]


def render_tables() -> str:
    """Return a Lua chunk that defines one local table, BREAKER. The text is the same in every process."""
    return f"-- Rendered from webhook/core/breaker.\nlocal BREAKER = {_render_value(_list_tables())}\n"


def render_literals() -> Mapping[str, str]:
    """Return the Lua literals of the other constants, by name."""
    values: Mapping[str, _Value] = {
        "HELD": HELD,
        "EXPIRED": EXPIRED,
        "FAILED_MAX": FAILED_MAX,
        "EXACT_AMOUNT_MAX": EXACT_AMOUNT_MAX,
        "EXCUSED_MAX": EXCUSED_MAX,
        "EXCUSED_US": EXCUSED_US,
        "EVERY_SOURCE": EVERY_SOURCE,
    }
    return {name: _render_value(value) for name, value in values.items()}


def _list_tables() -> Mapping[str, _Value]:
    return {
        "CAUSE": {cause.name: cause.value for cause in TransitionCause},
        "NEXT": {
            state.value: {cause.value: new.value for (old, cause), new in TRANSITIONS.items() if old is state}
            for state in State
        },
        "FORCED_BY": {state.value: cause.value for state, cause in FORCED_BY.items()},
        "IS_FORCED": {state.value: True for state in State if state.is_forced},
        "IS_TRIPPED": {state.value: True for state in State if state.is_tripped},
        "SHUT": {state.value: rank for state, rank in SHUT.items()},
    }


def _render_value(value: _Value) -> str:
    """Return a Lua literal. Keys are identifiers, and strings contain neither double quotes nor backslashes."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return f'"{value}"'
    return "{" + ", ".join(f"{key} = {_render_value(entry)}" for key, entry in value.items()) + "}"


_RECORDS: Mapping[str, Names] = {**PASSED, **SHARED, **PARTS}
_CONSTRUCTOR = re.compile(rf"(?<![.\w])({'|'.join(_RECORDS)})(_VALUES)?{{")
_TOKEN = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"|[{}(),\[\]]")


def name_fields() -> Mapping[str, str]:
    """Return the replacements for the names of fields, records and operations, except constructors of records."""
    texts: dict[str, str] = {}
    named = {name.upper(): fields for name, fields in {**OPERATIONS, **QUEUE_ACTIONS, **SLOT_ACTIONS}.items()}
    for record, fields in {**named, **_RECORDS}.items():
        for number, field in enumerate(fields):
            name = f"{record}_{field.upper()}"
            texts |= {name: str(number + 1), f"{name}_OFFSET": str(number)}
        texts |= {f"{record}_FIELDS": ", ".join(fields), f"{record}_LENGTH": str(len(fields))}
    for record in ("BREAKER_RECORD", "BREAKER_BEFORE_EVENTS", "BREAKER_AFTER_EVENTS"):
        texts[f"{record}_OF_R"] = ", ".join(f"r.{field}" for field in _RECORDS[record])
    # The head of a MessagePack array, and the length of a long record of a breaker, which has one more field.
    texts["POD_ARRAY"] = f"'\\{0x90 + len(SHARED['POD'])}'"
    texts["LONG_RECORD_LENGTH"] = str(len(SHARED["BREAKER_RECORD"]) + 1)
    return texts


def expand_records(text: str) -> str:
    """Replace the constructors of records; ValueError if a field is missing, unknown or given twice."""
    parts, end = [], 0
    for found in _CONSTRUCTOR.finditer(text):
        if found.start() < end:
            continue  # within another record, and expanded with it
        entries, following = _split(text, found.end())
        values = {name.strip(): expand_records(value.strip()) for name, _, value in (e.partition("=") for e in entries)}
        fields = _RECORDS[found[1]]
        if len(entries) != len(fields) or values.keys() != set(fields):
            raise ValueError(f"{found[1]} has the fields {fields}, not {[*values]}")
        listed = ", ".join(values[field] for field in fields)
        parts += [text[end : found.start()], listed if found[2] else f"{{{listed}}}"]
        end = following
    return "".join([*parts, text[end:]])


def _split(text: str, start: int) -> tuple[Sequence[str], int]:
    """Return the entries of the table that begins before `start`, and where the text after the table begins."""
    entries, depth, begin = [], 0, start
    for token in _TOKEN.finditer(text, start):
        if depth == 0 and token[0] in {",", "}"}:
            entries.append(text[begin : token.start()])
            begin = token.end()
            if token[0] == "}":
                return [entry for entry in entries if entry.strip()], begin
        depth += {"{": 1, "(": 1, "[": 1, "}": -1, ")": -1, "]": -1}.get(token[0], 0)
    raise ValueError(f"a record does not end: {text[start : start + 40]!r}")


_CONSTANT = re.compile(r"^local ([A-Z_]+) = (-?\d+)", re.MULTILINE)
_FOLDER = files("webhook.adapters.redis_store") / "lua"


def _read_parts(folder: Traversable) -> list[str]:
    files = sorted((part for part in folder.iterdir() if part.name.endswith(".lua")), key=lambda part: part.name)
    return [part.read_text() for part in files]


def _render_modules() -> str:
    """Return a Lua function that returns functions, each of which defines a module, after the common part.

    One function around them all: it alone looks up the outer locals of every module at each call.
    """
    names = ("sums", "refusals", "waits", "live", "guarantees", "pools", "breaker", "operations", "queue", "slots")
    heads = dict.fromkeys(names, "") | {"breaker": render_tables()}
    texts = [
        "\n".join([f"{name} = function()", head, *_read_parts(_FOLDER / name), "end,"]) for name, head in heads.items()
    ]
    return "\n".join(["function define_modules()", *_read_parts(_FOLDER / "modules"), "return {", *texts, "}", "end"])


def _render_text() -> str:
    constants, state, *parts, main = _read_parts(_FOLDER)
    values = {**dict(_CONSTANT.findall(constants)), **render_literals(), **name_fields()}
    text = "\n".join([state, "local function run()", *parts, _render_modules(), main, "end", "return run()"])
    text = re.sub(r"(?<![.\w])[A-Z][A-Z_]+\b", lambda found: values.get(found[0], found[0]), expand_records(text))
    return text.replace(" + 0]", "]")  # the first offset of a flat list


TEXT = _render_text()
_DEMOTED = b"READONLY You can't write"
"""Redis' own error, which the script returns as the result of an operation."""


class Script:
    """A script for any server: sent once to each, then called by its hash."""

    def __init__(self, text: str = TEXT) -> None:
        self._text = text
        self._sha = sha1(text.encode(), usedforsecurity=False).hexdigest()

    async def run(self, connection: SharedConnection, keys: Sequence[str], argument: bytes, *before: Command) -> Any:
        """Run it once, after other commands if given; return the raw answer."""
        try:
            answer = await connection.ask(*before, ("EVALSHA", self._sha, len(keys), *keys, argument))
        except NoScriptError:
            answer = await connection.ask(*before, ("EVAL", self._text, len(keys), *keys, argument))
        if isinstance(answer, bytes) and _DEMOTED in answer:
            await connection.drop()  # so that the next call finds the primary
        return answer
