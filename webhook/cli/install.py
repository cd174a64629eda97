"""`podgate install`: Podgate in a cluster, in one command that ends with a proof."""

import asyncio
import shlex
import sys
from importlib.metadata import version
from pathlib import Path

import click

from webhook.cli.options.cluster_options import ClusterLocation, cluster
from webhook.cli.options.durations import seconds
from webhook.cli.options.install_output import InstallOutput
from webhook.cli.options.urls import base_url
from webhook.core.installation.plan import InstallPlan, outside
from webhook.core.installation.record import InstallationRecord
from webhook.core.webhook_configurations import ClientConfig
from webhook.support.input_files import content

_PATH = click.Path(path_type=Path)
_ADMISSION_PORT, _PLAIN_PORT = 8443, 8081


@click.command()
@click.option("--policy", type=_PATH, help="Policy to begin with.  [default: the live one, else an example that warns]")
@click.option("--server-url", metavar="https://HOST:PORT", required=True, help="Server outside the cluster.")
@click.option("--status-url", metavar="http://HOST:PORT", help="Its plain port.  [default: the same host, port 8081]")
@click.option("--pki", type=_PATH, default="pki", show_default=True, help="Folder of keys; what is missing is issued.")
@click.option("--wait", default="5m", show_default=True, help="Longest time to wait for the server.")
@click.option("--dry-run", is_flag=True, help="Show what would be created or changed, and change nothing.")
@click.option("--force-conflicts", is_flag=True, help="Take over fields that other field managers own.")
@cluster
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def install(  # noqa: PLR0913  one argument an option
    *,
    policy: Path | None,
    server_url: str,
    status_url: str | None,
    pki: Path,
    wait: str,
    dry_run: bool,
    force_conflicts: bool,
    where: ClusterLocation,
    output: str,
) -> None:
    """Install Podgate, and prove that the API server calls it.

    \b
    podgate install --server-url https://127.0.0.1:8443     # the server runs outside the cluster
    podgate serve --pki pki                                 # in another terminal, when install waits for it

    Objects are applied server-side, in order. Run it again at any time: what is as it should be stays unchanged, and a
    live policy is never replaced.

    Exit code: 0 installed and called, 1 the API server does not call Podgate or the server is not ready, 2 bad input,
    or a cluster in which it must not be installed.
    """  # noqa: D301 - the backslash-b keeps click from filling these lines
    from webhook.app.operations import outside_server, pki_folder, shipped_manifests  # noqa: PLC0415  load slowly
    from webhook.app.operations.installer import InstallTerms  # noqa: PLC0415  as above
    from webhook.core.installation.kustomization import objects  # noqa: PLC0415  as above

    terms = InstallTerms(dry_run, force_conflicts, seconds("--wait", wait))
    shown = InstallOutput(is_json=output == "json", is_dry=dry_run)
    address = base_url("--server-url", server_url)
    host, port = address.hostname or "", address.port or 443
    plain_url = (status_url or f"http://{_bracketed(host)}:{_PLAIN_PORT}").rstrip("/")
    plain_port = base_url("--status-url", plain_url, "http").port or 80
    text = content(policy, "give the path of a policy document").decode() if policy is not None else None
    record = InstallationRecord(version("podgate"), "memory", "files", server_url.rstrip("/"), plain_url)
    documents = outside(objects(shipped_manifests.manifest_files(), "."))
    plan = InstallPlan(record, documents, text or shipped_manifests.example_policy(), policy is not None)
    for file in pki_folder.issue_missing(pki, host, is_dry=dry_run):
        shown.on_object(file, "issued")
    server = outside_server.OutsideServer(
        ClientConfig(server_url, pki_folder.ca_bundle(pki)), plain_url, _serve_command(pki, port, plain_port)
    )
    installation = outside_server.install_outside(where.kubeconfig, where.context, plan, server, terms, shown)
    proof = asyncio.run(installation)
    if proof is None:
        shown.finish(dryRun=True)
        return
    shown.finish(called=proof.is_called, proof=proof.text, remedy=proof.remedy)
    if not proof.is_called:
        click.echo(f"error: {proof.text}: {proof.remedy}", err=True)
        sys.exit(1)
    shown.line(f"proven: the API server calls Podgate: {proof.text}")


def _serve_command(pki: Path, port: int, plain_port: int) -> str:
    """Return the command that starts the server, without options that have their default."""
    options = [f"--listen 0.0.0.0:{port}"] if port != _ADMISSION_PORT else []
    options += [f"--plain-listen 0.0.0.0:{plain_port}"] if plain_port != _PLAIN_PORT else []
    return " ".join(("podgate serve --pki", shlex.quote(str(pki)), *options))


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
