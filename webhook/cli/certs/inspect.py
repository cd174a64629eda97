"""`podgate certs inspect`: names, validity and issuer of certificates in files, as text, JSON or YAML."""

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from certs import Description, describe, read_certificates
from webhook.cli.options.certs_errors import convert_certs_errors
from webhook.cli.options.command_group import format_document, report_option
from webhook.core.plain_text import escape_document


def show(described: list[tuple[Path, Description]], output: str) -> None:
    rows = [{"file": str(path), **_format_times(asdict(description))} for path, description in described]
    text = format_document(rows, output)
    if text is not None:
        click.echo(text)
        return
    for path, description in escape_document(described):
        click.echo(path)
        click.echo(f"  subject      {description.subject or '-'}")
        click.echo(f"  names        {', '.join(description.sans) or '-'}")
        click.echo(f"  issuer       {description.issuer}")
        click.echo(f"  usages       {', '.join(description.usages) or ('CA' if description.is_ca else '-')}")
        click.echo(f"  fingerprint  sha256:{description.fingerprint_sha256}")
        click.echo(f"  valid until  {description.not_after:%Y-%m-%dT%H:%M:%SZ} ({_describe_life(description)})")
        if description.renewal is not None:
            click.echo(f"  renewed from {description.renewal:%Y-%m-%dT%H:%M:%SZ} on, if a rotation manages it")
        click.echo(f"  signed by    {description.verified_by or 'none of the given CAs'}")


def _format_times(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with its times as text."""
    return {key: f"{value:%Y-%m-%dT%H:%M:%SZ}" if isinstance(value, datetime) else value for key, value in row.items()}


def _describe_life(description: Description) -> str:
    if description.is_expired:
        return f"EXPIRED {abs(description.days_left):.1f} days ago"
    if description.is_early:
        return f"NOT YET VALID, from {description.not_before:%Y-%m-%dT%H:%M:%SZ}"
    return f"{description.days_left:.1f} days left"


_FILE = click.Path(path_type=Path)


@click.command()
@click.argument("files", type=_FILE, nargs=-1, required=True)
@click.option("--ca", "cas", type=_FILE, multiple=True, help="A CA to verify against, besides those in FILES.")
@report_option()
@convert_certs_errors
def inspect(*, files: tuple[Path, ...], cas: tuple[Path, ...], output: str) -> None:
    """Show the certificates in FILES: names, expiry, and which of the given CAs signed them."""
    found = [(path, certificate) for path in files for certificate in read_certificates(path)]
    issuers = [certificate for _, certificate in found]
    issuers += [certificate for path in cas for certificate in read_certificates(path)]
    now = datetime.now(UTC)
    show([(path, describe(certificate, issuers, now)) for path, certificate in found], output)
