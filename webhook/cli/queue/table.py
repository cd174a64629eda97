"""`podgate queue list`: a table of waiting Pods in the order of their release."""

from difflib import get_close_matches
from urllib.parse import quote

import click
import msgspec

from webhook.cli.options.command_group import WIDE, format_document, output_option
from webhook.cli.options.server_options import complete_service_names, server_options, show_queue, watch_option
from webhook.commands.pages.queue_page import format_queue
from webhook.core.reporting.queue_document import QueueDocument
from webhook.errors import NoSuchServiceError
from webhook.operations.server_discovery import ServerLocation


@click.command(name="list")
@click.argument("service", required=False, shell_complete=complete_service_names)
@server_options
@output_option()
@watch_option
def list_(*, service: str | None, where: ServerLocation, output: str | None, watch: bool) -> None:
    """Show waiting Pods in release order: place, class, age, when they may be released, and why they still wait.

    The leader knows the order. Without --server it is found by the kubeconfig: the Pod that Lease podgate-leader names,
    reached through the API server, or the server that releases Pods itself. At most 1,000 Pods are shown.

    Exit code: 0 success, 2 the leader cannot be reached, 4 no SERVICE of this name has a queue.
    """

    def text(document: QueueDocument, _: str) -> str:
        if service is not None and not document.services:
            meant = get_close_matches(service, ("pause", "resume", "release", "drop"), 1)
            remedy = f"did you mean `podgate queue {meant[0]}`?" if meant else "`podgate queue` shows those that have"
            raise NoSuchServiceError(f"no service {service!r} has a queue", remedy)
        page = format_queue(document, is_wide=output == WIDE)
        return format_document(msgspec.to_builtins(document), output) or "\n".join(page)

    show_queue(where, f"/queue?service={quote(service or '', safe='')}", text, watch=watch)
