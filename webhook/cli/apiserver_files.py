"""`podgate apiserver-files`: the files by which kube-apiserver calls Podgate, written and renewed on its node."""

import asyncio
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from webhook.app.node_agent import check_until_signalled, open_credentials
from webhook.core.kubernetes.quantity import Duration
from webhook.errors import UserError
from webhook.node_agent import credential_check
from webhook.node_agent.credential_folder import (
    CONFIGURATION,
    DEFAULT,
    IDENTITIES,
    IDENTITY,
    KUBECONFIG,
    TOKEN,
    CredentialFolder,
)
from webhook.node_agent.credential_renewal import TOKEN_LEFT_MIN_SECONDS, CredentialPlan, look
from webhook.node_agent.kubeconfig import users_of

_US = 1_000_000
_SECOND = "Where the Service has it: what its certificate changes behind. 0: no such port."
_PATH = click.Path(path_type=Path)
_HOST = "podgate.podgate-system.svc"
_EVERY_SECONDS_MAX = 20  # certs.dual_port_rollover has to know when every node has what the Secret has
_TOKEN_SECONDS_MIN = 600  # a TokenRequest for less is refused
_IDENTITY_LEFT_MIN_SECONDS = 300  # kube-apiserver reads a certificate again after so long


@click.command("apiserver-files")
@click.option("--out", type=_PATH, default=DEFAULT, show_default=True, help="The folder, as kube-apiserver sees it.")
@click.option("--webhook", "hosts", multiple=True, metavar="HOST[:PORT]", help=f"Whom it calls.  [default: {_HOST}]")
@click.option("--second-port", type=click.IntRange(0, 65535), default=444, show_default=True, help=_SECOND)
@click.option("--from-secret", "secret", default="podgate-apiserver", show_default=True, help="In podgate-system.")
@click.option(
    "--token", "issuer", type=click.Choice(["cluster", "own"]), default="cluster", show_default=True, help="Its issuer."
)
@click.option("--account", default="kube-apiserver-caller", show_default=True, help="Whose token, of the cluster's.")
@click.option("--audience", default="podgate", show_default=True, help="The aud claim.")
@click.option("--token-lifetime", "lifetime", default="1h", show_default=True, help="Of the cluster's; 10m or more.")
@click.option(
    "--renew-after", metavar="DURATION", help="Ask for a new one when it is this old.  [default: half its life]"
)
@click.option("--every", default="10s", show_default=True, help="How often to look; 20s or less.")
@click.option("--once", is_flag=True, help="Look once, and exit 2 if something is missing afterwards.")
@click.option("--check", is_flag=True, help="Ask nobody: say how long the files are good, exit 1 if one is not.")
@click.option("--kubeconfig", type=_PATH, envvar="KUBECONFIG", help="The cluster. Inside one it is found by itself.")
def apiserver_files(  # noqa: PLR0913 - one argument an option
    *,
    out: Path,
    hosts: tuple[str, ...],
    second_port: int,
    secret: str,
    issuer: str,
    account: str,
    audience: str,
    lifetime: str,
    renew_after: str | None,
    every: str,
    once: bool,
    check: bool,
    kubeconfig: Path | None,
) -> int:
    """Write what kube-apiserver calls Podgate with, and renew it in place, before it runs out.

    \b
    admission-configuration.yaml  for its flag --admission-control-config-file
    kubeconfig.yaml               whom it calls, as whom
    kube-apiserver.pem            certificate and key, from the Secret
    kube-apiserver-2.pem          the same for the Service's second port
    token                         of the cluster's own issuer, or (--token own) from the Secret

    Each file is replaced in one step, for its owner alone. What is bad is not written: what was there stays. A file
    that another hand has put there or changed is left alone.
    """  # noqa: D301 - the backslash-b keeps click from filling these lines
    lifetime_seconds, every_seconds = _seconds("--token-lifetime", lifetime), _seconds("--every", every)
    renew_after_seconds = None if renew_after is None else int(_seconds("--renew-after", renew_after))
    if lifetime_seconds < _TOKEN_SECONDS_MIN:
        raise UserError(f"--token-lifetime {lifetime}: the API server issues none for less than 10m", "write 10m")
    if every_seconds > _EVERY_SECONDS_MAX:
        raise UserError(f"--every {every}: the controller counts on every 20s", "write 20s or less")
    if once and check:
        raise UserError("--once and --check exclude each other", "give one of the two")
    folder = CredentialFolder(out.absolute())
    if check:
        return _check(folder, datetime.now(UTC))
    whose = account if issuer == "cluster" else None
    users = users_of(hosts or (_HOST,), second_port or None)
    plan = CredentialPlan(folder, users, secret, whose, audience, int(lifetime_seconds), renew_after_seconds)
    asyncio.run(_run(plan, kubeconfig, None if once else every_seconds))
    return 0


async def _run(plan: CredentialPlan, kubeconfig: Path | None, every_seconds: float | None) -> None:
    async with open_credentials(kubeconfig) as credentials:
        if every_seconds is not None:
            await check_until_signalled(lambda: look(plan, credentials, datetime.now(UTC)), every_seconds)
            return
        looked = await look(plan, credentials, datetime.now(UTC))
    for line in looked.done:
        click.echo(line)
    if looked.errors:
        raise UserError("\n".join(looked.errors))


def _check(folder: CredentialFolder, now: datetime) -> int:
    rows = list(_rows(folder, now))
    click.echo(json.dumps(rows, indent=2))
    return 0 if all(row["good"] for row in rows) else 1


def _rows(folder: CredentialFolder, now: datetime) -> Iterator[dict[str, Any]]:
    for name in (CONFIGURATION, KUBECONFIG):
        yield {"file": str(folder.path / name), "good": folder.read(name) is not None}
    identities = [name for name in IDENTITIES if name == IDENTITY or folder.read(name) is not None]
    least = {**dict.fromkeys(identities, _IDENTITY_LEFT_MIN_SECONDS), TOKEN: TOKEN_LEFT_MIN_SECONDS}
    for name, left_min_seconds in least.items():
        end = _end(name, folder.read(name) or b"")
        good = end is not None and (end - now).total_seconds() > left_min_seconds
        yield {
            "file": str(folder.path / name),
            "good": good,
            "validUntil": f"{end:%Y-%m-%dT%H:%M:%SZ}" if end else None,
        }


def _end(name: str, content: bytes) -> datetime | None:
    try:
        if name in IDENTITIES:
            return credential_check.expiry_of(content)
        return datetime.fromtimestamp(credential_check.token_of(content.decode("ascii")).expires_at_seconds, UTC)
    except ValueError:
        return None


def _seconds(flag: str, text: str) -> float:
    try:
        return Duration.parse(text).us / _US
    except ValueError as error:
        raise UserError(f"{flag} {text!r}: {error}", "write for example 1h") from None
