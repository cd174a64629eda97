"""`podgate certs`: a CA and its leaves as files, and what certificates say of themselves."""

import asyncio
import json
import os
import re
import sys
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

import click

from certs.authority import CA_LIFETIME, LEAF_LIFETIME, Authority, KeyPair, san, server_names, uri
from certs.errors import CertsError
from certs.files import folder_lock, read_certificates, read_key_pair, refuse_existing, write_key_pair
from certs.folder import CaFolder
from certs.inspection import Description, describe
from certs.lifetimes import Lifetimes
from webhook import settings
from webhook.errors import UserError

_P = ParamSpec("_P")
_R = TypeVar("_R")
_FILE = click.Path(path_type=Path)
_DAYS = click.IntRange(1, 36_500)


def user_errors(command: Callable[_P, _R]) -> Callable[_P, _R]:
    """Say what the certificates' package objects to as the command line says everything."""

    @wraps(command)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return command(*args, **kwargs)
        except CertsError as error:
            raise UserError(str(error), error.remedy) from None

    return run


@click.group()
def certs() -> None:
    """Make a CA, serving and client certificates, and look into them."""


@certs.command()
@click.option("--out", type=_FILE, required=True, help="Folder for the files; made if it is not there.")
@click.option("--ca-cert", type=_FILE, help="Sign with this CA. Default: OUT/ca.crt, made on first use.")
@click.option("--ca-key", type=_FILE, help="Its key. Default: OUT/ca.key.")
@click.option("--server", "server", help="Make server.crt and server.key for this DNS name or address.")
@click.option("--san", "sans", multiple=True, help="A further name of the server, dns:NAME or ip:ADDRESS. Repeatable.")
@click.option("--client", "clients", multiple=True, help="Make CN.crt and CN.key, CN or CN,spiffe://ID. Repeatable.")
@click.option("--days", type=_DAYS, default=LEAF_LIFETIME.days, show_default=True, help="Lifetime of leaves.")
@click.option("--ca-days", type=_DAYS, default=CA_LIFETIME.days, show_default=True, help="Lifetime of a new CA.")
@click.option("--force", is_flag=True, help="Replace leaves that are there already. A CA is never replaced.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@user_errors
def issue(  # noqa: PLR0913 - one argument an option
    *,
    out: Path,
    ca_cert: Path | None,
    ca_key: Path | None,
    server: str | None,
    sans: tuple[str, ...],
    clients: tuple[str, ...],
    days: int,
    ca_days: int,
    force: bool,
    output: str,
) -> None:
    """Issue certificates from one CA, which is made in OUT if it is not there.

    \b
    podgate certs issue --out pki --server podgate.podgate-system.svc \\
        --san ip:127.0.0.1 --client kube-apiserver

    For the name of a Service its shorter and longer forms are added. Keys are readable by you alone.
    """  # noqa: D301 - the backslash-b keeps click from filling these lines
    if sans and server is None:
        raise UserError("--san without --server", "name the server: --server NAME")
    lifetime = timedelta(days=days)
    leaves = [(name, uri(named) if named else None) for name, _, named in (one.partition(",") for one in clients)]
    stems = (["server"] if server else []) + [_stem(name) for name, _ in leaves]
    if len(set(stems)) != len(stems) or "ca" in stems:
        raise UserError(f"two of the files would have one name: {', '.join(stems)}", "issue them into separate folders")
    if not force:
        paths = (out / f"{stem}.{kind}" for stem in stems for kind in ("crt", "key"))
        refuse_existing(*paths, remedy="--force replaces leaves; else move them away, or choose another folder")
    names = tuple(dict.fromkeys([*server_names(server), *map(san, sans)])) if server else ()
    authority, made = _authority(out, ca_cert, ca_key, timedelta(days=ca_days))
    issued = [authority.issue_server(server, names, lifetime)] if server else []
    issued += [authority.issue_client(name, named, lifetime) for name, named in leaves]
    if made:
        write_key_pair(authority.key_pair, out / "ca.crt", out / "ca.key")
    for stem, leaf in zip(stems, issued, strict=True):
        write_key_pair(leaf, out / f"{stem}.crt", out / f"{stem}.key", replace=force)
    written = ([("ca", authority.key_pair)] if made else []) + list(zip(stems, issued, strict=True))
    _show([(out / f"{stem}.crt", _described(leaf, authority)) for stem, leaf in written], output)


@certs.command()
@click.option("--out", type=_FILE, required=True, help="The folder that `podgate certs issue` filled.")
@click.option("--days", type=_DAYS, default=LEAF_LIFETIME.days, show_default=True, help="Lifetime of leaves.")
@click.option("--ca-days", type=_DAYS, default=CA_LIFETIME.days, show_default=True, help="Lifetime of a new CA.")
@click.option(
    "--settle-days", type=click.IntRange(0), default=1, show_default=True, help="From a new CA in ca.crt to its leaves."
)
@click.option("--dry-run", is_flag=True, help="Say what would be done.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@user_errors
def rotate(*, out: Path, days: int, ca_days: int, settle_days: int, dry_run: bool, output: str) -> None:
    """Renew what is due in a folder: leaves at two thirds of their life, the CA well before it ends.

    \b
    podgate certs rotate --out pki            # once a day, by cron

    A new CA stands in ca.crt beside the old one, and signs nothing for --settle-days: give ca.crt to both sides
    meanwhile (the webhooks' caBundle, --client-ca). Files are replaced one by one, each whole. With the controller
    none of this is needed: podgate controller --certificates own. Exit code: 0 also where nothing is due.
    """  # noqa: D301 - the backslash-b keeps click from filling these lines
    lifetimes = Lifetimes(timedelta(days=ca_days), timedelta(days=days), timedelta(days=settle_days))
    if mistake := lifetimes.mistake():
        raise UserError(f"--ca-days {ca_days}: {mistake}", f"write at least {2 * days}")
    with folder_lock(out):
        folder = CaFolder(out, lifetimes, is_dry=dry_run)
        done = list(folder.rotate(datetime.now(UTC).replace(microsecond=0)))
        strangers = list(folder.foreign_leaves())
    if output == "json":
        rows = [{"file": str(out / did.file), "did": did.text} for did in done]
        click.echo(json.dumps({"dryRun": dry_run, "done": rows, "strangers": strangers}, indent=2))
        return
    for did in done:
        click.echo(f"{'would: ' if dry_run else ''}{out / did.file}: {did.text}")
    for name in strangers:
        click.echo(f"{out / name}: signed by no CA of this folder, left alone")
    if not done:
        click.echo("nothing is due")


@certs.command()
@click.option("--kubeconfig", help="Of whoever may write Secrets in podgate-system. Within a Pod, its account.")
@user_errors
def bootstrap(*, kubeconfig: str | None) -> None:
    """Make in a cluster what is missing for a first start: CAs, serving and client certificate, as Secrets.

    \b
    podgate certs bootstrap --kubeconfig ~/.kube/config

    It does once what `podgate controller --certificates own` goes on doing, by the same rules; PODGATE_SERVING_LIFETIME
    and the like count here too. What is good stays; what is not labelled as ours is left alone. Exit code: 0, 1 where
    something could not be done.
    """  # noqa: D301 - the backslash-b keeps click from filling these lines
    if not (kubeconfig or os.environ.get(settings.variable_of("kubeconfig")) or settings.in_cluster(os.environ)):
        raise UserError("--kubeconfig: missing, and this is no Pod with a service account's token", "name the cluster")
    flags = {"kubeconfig": kubeconfig, "certificates": str(settings.Certificates.OWN)}
    parsed = settings.parse_as(settings.ControllerSettings, flags, os.environ)
    from webhook.app.certificates import bootstrap as begin  # noqa: PLC0415 - its libraries take long to load

    found = asyncio.run(begin(parsed))
    for line in found.done:
        click.echo(line)
    for line in found.errors:
        click.echo(f"error: {line}", err=True)
    if found.errors:
        sys.exit(1)
    if not found.done:
        click.echo("all is there")


@certs.command()
@click.argument("files", type=_FILE, nargs=-1, required=True)
@click.option("--ca", "cas", type=_FILE, multiple=True, help="A CA to verify against, besides those in FILES.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@user_errors
def inspect(*, files: tuple[Path, ...], cas: tuple[Path, ...], output: str) -> None:
    """Say what the certificates in FILES are, how long they live, and which CA at hand has signed them."""
    found = [(path, certificate) for path in files for certificate in read_certificates(path)]
    issuers = [certificate for _, certificate in found]
    issuers += [certificate for path in cas for certificate in read_certificates(path)]
    now = datetime.now(UTC)
    _show([(path, describe(certificate, issuers, now)) for path, certificate in found], output)


def _authority(out: Path, ca_cert: Path | None, ca_key: Path | None, lifetime: timedelta) -> tuple[Authority, bool]:
    """Return the authority, and whether it has just been made."""
    if (ca_cert is None) != (ca_key is None):
        raise UserError("--ca-cert and --ca-key go together", "give both, or none to use the CA in --out")
    certificate, key = ca_cert or out / "ca.crt", ca_key or out / "ca.key"
    if ca_cert is None and not certificate.exists() and not key.exists():
        return Authority.create(lifetime=lifetime), True
    return Authority.of(read_key_pair(certificate, key)), False


def _stem(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "_", name).lstrip(".") or "_"


def _described(leaf: KeyPair, authority: Authority) -> Description:
    return describe(leaf.certificate, [authority.key_pair.certificate], datetime.now(UTC))


def _show(described: list[tuple[Path, Description]], output: str) -> None:
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
            click.echo(f"  renewed from {one.renewal:%Y-%m-%dT%H:%M:%SZ} on, where a rotation keeps it")
        click.echo(f"  signed by    {one.verified_by or 'none of the CAs at hand'}")


def _life(one: Description) -> str:
    if one.is_expired:
        return f"EXPIRED {abs(one.days_left):.1f} days ago"
    if one.is_early:
        return f"NOT YET VALID, from {one.not_before:%Y-%m-%dT%H:%M:%SZ}"
    return f"{one.days_left:.1f} days left"
