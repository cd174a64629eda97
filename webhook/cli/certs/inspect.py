"""`podgate certs inspect`: names, validity and issuer of certificates in files."""

from datetime import UTC, datetime
from pathlib import Path

import click

from certs import describe, read_certificates
from webhook.cli.certs.descriptions import show
from webhook.cli.options.certs_errors import user_errors
from webhook.cli.options.output_formats import report_option

_FILE = click.Path(path_type=Path)


@click.command()
@click.argument("files", type=_FILE, nargs=-1, required=True)
@click.option("--ca", "cas", type=_FILE, multiple=True, help="A CA to verify against, besides those in FILES.")
@report_option()
@user_errors
def inspect(*, files: tuple[Path, ...], cas: tuple[Path, ...], output: str) -> None:
    """Show the certificates in FILES: names, expiry, and which of the given CAs signed them."""
    found = [(path, certificate) for path in files for certificate in read_certificates(path)]
    issuers = [certificate for _, certificate in found]
    issuers += [certificate for path in cas for certificate in read_certificates(path)]
    now = datetime.now(UTC)
    show([(path, describe(certificate, issuers, now)) for path, certificate in found], output)
