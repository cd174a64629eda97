"""`podgate apiserver-files`: kube-apiserver's credentials for Podgate, written and renewed on its node."""

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path

import click

from webhook.app.node_agent import check_until_signalled, open_credentials
from webhook.cli.options.cluster_options import kubeconfig_options
from webhook.cli.options.durations import parse_seconds
from webhook.errors import UserError
from webhook.node_agent.credential_folder import (
    DEFAULT,
    CredentialFolder,
    find_users,
)
from webhook.node_agent.credential_renewal import CredentialPlan, list_file_status, renew
from webhook.support.kubeconfig import Kubeconfig

_SECOND = "Second port of the Service, for the rollover of certificates. 0: none."
_PATH = click.Path(path_type=Path)
_HOST = "podgate.podgate-system.svc"
_EVERY_SECONDS_MAX = 20  # certs.dual_port_rollover assumes that every node has read the Secret by then
_TOKEN_SECONDS_MIN = 600  # the API server rejects a TokenRequest for less


@click.command("apiserver-files")
@click.option(
    "--out", type=_PATH, default=DEFAULT, show_default=True, help="Folder of the files, as seen by kube-apiserver."
)
@click.option("--webhook", "hosts", multiple=True, metavar="HOST[:PORT]", help=f"Webhook host.  [default: {_HOST}]")
@click.option("--second-port", type=click.IntRange(0, 65535), default=444, show_default=True, help=_SECOND)
@click.option(
    "--from-secret", "secret", default="podgate-apiserver", show_default=True, help="Secret in podgate-system."
)
@click.option(
    "--token",
    "issuer",
    type=click.Choice(["cluster", "own"]),
    default="cluster",
    show_default=True,
    help="Issuer of the token.",
)
@click.option(
    "--account", default="kube-apiserver-caller", show_default=True, help="Service account of a cluster token."
)
@click.option("--audience", default="podgate", show_default=True, help="aud claim of the token.")
@click.option(
    "--token-lifetime", "lifetime", default="1h", show_default=True, help="Lifetime of a cluster token, 10m or more."
)
@click.option(
    "--renew-after", metavar="DURATION", help="Age at which the token is renewed.  [default: half its lifetime]"
)
@click.option("--every", default="10s", show_default=True, help="Interval of the checks; 20s or less.")
@click.option("--once", is_flag=True, help="Renew once; exit 2 if something is missing afterwards.")
@click.option("--check", is_flag=True, help="Only show how long the files are valid; exit 1 if one is not.")
@kubeconfig_options(is_optional=True)
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
    kubeconfig: Kubeconfig | None,
) -> int:
    """Write kube-apiserver's credentials for Podgate, and renew them in place before they expire.

    \b
    admission-configuration.yaml  for its flag --admission-control-config-file
    kubeconfig.yaml               hosts and credentials
    kube-apiserver.pem            certificate and key, from the Secret
    kube-apiserver-2.pem          the same for the Service's second port
    token                         of the cluster's issuer, or (--token own) from the Secret

    Each file is replaced atomically, and is readable by its owner only. Invalid credentials are not written. A file
    that was created or changed by others is left alone.
    """  # noqa: D301 - the backslash-b keeps click from filling these lines
    lifetime_seconds, every_seconds = parse_seconds("--token-lifetime", lifetime), parse_seconds("--every", every)
    renew_after_seconds = None if renew_after is None else int(parse_seconds("--renew-after", renew_after))
    if lifetime_seconds < _TOKEN_SECONDS_MIN:
        raise UserError(f"--token-lifetime {lifetime}: the API server issues no token for less than 10m", "write 10m")
    if every_seconds > _EVERY_SECONDS_MAX:
        raise UserError(f"--every {every}: the controller relies on 20s or less", "write 20s or less")
    if once and check:
        raise UserError("--once and --check exclude each other", "give one of the two")
    folder = CredentialFolder(out.absolute())
    if check:
        rows = list(list_file_status(folder, datetime.now(UTC)))
        click.echo(json.dumps(rows, indent=2))
        return 0 if all(row["good"] for row in rows) else 1
    token_account = account if issuer == "cluster" else None
    users = find_users(hosts or (_HOST,), second_port or None)
    plan = CredentialPlan(folder, users, secret, token_account, audience, int(lifetime_seconds), renew_after_seconds)
    asyncio.run(_run(plan, kubeconfig, None if once else every_seconds))
    return 0


async def _run(plan: CredentialPlan, kubeconfig: Kubeconfig | None, every_seconds: float | None) -> None:
    async with open_credentials(kubeconfig) as credentials:
        if every_seconds is not None:
            await check_until_signalled(lambda: renew(plan, credentials, datetime.now(UTC)), every_seconds)
            return
        result = await renew(plan, credentials, datetime.now(UTC))
    for line in result.done:
        click.echo(line)
    if result.errors:
        raise UserError("\n".join(result.errors))
