"""`podgate install`: Podgate in a cluster, in one command that ends with a proof."""

import asyncio
import sys
from pathlib import Path

import click

from webhook.cli.options.cluster_options import ClusterLocation, cluster
from webhook.cli.options.durations import seconds
from webhook.cli.options.install_options import InstallOptions, installation
from webhook.cli.options.install_output import InstallOutput
from webhook.support.input_files import content

_PATH = click.Path(path_type=Path)


@click.command()
@click.option("--policy", type=_PATH, help="Policy to begin with.  [default: the live one, else an example that warns]")
@installation
@click.option("--wait", default="5m", show_default=True, help="Longest time to wait for the servers.")
@click.option("--dry-run", is_flag=True, help="Show what would be created or changed, and change nothing.")
@click.option("--force-conflicts", is_flag=True, help="Take over fields that other field managers own.")
@cluster
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def install(
    *,
    policy: Path | None,
    options: InstallOptions,
    wait: str,
    dry_run: bool,
    force_conflicts: bool,
    where: ClusterLocation,
    output: str,
) -> None:
    """Install Podgate, and prove that the API server calls it.

    \b
    podgate install                                         # one server, with counters in memory
    podgate install --store redis://redis.podgate-system.svc:6379/0
    podgate install --certificates cert-manager             # files: the certificates are yours
    podgate install --reduced                               # for managed control planes: docs/reduced-mode.md
    podgate install --server-url https://127.0.0.1:8443     # the server runs outside the cluster

    Objects are applied server-side, in order. Run it again at any time: what is as it should be stays unchanged, and a
    live policy is never replaced. It ends with a dry run that only a called Podgate answers. If that fails, it shows
    why, in the API server's words, and what remains to be done on the control plane nodes.

    Exit code: 0 installed and called, 1 the API server does not call Podgate or the servers are not ready, 2 bad input,
    or a cluster in which it must not be installed.
    """  # noqa: D301 - the backslash-b keeps click from filling these lines
    from webhook.app.operations.installer import InstallTerms  # noqa: PLC0415  --help needs no client

    terms = InstallTerms(dry_run, force_conflicts, seconds("--wait", wait))
    shown = InstallOutput(is_json=output == "json", is_dry=dry_run)
    text = content(policy, "give the path of a policy document").decode() if policy is not None else None
    proof = asyncio.run(options.install(where, text, terms, shown))
    if proof is None:
        shown.finish(dryRun=True)
        return
    shown.finish(called=proof.is_called, proof=proof.text, remedy=proof.remedy)
    if not proof.is_called:
        click.echo(f"error: {proof.text}: {proof.remedy}", err=True)
        sys.exit(1)
    shown.line(f"proven: the API server calls Podgate: {proof.text}. For more, run podgate check")
