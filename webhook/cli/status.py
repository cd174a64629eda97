"""`podgate status`: services, quotas and breakers of a running server."""

from typing import Any

import click

from webhook.cli.options.command_group import format_document, output_option
from webhook.cli.options.server_options import (
    complete_service_names,
    require_server,
    server_options,
    show_status,
    watch_option,
)
from webhook.commands.clients.status_client import select_service
from webhook.commands.pages.status_page import format_controller, format_status
from webhook.core.reporting.status import CONTROLLER
from webhook.operations.server_discovery import ServerLocation


@click.command()
@click.argument("service", required=False, shell_complete=complete_service_names)
@server_options
@output_option()
@watch_option
def status(*, service: str | None, where: ServerLocation, output: str | None, watch: bool) -> None:
    """Show services, the usage of their quotas, and the state of their breakers.

    Without --server, the server is found by the kubeconfig: the one that `podgate install` recorded, or the Service
    podgate-metrics, reached through the API server; otherwise on this machine's port 8081. Standard error names it.

    If --server is a controller: show whether it leads, and the state of its store and watches.

    Exit code: 0 success, 2 the server cannot be reached, 4 it has no such SERVICE.
    """

    def text(document: dict[str, Any], name: str) -> str:
        is_controller = document.get("role") == CONTROLLER
        if service is not None:
            document = select_service(require_server(document, name), service)
        lines = format_controller if is_controller else format_status
        return format_document(document, output) or "\n".join(lines(document))

    show_status(where, text, watch=watch)
