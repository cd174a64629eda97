"""Batches of outcomes: accepted exactly if they are JSON within the bounds, and then with the values sent."""

import json
from math import copysign
from typing import Any

from tests.fuzz.catalogue import Form
from tests.fuzz.oracles import check_message, read_json, read_strict_json
from webhook.core import outcomes
from webhook.core.outcomes import LATENCY_SECONDS_MAX, OUTCOMES_MAX, BadOutcomesError, PushedOutcome

FORM = Form.JSON
WORDS = (
    "service",
    "ok",
    "latency",
    "uid",
    "generation",
    "payment-api",
    "true",
    "86400",
    " - at `$[",
    "].ok`",
    "x" * 63,
)
_FIELDS = {"service", "ok", "latency", "uid", "generation"}
_GENERATION_MAX = 1 << 53


def list_seeds() -> list[bytes]:
    usual = {"service": "payment-api", "ok": True, "latency": 0.25}
    batches: list[Any] = [
        [],
        [usual],
        [{**usual, "uid": "u-1", "generation": 3}, {**usual, "ok": False, "latency": 0}],
        [{**usual, "uid": None, "generation": None}],
        [{**usual, "latency": 86401}],
        [{**usual, "service": "x" * 64}],
        [{"ok": True}],
        [{**usual, " - at `$[0].ok`": 1}],
        {"service": "x"},
    ]
    return [json.dumps(batch).encode() for batch in batches]


def check(data: bytes) -> None:
    try:
        found = outcomes.decode(data)
    except BadOutcomesError as error:
        check_message(str(error))
        assert not _is_valid(data), error
        return
    sent = read_json(data)
    assert len(found) == len(sent) <= OUTCOMES_MAX
    for outcome, item in zip(found, sent, strict=True):
        assert _is_valid_item(item), item
        assert outcome == _build(item)


def _is_valid(data: bytes) -> bool:
    try:
        sent = read_strict_json(data)
    except (ValueError, RecursionError):
        return False
    return isinstance(sent, list) and len(sent) <= OUTCOMES_MAX and all(map(_is_valid_item, sent))


def _is_valid_item(item: Any) -> bool:
    if not isinstance(item, dict) or not {"service", "ok", "latency"} <= item.keys() <= _FIELDS:
        return False
    latency, generation = item["latency"], item.get("generation")
    return (
        _is_text(item["service"], 63)
        and isinstance(item["ok"], bool)
        and type(latency) in {int, float}
        and 0 <= latency <= LATENCY_SECONDS_MAX
        and (item.get("uid") is None or _is_text(item["uid"], 253))
        and (generation is None or (_is_whole(generation) and 0 <= generation <= _GENERATION_MAX))
    )


def _is_whole(value: Any) -> bool:
    """Return whether a number is whole: 3.0 is, but -0.0 is not."""
    return type(value) is int or (type(value) is float and value.is_integer() and copysign(1, value) > 0)


def _is_text(value: Any, characters_max: int) -> bool:
    """Return whether a value is a text of characters: half of a surrogate pair is none."""
    is_text = isinstance(value, str) and 1 <= len(value) <= characters_max
    return is_text and not any("\ud800" <= character <= "\udfff" for character in value)


def _build(item: Any) -> PushedOutcome:
    generation = item.get("generation")
    return PushedOutcome(
        item["service"],
        item["ok"],
        float(item["latency"]),
        item.get("uid"),
        None if generation is None else int(generation),
    )
