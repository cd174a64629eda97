"""`podgate token rotate`: an issuer in a folder, whose keys change without anybody's noticing; for cron."""

import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

import click

from certs.errors import CertsError
from certs.files import folder_lock, read, write
from certs.tokens import signing_keys
from certs.tokens.rotation import Issuer, TokenState, TokenStep, next_step
from webhook.cli.certs import user_errors
from webhook.core.kubernetes.quantity import Duration
from webhook.errors import UserError

KEYS, KEY_SET, TOKEN = "keys.json", "jwks.json", "token"
_FOLDER = click.Path(path_type=Path)
_US = 1_000_000


@click.command()
@click.option("--out", type=_FOLDER, required=True, help="The issuer's folder; made if it is not there.")
@click.option("--issuer", required=True, help="The iss claim.")
@click.option("--audience", required=True, help="The aud claim.")
@click.option("--subject", required=True, help="The sub claim.")
@click.option("--client-id", help="The client_id claim.")
@click.option("--expires-in", default="1h", show_default=True, help="Lifetime of a token, such as 1h.")
@click.option("--key-lifetime", default="720h", show_default=True, help="How long a key signs.")
@click.option("--dry-run", is_flag=True, help="Say what is due, and write nothing.")
@user_errors
def rotate(  # noqa: PLR0913 - one argument an option
    *,
    out: Path,
    issuer: str,
    audience: str,
    subject: str,
    client_id: str | None,
    expires_in: str,
    key_lifetime: str,
    dry_run: bool,
) -> None:
    """Do what is due: a new token at a tenth of its life, a new key at the end of its own.

    \b
    podgate token rotate --out issuer --issuer https://podgate.podgate-system.svc \\
        --audience podgate --subject kube-apiserver --client-id kube-apiserver

    Run it more often than a token's life has tenths. OUT/token is for the caller, OUT/jwks.json for the servers: a new
    key stands there before it signs, and leaves when the last token that it signed has expired. OUT/keys.json is
    nobody else's.
    """  # noqa: D301 - the backslash-b keeps click from filling these lines
    token_seconds, key_seconds = seconds("--expires-in", expires_in), seconds("--key-lifetime", key_lifetime)
    whose = Issuer(issuer, audience, subject, client_id, token_seconds, key_seconds)
    if mistake := whose.mistake():
        raise UserError(f"--key-lifetime {key_lifetime}: {mistake}", "write a longer one")
    with nullcontext() if dry_run else _alone_in(out):
        now, view = int(time.time()), _view(out)
        while (step := next_step(view, whose, now)) is not None:
            click.echo(f"due: {step.text}" if dry_run else step.text)
            if not dry_run:
                _write(out, step)
            view = _after(view, step)


def _alone_in(out: Path) -> AbstractContextManager[None]:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{out}: cannot be made: {error.strerror}", "choose a folder that you may write") from None
    return folder_lock(out)


def _view(out: Path) -> TokenState:
    keys, key_set, token = (_content(out / name) for name in (KEYS, KEY_SET, TOKEN))
    kept = signing_keys.read(keys, str(out / KEYS)) if keys is not None else ()
    return TokenState(kept, signing_keys.published(key_set), token.decode(errors="replace").strip() if token else None)


def _content(path: Path) -> bytes | None:
    try:
        return read(path)
    except CertsError:
        if path.exists():
            raise
        return None


def _write(out: Path, step: TokenStep) -> None:
    """In this order: a key before what it signs, a token that it may sign before the token."""
    if step.keys is not None:
        write(out / KEYS, signing_keys.written(step.keys), secret=True, replace=True)
    if step.key_set is not None:
        write(out / KEY_SET, step.key_set.encode(), secret=False, replace=True)
    if step.token is not None:
        write(out / TOKEN, step.token.encode() + b"\n", secret=True, replace=True)


def _after(view: TokenState, step: TokenStep) -> TokenState:
    found = view if step.keys is None else replace(view, keys=step.keys)
    if step.key_set is not None:
        found = replace(found, published=signing_keys.published(step.key_set.encode()))
    return found if step.token is None else replace(found, token=step.token)


def seconds(flag: str, text: str) -> int:
    """Read a lifetime of whole seconds; UserError names the flag."""
    try:
        found = Duration.parse(text).us // _US
    except ValueError as error:
        raise UserError(f"{flag} {text!r}: {error}", "write for example 1h") from None
    if not found:
        raise UserError(f"{flag} {text!r}: shorter than a second", "write for example 1h")
    return found
