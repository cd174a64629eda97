"""`podgate token inspect`: claims and expiry of tokens, and the key of a set that verifies them."""

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from certs import read
from webhook.authentication.jwks import list_issuers, read_key_set
from webhook.authentication.jwt import TokenRules, verify
from webhook.authentication.unverified import UnverifiedToken, read_token
from webhook.cli.options.certs_errors import convert_certs_errors
from webhook.cli.options.command_group import format_document, report_option
from webhook.commands.pages.table import format_duration
from webhook.errors import AuthenticationError, UserError
from webhook.ports import TokenKey
from webhook.support.input_files import read_content

_FILE = click.Path(path_type=Path, allow_dash=True)
_TIMES = ("iat", "nbf", "exp")
_SECONDS_MAX = 2**40  # still a valid date
_BEGINNING = "eyJ"  # nearly every JWT begins so: the start of a JSON object, encoded
_ALONE = "give the token alone: three parts with a dot between each two"


@dataclass(frozen=True, slots=True)
class _Keys:
    """TokenKeys of one file, as in a server without other key sets."""

    by_kid: Mapping[str, TokenKey]
    generation: int = 0

    def find(self, kid: str) -> Sequence[TokenKey]:
        return [self.by_kid[kid]] if kid in self.by_kid else []

    def may_sign(self, key: TokenKey, issuer: str) -> bool:
        return issuer == key.issuer if key.issuer is not None else issuer not in list_issuers(self.by_kid)

    async def refetch(self) -> bool:
        return False


@click.command()
@click.argument("files", metavar="FILE...", type=_FILE, nargs=-1, required=True)
@click.option("--jwks", "key_set", type=click.Path(path_type=Path), help="Show which key of this set verifies it.")
@report_option()
@convert_certs_errors
def inspect(*, files: tuple[Path, ...], key_set: Path | None, output: str) -> None:
    """Show the tokens in FILES (- is standard input): header, claims, and expiry.

    \b
    podgate token inspect pki/token --jwks pki/jwks.json

    A token cannot be an argument: arguments are visible in process lists. Its signature is not shown. With --jwks, the
    output names the key that verifies the signature, or why none does; lifetime and identity are not checked.
    """  # noqa: D301 - the backslash-b keeps click from filling these lines
    if any(_is_token(str(path)) for path in (*files, key_set)):
        raise UserError(
            "FILE: this is a token, not a file", "put it into a file, or pipe it to podgate token inspect -"
        )
    keys = _read_keys(key_set) if key_set is not None else None
    rows = [_build_row(path, keys, int(time.time())) for path in files]
    text = format_document(rows, output)
    if text is not None:
        click.echo(text)
        return
    for row in rows:
        for line in _format_lines(row):
            click.echo(line)


def _is_token(text: str) -> bool:
    """Return whether an argument may be all or part of a token, which no error message may quote as a file name."""
    *_, word = text.split() or [""]
    try:
        read_token(word)
    except ValueError:
        return word.startswith(_BEGINNING)
    return True


def _read_keys(path: Path) -> _Keys:
    found = read_key_set(read(path), str(path), may_bind=True)
    for fault in found.faults:
        click.echo(f"warning: {fault}", err=True)
    return _Keys(found.keys)


def _build_row(path: Path, keys: _Keys | None, now_seconds: int) -> dict[str, Any]:
    place = "standard input" if str(path) == "-" else str(path)
    try:
        text = read_content(path, "check the path and its permissions").decode("ascii").strip()
        token = read_token(text)
    except ValueError:  # a UnicodeDecodeError is one, and would show the token
        raise UserError(f"{place}: holds no JWT", _ALONE) from None
    expires_at_seconds = _read_seconds(token.claims.get("exp"))
    row = {
        "file": place,
        "header": token.header,
        "claims": token.claims,
        "validUntil": _format_time(expires_at_seconds),
        "secondsLeft": None if expires_at_seconds is None else expires_at_seconds - now_seconds,
    }
    return row if keys is None else {**row, **_verify_signature(text, token, keys)}


def _verify_signature(text: str, token: UnverifiedToken, keys: _Keys) -> dict[str, str | None]:
    audience = token.claims.get("aud")
    named = audience if isinstance(audience, list) else [audience]
    # At any time, for any audience: only the signature is checked.
    audiences = [name for name in named if isinstance(name, str)]
    rules = TokenRules(None, audiences, lifetime_max_seconds=math.inf, leeway_seconds=math.inf)
    try:
        verify(text, keys, rules, time.time())
    except AuthenticationError as error:
        return {"verifiedBy": None, "reason": error.detail}
    return {"verifiedBy": token.header["kid"], "reason": None}


def _format_lines(row: Mapping[str, Any]) -> Iterator[str]:
    yield row["file"]
    for name, value in row["header"].items():
        yield _format_line(f"header {name}", json.dumps(value))
    for name, value in row["claims"].items():
        at = _format_time(_read_seconds(value)) if name in _TIMES else None
        yield _format_line(name, json.dumps(value) + (f" ({at})" if at else ""))
    yield _format_line("valid until", _describe_life(row["validUntil"], row["secondsLeft"]))
    if "verifiedBy" in row:
        yield _format_line("verified by", f"kid {row['verifiedBy']}" if row["verifiedBy"] else f"none: {row['reason']}")


def _format_line(name: str, text: str) -> str:
    return f"  {json.dumps(name)[1:-1]:<12} {text}"


def _describe_life(until: str | None, left_seconds: int | None) -> str:
    if until is None or left_seconds is None:
        return "- (no exp in whole seconds: servers reject it)"
    left = (
        f"{format_duration(left_seconds)} left" if left_seconds > 0 else f"expired {format_duration(-left_seconds)} ago"
    )
    return f"{until} ({left})"


def _read_seconds(value: object) -> int | None:
    return value if type(value) is int and 0 <= value <= _SECONDS_MAX else None


def _format_time(at_seconds: int | None) -> str | None:
    return None if at_seconds is None else f"{datetime.fromtimestamp(at_seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"
