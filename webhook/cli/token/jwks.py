"""`podgate token jwks`: the public key set of key files, and the algorithm that each key signs with."""

from pathlib import Path
from typing import cast

import click

from certs import (
    RSA_ALGORITHMS,
    CertsError,
    PrivateKey,
    PublicKey,
    build_jwk,
    choose_algorithm,
    format_key_set,
    parse_public_key,
    read,
    read_private_key,
    write,
)
from webhook.cli.options.certs_errors import convert_certs_errors
from webhook.errors import UserError


def read_public_key(path: Path) -> object:
    """Return the public half of the private key, public key or certificate in a PEM file."""
    pem = read(path)
    if b"PRIVATE KEY" in pem:
        return cast("PrivateKey", read_private_key(path)).public_key()
    try:
        return parse_public_key(pem)
    except ValueError:
        raise UserError(f"{path}: holds no key in PEM", "give a private key, a public key or a certificate") from None


def find_algorithm(path: Path, key: object, wanted: str | None = None) -> str:
    """Return the algorithm of the key in a file; UserError if it is not `wanted`."""
    try:
        return choose_algorithm(key, wanted)
    except CertsError as error:
        raise UserError(f"{path}: {error}", error.remedy) from None


_FILE = click.Path(path_type=Path)


@click.command()
@click.argument("key_files", metavar="KEY...", type=_FILE, nargs=-1, required=True)
@click.option("--rsa-algorithm", type=click.Choice(RSA_ALGORITHMS), help="Algorithm of RSA keys. Default: RS256.")
@click.option("--kid", help="The key's id, if only one is given. Default: its RFC 7638 thumbprint.")
@click.option("--issuer", help="Bind the keys to this issuer: they verify only its tokens, and no other key does.")
@click.option("--out", type=_FILE, help="Write the set to this file atomically, replacing a former one.")
@convert_certs_errors
def jwks(
    *, key_files: tuple[Path, ...], rsa_algorithm: str | None, kid: str | None, issuer: str | None, out: Path | None
) -> None:
    """Print the public key set (JWKS) of private keys, public keys or certificates in PEM."""
    if kid is not None and len(key_files) > 1:
        raise UserError("--kid with several keys", "leave --kid out: each key has its thumbprint")
    keys = []
    for path in key_files:
        key = read_public_key(path)
        wanted = rsa_algorithm if find_algorithm(path, key) in RSA_ALGORITHMS else None
        bound = {"iss": issuer} if issuer else {}
        keys.append({**build_jwk(cast("PublicKey", key), wanted, kid), **bound})
    text = format_key_set(keys)
    if out is None:
        click.echo(text, nl=False)
    else:
        write(out, text.encode(), secret=False, replace=True)
