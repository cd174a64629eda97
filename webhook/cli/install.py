"""`podgate install`: Podgate in a cluster, in one command that ends with a proof."""

import asyncio
import sys
from pathlib import Path

import click

from webhook.cli.options.cluster_options import kubeconfig_options
from webhook.cli.options.command_group import report_option
from webhook.cli.options.durations import parse_seconds
from webhook.cli.options.install_options import InstallOptions, installation_options
from webhook.cli.options.install_output import InstallOutput
from webhook.core.plain_text import escape_line
from webhook.errors import UserError
from webhook.support.input_files import read_content
from webhook.support.kubeconfig import Kubeconfig

_PATH = click.Path(path_type=Path)


@click.command()
@click.option("--policy", type=_PATH, help="Policy to begin with.  [default: the live one, else an example that warns]")
@installation_options
@click.option("--wait", default="5m", show_default=True, help="Longest time to wait for the servers.")
@click.option("--dry-run", is_flag=True, help="Show what would be created or changed, and change nothing.")
@click.option(
    "--force-conflicts", is_flag=True, help="Take over fields of other managers, and objects installed by hand."
)
@kubeconfig_options("where")
@report_option()
def install(
    *,
    policy: Path | None,
    options: InstallOptions,
    wait: str,
    dry_run: bool,
    force_conflicts: bool,
    where: Kubeconfig,
    output: str,
) -> None:
    """Install Podgate, and prove that the API server calls it.

    \b
    podgate install                                         # one server, with counters in memory
    podgate install --store redis://redis.podgate-system.svc:6379/0
    podgate install --certificates cert-manager             # files: the certificates are yours
    podgate install --reduced                               # for managed control planes: docs/reduced-mode.md
    podgate install --with-scheduler                        # and load-aware scheduling: docs/scheduling.md
    podgate install --server-url https://127.0.0.1:8443     # the server runs outside the cluster

    All objects are tried in a dry run first: if one cannot be applied, nothing is changed. Run it again at any time:
    correct objects stay unchanged, and a live policy is never replaced. Servers that ran before, and are not ready in
    time after the change, are changed back. The installation ends with a dry run that proves that the API server calls
    Podgate. If that fails, it shows why, in the API server's words, and what remains to be done on the control plane
    nodes. With the scheduler it also creates a Pod which the extender refuses on all nodes, and deletes it.

    If objects were installed by hand, it stops and names the command that takes them over. Objects that Helm, Argo CD
    or Flux manage are left to them.

    Exit code: 0 installed and called, 1 the API server does not call Podgate, the scheduler does not ask the extender,
    or the servers are not ready, 2 bad input, or a cluster in which it must not be installed.
    """  # noqa: D301 - the backslash-b keeps click from filling these lines
    from webhook.operations.installer import InstallTerms  # noqa: PLC0415  --help needs no client

    terms = InstallTerms(dry_run, force_conflicts, parse_seconds("--wait", wait))
    shown = InstallOutput(output, is_dry=dry_run)
    text = read_content(policy, "give the path of a policy document").decode() if policy is not None else None
    try:
        proofs = asyncio.run(options.install(where, text, terms, shown))
    except UserError as error:
        if not shown.changed or dry_run:
            raise
        done = f"before that these were created or changed: {', '.join(shown.changed)}"
        raise UserError(f"{error}; {done}", error.remedy or "run this command again, which continues") from None
    if proofs is None:
        shown.finish(dryRun=True)
        return
    called, asked = proofs.api_server, proofs.scheduler
    second = {} if asked is None else {"asked": asked.is_called, "schedulerProof": asked.text}
    shown.finish(called=called.is_called, proof=called.text, remedy=called.remedy, **second)
    if called.is_called:
        shown.print_line(f"proven: the API server calls Podgate: {called.text}. For more, run podgate check")
    if asked is not None and asked.is_called:
        shown.print_line(f"proven: podgate-scheduler asks the extender: {asked.text}")
    failed = [proof for proof in (called, asked) if proof is not None and not proof.is_called]
    for proof in failed:
        click.echo(escape_line(f"error: {proof.text}: {proof.remedy}"), err=True)
    if failed:
        sys.exit(1)
