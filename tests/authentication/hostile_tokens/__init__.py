"""Hostile tokens, each with one fault: one module for each part under attack."""

from tests.authentication.hostile_tokens import (
    algorithm,
    binding,
    claims,
    encoding,
    header,
    keys,
    replay,
    signature,
    size,
)
from tests.authentication.hostile_tokens.token_builder import Hostile

HOSTILE: tuple[Hostile, ...] = tuple(
    case
    for module in (algorithm, keys, header, encoding, signature, claims, binding, replay, size)
    for case in module.CASES
)
