"""`podgate certs issue`: certificates from one CA, as files."""

from datetime import timedelta
from pathlib import Path

import click

from certs import CA_LIFETIME, LEAF_LIFETIME, IssueRequest, refuse_existing
from certs import issue as issue_certificates
from webhook.cli.certs.inspect import show
from webhook.cli.options.certs_errors import convert_certs_errors
from webhook.cli.options.command_group import report_option
from webhook.errors import UserError

_FILE = click.Path(path_type=Path)
_DAYS = click.IntRange(1, 36_500)


@click.command()
@click.option("--out", type=_FILE, required=True, help="Folder for the files; created if it does not exist.")
@click.option("--ca-cert", type=_FILE, help="Sign with this CA. Default: OUT/ca.crt, created on first use.")
@click.option("--ca-key", type=_FILE, help="Its key. Default: OUT/ca.key.")
@click.option("--server", "server", help="Write server.crt and server.key for this DNS name or address.")
@click.option("--san", "sans", multiple=True, help="A further name of the server, dns:NAME or ip:ADDRESS. Repeatable.")
@click.option(
    "--client", "clients", multiple=True, help="Write CN.crt and CN.key for CN or CN,spiffe://ID. Repeatable."
)
@click.option("--days", type=_DAYS, default=LEAF_LIFETIME.days, show_default=True, help="Lifetime of certificates.")
@click.option("--ca-days", type=_DAYS, default=CA_LIFETIME.days, show_default=True, help="Lifetime of a new CA.")
@click.option("--force", is_flag=True, help="Replace existing certificates. A CA is never replaced.")
@report_option()
@convert_certs_errors
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
    """Issue certificates from one CA, which is created in OUT if it does not exist.

    \b
    podgate certs issue --out pki --server podgate.podgate-system.svc \\
        --san ip:127.0.0.1 --client kube-apiserver

    For the DNS name of a Service its shorter and longer forms are added. Keys are readable by their owner only.
    """  # noqa: D301 - the backslash-b keeps click from filling these lines
    if sans and server is None:
        raise UserError("--san without --server", "name the server: --server NAME")
    request = IssueRequest(server, sans, clients, timedelta(days=days), timedelta(days=ca_days))
    if not force:
        remedy = "--force replaces certificates; else move them away, or choose another folder"
        refuse_existing(*request.list_files(out), remedy=remedy)
    if (ca_cert is None) != (ca_key is None):
        raise UserError("--ca-cert and --ca-key go together", "give both, or none to use the CA in --out")
    ca = (ca_cert, ca_key) if ca_cert is not None and ca_key is not None else None
    show(issue_certificates(out, request, ca, replace=force), output)
