"""Header and claims of a JWT, for display. Nothing here is verified."""

import base64
import json
import re
from dataclasses import dataclass
from typing import Any

from webhook.core.json_depth import bound_depth

_SEGMENT = re.compile(r"[A-Za-z0-9_-]+")
_SEGMENTS = 3  # header, payload, signature


@dataclass(frozen=True, slots=True)
class UnverifiedToken:
    """Header and claims as written."""

    header: dict[str, Any]
    claims: dict[str, Any]


def read_token(text: str) -> UnverifiedToken:
    """Decode a JWT, with or without surrounding whitespace; ValueError, which quotes nothing, if it is not one."""
    segments = text.strip().split(".")
    if len(segments) != _SEGMENTS or not all(map(_SEGMENT.fullmatch, segments)):
        raise ValueError("it is no JWT")
    return UnverifiedToken(_decode_object(segments[0]), _decode_object(segments[1]))


def _decode_object(segment: str) -> dict[str, Any]:
    try:
        text = base64.urlsafe_b64decode(segment + "=" * (-len(segment) % 4))
        found = bound_depth(json.loads(text, parse_constant=_reject_number))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ValueError("it is no JWT")  # noqa: TRY004 - a token's fault
    return found


def _reject_number(text: str) -> None:
    raise ValueError(f"{text} is no JSON")
