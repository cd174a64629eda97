"""`podgate status`: services, quotas and breakers of a running server."""

import json
import sys

import click

from webhook.core.reporting.status import CONTROLLER
from webhook.offline.output.controller_page import controller_page
from webhook.offline.output.status_page import page
from webhook.offline.status_client import DEFAULT_SERVER, no_services, of_service, read


@click.command()
@click.argument("service", required=False)
@click.option("--server", default=DEFAULT_SERVER, show_default=True, help="URL of the health port (--plain-listen).")
@click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), help="[default: table on a terminal, json elsewhere]"
)
def status(service: str | None, server: str, output: str | None) -> None:
    """Show services, the usage of their quotas, and the state of their breakers.

    If --server is a controller: show whether it leads, and the state of its store and watches.

    Exit code: 0 success, 2 the server cannot be reached, 4 it has no such SERVICE.
    """
    document = read(server)
    is_controller = document.get("role") == CONTROLLER
    if is_controller and service is not None:
        raise no_services(server)
    if service is not None:
        document = of_service(document, service)
    if output == "json" or (output is None and not sys.stdout.isatty()):
        click.echo(json.dumps(document, indent=2))
    else:
        click.echo("\n".join(controller_page(document) if is_controller else page(document)))
