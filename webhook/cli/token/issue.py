"""`podgate token issue`: one signed token."""

import time
import uuid
from pathlib import Path
from typing import Any, cast

import click

from certs import (
    ALGORITHMS,
    PrivateKey,
    build_binding,
    encode_key,
    new_key,
    read_certificates,
    read_private_key,
    sign,
    write,
)
from webhook.cli.options.certs_errors import convert_certs_errors
from webhook.cli.options.durations import parse_whole_seconds
from webhook.cli.token.jwks import find_algorithm
from webhook.errors import UserError

_FILE = click.Path(path_type=Path)


@click.command()
@click.option("--key", "key_file", type=_FILE, required=True, help="The private key to sign with, PEM.")
@click.option("--new-key", "make", is_flag=True, help="Create the key on first use (by default for ES256).")
@click.option("--algorithm", type=click.Choice(ALGORITHMS), help="Default: by the kind of key; RS256 for RSA.")
@click.option("--issuer", required=True, help="The iss claim.")
@click.option("--audience", required=True, help="The aud claim.")
@click.option("--subject", required=True, help="The sub claim.")
@click.option("--client-id", help="The client_id claim.")
@click.option("--expires-in", default="1h", show_default=True, help="Lifetime, such as 10m or 1h.")
@click.option("--kid", help="The key's id. Default: its RFC 7638 thumbprint.")
@click.option("--bind-to", type=_FILE, help="Bind the token to this client certificate (RFC 8705).")
@click.option("--out", type=_FILE, help="Write it to this file, readable by you only, replacing a former token.")
@convert_certs_errors
def issue(  # noqa: PLR0913 - one argument an option
    *,
    key_file: Path,
    make: bool,
    algorithm: str | None,
    issuer: str,
    audience: str,
    subject: str,
    client_id: str | None,
    expires_in: str,
    kid: str | None,
    bind_to: Path | None,
    out: Path | None,
) -> None:
    """Print a signed token.

    \b
    podgate token issue --key token.key --new-key --issuer kube-apiserver \\
        --audience podgate --subject kube-apiserver > token
    podgate token jwks token.key > jwks.json
    """  # noqa: D301 - the backslash-b keeps click from filling these lines
    lifetime_seconds = parse_whole_seconds("--expires-in", expires_in)
    binding = {"cnf": build_binding(read_certificates(bind_to)[0])} if bind_to else {}
    now_seconds = int(time.time())
    claims: dict[str, Any] = {
        "iss": issuer,
        "aud": audience,
        "sub": subject,
        "iat": now_seconds,
        "exp": now_seconds + lifetime_seconds,
        "jti": str(uuid.uuid4()),
        **({"client_id": client_id} if client_id is not None else {}),
        **binding,
    }
    signed = sign(_read_signing_key(key_file, algorithm, make=make), claims, algorithm, kid)
    if out is None:
        click.echo(signed)
    else:
        write(out, signed.encode() + b"\n", secret=True, replace=True)


def _read_signing_key(path: Path, algorithm: str | None, *, make: bool) -> PrivateKey:
    if not path.exists():
        if not make:
            raise UserError(f"{path}: no such key", "add --new-key to create it")
        made = new_key(algorithm or "ES256")
        write(path, encode_key(made), secret=True)
        return made
    key = read_private_key(path)
    find_algorithm(path, key, algorithm)
    return cast("PrivateKey", key)
