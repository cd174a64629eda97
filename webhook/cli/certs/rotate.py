"""`podgate certs rotate`: renewal of a folder's CA and certificates, for cron."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import click

from certs import CA_LIFETIME, LEAF_LIFETIME, CaFolder, Lifetimes, lock_folder
from webhook.cli.options.certs_errors import convert_certs_errors
from webhook.cli.options.command_group import format_document, report_option
from webhook.errors import UserError

_FILE = click.Path(path_type=Path)
_DAYS = click.IntRange(1, 36_500)


@click.command()
@click.option("--out", type=_FILE, required=True, help="The folder that `podgate certs issue` filled.")
@click.option("--days", type=_DAYS, default=LEAF_LIFETIME.days, show_default=True, help="Lifetime of certificates.")
@click.option("--ca-days", type=_DAYS, default=CA_LIFETIME.days, show_default=True, help="Lifetime of a new CA.")
@click.option(
    "--settle-days",
    type=click.IntRange(0),
    default=1,
    show_default=True,
    help="Time between adding a new CA to ca.crt and signing with it.",
)
@click.option("--dry-run", is_flag=True, help="Show what is due, and write nothing.")
@report_option()
@convert_certs_errors
def rotate(*, out: Path, days: int, ca_days: int, settle_days: int, dry_run: bool, output: str) -> None:
    """Renew what is due in a folder: certificates at two thirds of their lifetime, the CA well before it expires.

    \b
    podgate certs rotate --out pki            # once a day, by cron

    A new CA is added to ca.crt beside the old one, and signs nothing for --settle-days: distribute ca.crt to servers
    and clients meanwhile (the webhooks' caBundle, --client-ca). Each file is replaced atomically. The controller does
    all of this in a cluster: podgate controller --certificates own. Exit code: 0, also if nothing is due.
    """  # noqa: D301 - the backslash-b keeps click from filling these lines
    lifetimes = Lifetimes(timedelta(days=ca_days), timedelta(days=days), timedelta(days=settle_days))
    if mistake := lifetimes.find_mistake():
        raise UserError(f"--ca-days {ca_days}: {mistake}", f"write at least {2 * days}")
    with lock_folder(out):
        folder = CaFolder(out, lifetimes, is_dry=dry_run)
        changes = list(folder.rotate(datetime.now(UTC).replace(microsecond=0)))
        foreign = list(folder.list_foreign_leaves())
    rows = [{"file": str(out / change.file), "did": change.text} for change in changes]
    text = format_document({"dryRun": dry_run, "done": rows, "strangers": foreign}, output)
    if text is not None:
        click.echo(text)
        return
    for change in changes:
        click.echo(f"{'would: ' if dry_run else ''}{out / change.file}: {change.text}")
    for name in foreign:
        click.echo(f"{out / name}: signed by no CA of this folder, left alone")
    if not changes:
        click.echo("nothing is due")
