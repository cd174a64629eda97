"""Output of `podgate certs`: descriptions of certificates as text or JSON."""

import json
from dataclasses import asdict
from pathlib import Path

import click

from certs import Description


def show(described: list[tuple[Path, Description]], output: str) -> None:
    if output == "json":
        rows = [{"file": str(path), **asdict(description)} for path, description in described]
        click.echo(json.dumps(rows, indent=2, default=lambda value: f"{value:%Y-%m-%dT%H:%M:%SZ}"))
        return
    for path, one in described:
        click.echo(path)
        click.echo(f"  subject      {one.subject or '-'}")
        click.echo(f"  names        {', '.join(one.sans) or '-'}")
        click.echo(f"  issuer       {one.issuer}")
        click.echo(f"  usages       {', '.join(one.usages) or ('CA' if one.is_ca else '-')}")
        click.echo(f"  fingerprint  sha256:{one.fingerprint_sha256}")
        click.echo(f"  valid until  {one.not_after:%Y-%m-%dT%H:%M:%SZ} ({_life(one)})")
        if one.renewal is not None:
            click.echo(f"  renewed from {one.renewal:%Y-%m-%dT%H:%M:%SZ} on, if a rotation manages it")
        click.echo(f"  signed by    {one.verified_by or 'none of the given CAs'}")


def _life(one: Description) -> str:
    if one.is_expired:
        return f"EXPIRED {abs(one.days_left):.1f} days ago"
    if one.is_early:
        return f"NOT YET VALID, from {one.not_before:%Y-%m-%dT%H:%M:%SZ}"
    return f"{one.days_left:.1f} days left"
