"""`podgate token rotate`: renewal of an issuer's keys and token in a folder, for cron."""

import time
from pathlib import Path

import click

from certs import Issuer, TokenFolder
from webhook.cli.options.certs_errors import convert_certs_errors
from webhook.cli.options.durations import parse_whole_seconds
from webhook.errors import UserError

_FOLDER = click.Path(path_type=Path)


@click.command()
@click.option("--out", type=_FOLDER, required=True, help="The issuer's folder; created if it does not exist.")
@click.option("--issuer", required=True, help="The iss claim.")
@click.option("--audience", required=True, help="The aud claim.")
@click.option("--subject", required=True, help="The sub claim.")
@click.option("--client-id", help="The client_id claim.")
@click.option("--expires-in", default="1h", show_default=True, help="Lifetime of a token, such as 1h.")
@click.option("--key-lifetime", default="720h", show_default=True, help="Time for which a key signs tokens.")
@click.option("--dry-run", is_flag=True, help="Show what is due, and write nothing.")
@convert_certs_errors
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
    """Renew what is due: the token after a tenth of its lifetime, the key at the end of its own.

    \b
    podgate token rotate --out issuer --issuer https://podgate.podgate-system.svc \\
        --audience podgate --subject kube-apiserver --client-id kube-apiserver

    Run it at least ten times per token lifetime. OUT/token is for the caller, OUT/jwks.json for the servers: a new key
    is added to it before it signs, and removed when the last token that it signed has expired. Keep OUT/keys.json
    secret.
    """  # noqa: D301 - the backslash-b keeps click from filling these lines
    lifetimes = parse_whole_seconds("--expires-in", expires_in), parse_whole_seconds("--key-lifetime", key_lifetime)
    claims = Issuer(issuer, audience, subject, client_id, *lifetimes)
    if mistake := claims.find_mistake():
        raise UserError(f"--key-lifetime {key_lifetime}: {mistake}", "write a longer one")
    for step in TokenFolder(out, is_dry=dry_run).rotate(claims, int(time.time())):
        click.echo(f"due: {step}" if dry_run else step)
