"""`podgate uninstall`: everything of Podgate out of a cluster, the webhooks first."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from webhook.cli.options.cluster_options import kubeconfig_options
from webhook.cli.options.command_group import report_option
from webhook.cli.options.durations import parse_seconds
from webhook.cli.options.install_output import InstallOutput
from webhook.core.installation.call_remedies import FLAG, FOLDER
from webhook.core.installation.record import SCHEDULER
from webhook.core.installation.removal import PODS_LEFT, UNSCHEDULED
from webhook.support.kubeconfig import Kubeconfig

if TYPE_CHECKING:
    from webhook.operations.uninstaller import Leftovers

_FLAG_FIRST = (
    f"on each control plane node: remove {FLAG} from kube-apiserver first, wait until it has restarted, and only then"
    f" delete {FOLDER}: with the flag but without its files kube-apiserver does not start"
)


@click.command()
@click.option("--dry-run", is_flag=True, help="Show what would be deleted, and delete nothing.")
@click.option("--keep-policy", is_flag=True, help="Keep the namespace with the ConfigMaps of policy and overrides.")
@click.option(
    "--keep-namespace", is_flag=True, help="Keep the namespace, and the objects in it that are not Podgate's."
)
@click.option(
    "--redis",
    metavar="URL",
    help="Delete Podgate's keys in this Redis too. Servers outside the cluster write new ones: stop them first.",
)
@click.option("--redis-password-file", type=click.Path(path_type=Path), help="File with the password for --redis.")
@click.option("--cluster", "name", default="default", show_default=True, help="With --redis: this cluster's --cluster.")
@click.option("--wait", default="5m", show_default=True, help="Longest time to wait until objects are gone.")
@kubeconfig_options("where")
@report_option()
def uninstall(  # noqa: PLR0913  one argument an option
    *,
    dry_run: bool,
    keep_policy: bool,
    keep_namespace: bool,
    redis: str | None,
    redis_password_file: Path | None,
    name: str,
    wait: str,
    where: Kubeconfig,
    output: str,
) -> None:
    """Remove Podgate from a cluster, however it was installed.

    \b
    podgate uninstall --dry-run      # what would be deleted
    podgate uninstall

    The webhooks are deleted first, so that no Pod is denied meanwhile, even if the server is gone and failureMode is
    Closed. Waiting Pods are released last. Stop a server outside the cluster afterwards. If nothing is left to delete,
    nothing is changed.

    Exit code: 0 nothing is left, 2 something could not be deleted: the message names it.
    """  # noqa: D301 - the backslash-b keeps click from filling these lines
    from webhook.operations.uninstaller import UninstallTerms, delete_keys, uninstall  # noqa: PLC0415  loads slowly

    terms = UninstallTerms(dry_run, keep_namespace, keep_policy, parse_seconds("--wait", wait))
    shown = InstallOutput(output, is_dry=dry_run)
    left = asyncio.run(uninstall(where, terms, shown))
    keys = asyncio.run(delete_keys(redis, name, redis_password_file)) if redis is not None and not dry_run else None
    if redis is not None:
        counted, suffix = ("", " (dry run)") if keys is None else (f"{keys} ", "")
        shown.print_line(f"{counted}keys of cluster {name!r} deleted in Redis{suffix}")
    _print_leftovers(shown, left, is_dry=dry_run)
    if shown.is_empty:
        shown.print_line("nothing of Podgate is in this cluster")
    shown.finish(
        pods=left.pods,
        released=left.released,
        unscheduled=left.unscheduled,
        flaggedNodes=left.flagged_nodes,
        redisKeys=keys,
    )


def _print_leftovers(shown: InstallOutput, left: "Leftovers", *, is_dry: bool) -> None:
    """Print what the user must still do by hand."""
    if not shown.is_empty and left.flagged_nodes:
        shown.print_line(
            f"kube-apiserver on {', '.join(left.flagged_nodes)} still reads Podgate's files: {_FLAG_FIRST}"
        )
    elif not shown.is_empty:
        shown.print_line(f"if kube-apiserver has {FLAG} for Podgate: {_FLAG_FIRST}")
    if left.released:
        shown.print_line(f"{left.released} waiting Pods released{' (dry run)' if is_dry else ''}")
    if left.unscheduled and not shown.is_empty:
        shown.print_line(
            f"{left.unscheduled} Pods wait for {SCHEDULER}, which no longer runs. To have them created again:"
        )
        shown.print_line(f"  {UNSCHEDULED}")
    if left.server_url:
        shown.print_line(f"stop the server at {left.server_url}: nothing calls it any more")
    if left.pods:
        shown.print_line(
            f"{left.pods} Pods have Podgate's label and annotation, which no longer have any effect. To remove them:"
        )
        for command in PODS_LEFT:
            shown.print_line(f"  {command}")
