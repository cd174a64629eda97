"""`podgate token`: JWTs for callers without an issuer of their own, and the public key set to verify them with."""

import time
import uuid
from pathlib import Path
from typing import Any, cast

import click

from certs.errors import CertsError
from certs.files import read, read_certificates, read_private_key, write
from certs.tokens.issuer import (
    ALGORITHMS,
    RSA_ALGORITHMS,
    PrivateKey,
    PublicKey,
    algorithm_of,
    certificate_binding,
    key_pem,
    key_set,
    new_key,
    public_jwk,
    public_key_of,
    sign,
)
from webhook.cli.certs import user_errors
from webhook.cli.token.inspect import inspect
from webhook.cli.token.rotate import rotate, seconds
from webhook.errors import UserError

_FILE = click.Path(path_type=Path)


@click.group()
def token() -> None:
    """Issue bearer tokens, look into them, and publish the keys that verify them."""


@token.command()
@click.option("--key", "key_file", type=_FILE, required=True, help="The private key to sign with, PEM.")
@click.option("--new-key", is_flag=True, help="Make the key on first use (of --algorithm, ES256 unless told).")
@click.option("--algorithm", type=click.Choice(ALGORITHMS), help="Default: by the kind of key; RS256 for RSA.")
@click.option("--issuer", required=True, help="The iss claim.")
@click.option("--audience", required=True, help="The aud claim.")
@click.option("--subject", required=True, help="The sub claim.")
@click.option("--client-id", help="The client_id claim.")
@click.option("--expires-in", default="1h", show_default=True, help="Lifetime, such as 10m or 1h.")
@click.option("--kid", help="The key's id. Default: its RFC 7638 thumbprint.")
@click.option("--bind-to", type=_FILE, help="Good only together with this client certificate (RFC 8705).")
@click.option("--out", type=_FILE, help="Write it to this file, for you alone, replacing a former token.")
@user_errors
def issue(  # noqa: PLR0913 - one argument an option
    *,
    key_file: Path,
    new_key: bool,
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
    lifetime_seconds = seconds("--expires-in", expires_in)
    binding = {"cnf": certificate_binding(read_certificates(bind_to)[0])} if bind_to else {}
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
    signed = sign(_signing_key(key_file, algorithm, make=new_key), claims, algorithm, kid)
    if out is None:
        click.echo(signed)
    else:
        write(out, signed.encode() + b"\n", secret=True, replace=True)


@token.command()
@click.argument("key_files", metavar="KEY...", type=_FILE, nargs=-1, required=True)
@click.option("--rsa-algorithm", type=click.Choice(RSA_ALGORITHMS), help="What RSA keys sign. Default: RS256.")
@click.option("--kid", help="The key's id, where only one is given. Default: its RFC 7638 thumbprint.")
@click.option("--issuer", help="Have the keys verify this issuer's tokens only, and no other key verify them.")
@click.option("--out", type=_FILE, help="Write the set to this file in one step, replacing a former one.")
@user_errors
def jwks(
    *, key_files: tuple[Path, ...], rsa_algorithm: str | None, kid: str | None, issuer: str | None, out: Path | None
) -> None:
    """Print the public key set (JWKS) of private keys, public keys or certificates in PEM."""
    if kid is not None and len(key_files) > 1:
        raise UserError("--kid with several keys", "leave --kid out: each key has its thumbprint")
    keys = []
    for path in key_files:
        key = _public_key(path)
        wanted = rsa_algorithm if _algorithm(path, key) in RSA_ALGORITHMS else None
        bound = {"iss": issuer} if issuer else {}
        keys.append({**public_jwk(cast("PublicKey", key), wanted, kid), **bound})
    text = key_set(keys)
    if out is None:
        click.echo(text, nl=False)
    else:
        write(out, text.encode(), secret=False, replace=True)


def _signing_key(path: Path, algorithm: str | None, *, make: bool) -> PrivateKey:
    if not path.exists():
        if not make:
            raise UserError(f"{path}: no such key", "add --new-key to have it made")
        made = new_key(algorithm or "ES256")
        write(path, key_pem(made), secret=True)
        return made
    key = read_private_key(path)
    _algorithm(path, key, algorithm)
    return cast("PrivateKey", key)


def _public_key(path: Path) -> object:
    pem = read(path)
    if b"PRIVATE KEY" in pem:
        return cast("PrivateKey", read_private_key(path)).public_key()
    try:
        return public_key_of(pem)
    except ValueError:
        raise UserError(f"{path}: holds no key in PEM", "give a private key, a public key or a certificate") from None


def _algorithm(path: Path, key: object, wanted: str | None = None) -> str:
    try:
        return algorithm_of(key, wanted)
    except CertsError as error:
        raise UserError(f"{path}: {error}", error.remedy) from None


token.add_command(inspect)
token.add_command(rotate)
