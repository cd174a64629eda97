"""`podgate token jwks`: the public key set of key files."""

from pathlib import Path
from typing import cast

import click

from certs import RSA_ALGORITHMS, PublicKey, key_set, public_jwk, write
from webhook.cli.options.certs_errors import user_errors
from webhook.cli.token.keys import algorithm_of_file, read_public_key
from webhook.errors import UserError

_FILE = click.Path(path_type=Path)


@click.command()
@click.argument("key_files", metavar="KEY...", type=_FILE, nargs=-1, required=True)
@click.option("--rsa-algorithm", type=click.Choice(RSA_ALGORITHMS), help="Algorithm of RSA keys. Default: RS256.")
@click.option("--kid", help="The key's id, if only one is given. Default: its RFC 7638 thumbprint.")
@click.option("--issuer", help="Bind the keys to this issuer: they verify only its tokens, and no other key does.")
@click.option("--out", type=_FILE, help="Write the set to this file atomically, replacing a former one.")
@user_errors
def jwks(
    *, key_files: tuple[Path, ...], rsa_algorithm: str | None, kid: str | None, issuer: str | None, out: Path | None
) -> None:
    """Print the public key set (JWKS) of private keys, public keys or certificates in PEM."""
    if kid is not None and len(key_files) > 1:
        raise UserError("--kid with several keys", "leave --kid out: each key has its thumbprint")
    keys = []
    for path in key_files:
        key = read_public_key(path)
        wanted = rsa_algorithm if algorithm_of_file(path, key) in RSA_ALGORITHMS else None
        bound = {"iss": issuer} if issuer else {}
        keys.append({**public_jwk(cast("PublicKey", key), wanted, kid), **bound})
    text = key_set(keys)
    if out is None:
        click.echo(text, nl=False)
    else:
        write(out, text.encode(), secret=False, replace=True)
