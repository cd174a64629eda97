"""`podgate certs bootstrap`: the CAs and certificates that a first start in a cluster needs."""

import asyncio
import os
import sys

import click

from webhook import settings
from webhook.cli.options.certs_errors import convert_certs_errors
from webhook.cli.options.cluster_options import CONTEXT
from webhook.errors import UserError


@click.command()
@click.option("--kubeconfig", help="Kubeconfig with rights to write Secrets. Default in a Pod: its service account.")
@click.option("--context", metavar="NAME", help=CONTEXT)
@convert_certs_errors
def bootstrap(*, kubeconfig: str | None, context: str | None) -> None:
    """Create what a first start in a cluster needs: CAs, serving and client certificate, as Secrets.

    \b
    podgate certs bootstrap --kubeconfig ~/.kube/config

    This does once what `podgate controller --certificates own` does continuously; PODGATE_SERVING_LIFETIME and the
    like apply here too. Valid Secrets stay; Secrets without Podgate's label are left alone. Exit code: 0, 1 if
    something could not be done.
    """  # noqa: D301 - the backslash-b keeps click from filling these lines
    if not (kubeconfig or os.environ.get(settings.name_variable("kubeconfig")) or settings.is_in_cluster(os.environ)):
        raise UserError("--kubeconfig: missing, and this is no Pod with a service account's token", "name the cluster")
    flags = {"kubeconfig": kubeconfig, "context": context, "certificates": str(settings.Certificates.OWN)}
    parsed = settings.parse_as(settings.ControllerSettings, flags, os.environ)
    from webhook.app.certificates import bootstrap as bootstrap_cluster  # noqa: PLC0415 - its libraries load slowly

    found = asyncio.run(bootstrap_cluster(parsed))
    for line in found.done:
        click.echo(line)
    for line in found.errors:
        click.echo(f"error: {line}", err=True)
    if found.errors:
        sys.exit(1)
    if not found.done:
        click.echo("nothing to do: everything exists")
