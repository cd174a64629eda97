"""Options for the server that a command reads, completion of service names, and repeated output for --watch."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import wraps
from typing import Any, TypeVar

import click

from webhook.cli.options.cluster_options import find_user_kubeconfig, kubeconfig_options
from webhook.commands.clients.status_client import build_no_services_error, parse_queue, parse_status
from webhook.core.document.loading import load_unproved
from webhook.core.plain_text import escape_line
from webhook.core.reporting.queue_document import QueueDocument
from webhook.core.reporting.status import CONTROLLER
from webhook.errors import UserError
from webhook.operations.server_discovery import FoundServer, ServerLocation, open_leader, open_server
from webhook.support.input_files import read_content
from webhook.support.kubeconfig import Kubeconfig

_WATCH_SECONDS = 2
Json = dict[str, Any]
_Document = TypeVar("_Document")


def server_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options for the server, passed as `where`."""

    @click.option(
        "--server",
        metavar="URL",
        envvar="PODGATE_SERVER",
        help="URL of a server's plain port (--plain-listen).  [default: found by the kubeconfig, else on this machine]",
    )
    @kubeconfig_options()
    @wraps(command)
    def run(*, server: str | None, kubeconfig: Kubeconfig, **rest: Any) -> None:
        command(where=ServerLocation(server, kubeconfig), **rest)

    return run


servers_option = click.option(
    "--server",
    "servers",
    metavar="URL",
    multiple=True,
    help="Plain port (--plain-listen) of a server to ask; repeatable.  [default: found by the kubeconfig]",
)

watch_option = click.option("-w", "--watch", is_flag=True, help="Show it again every 2 s, until interrupted.")


def show_status(where: ServerLocation, show: Callable[[Json, str], str], *, watch: bool = False) -> None:
    """Print the text that `show` returns for the status document and the server's name; with `watch`, repeatedly."""
    _print_document(where, open_server(where), _read_status, show, watch=watch)


def show_queue(
    where: ServerLocation, path: str, show: Callable[[QueueDocument, str], str], *, watch: bool = False
) -> None:
    """Print the text that `show` returns for the leader's queue document at a path, as `show_status` does."""

    async def read(leader: FoundServer) -> QueueDocument:
        return parse_queue(await leader.get(path), leader.name)

    _print_document(where, open_leader(where), read, show, watch=watch)


def _print_document(
    where: ServerLocation,
    opened: AbstractAsyncContextManager[FoundServer],
    read: Callable[[FoundServer], Awaitable[_Document]],
    show: Callable[[_Document, str], str],
    *,
    watch: bool,
) -> None:
    async def run() -> None:
        async with opened as server:
            if where.url is None:
                click.echo(f"server: {server.name}", err=True)

            async def text() -> str:
                return show(await read(server), server.name)

            await print_repeatedly(text, watch=watch)

    asyncio.run(run())


async def print_repeatedly(text: Callable[[], Awaitable[str]], *, watch: bool) -> None:
    """Print a text; with `watch`, repeatedly, even while it cannot be read."""
    click.echo(await text())
    while watch:
        await asyncio.sleep(_WATCH_SECONDS)
        try:
            found = await text()
        except UserError as error:  # a restarting server answers again later
            click.echo(f"error: {escape_line(str(error))}", err=True)
            continue
        if sys.stdout.isatty():
            click.clear()
        click.echo(found)


def require_server(document: Json, name: str) -> Json:
    """Return the document of a server; UserError for a controller's, which has no services."""
    if document.get("role") == CONTROLLER:
        raise build_no_services_error(name)
    return document


def complete_service_names(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Complete a SERVICE: from the file of --policy, or else from the server."""
    given = ctx.params
    try:
        if given.get("policy") is not None:
            loaded = load_unproved(read_content(given["policy"], ""), None).policy
            names = [service.name for service in loaded.services]
        else:
            where = ServerLocation(given.get("server"), find_user_kubeconfig(given))
            names = [service["name"] for service in asyncio.run(_read_services(where))]
    except Exception:  # noqa: BLE001  a shell shows no errors of a completion
        return []
    return [name for name in names if name.startswith(incomplete)]


async def _read_services(where: ServerLocation) -> list[Json]:
    async with open_server(where) as server:
        services: list[Json] = require_server(await _read_status(server), server.name)["services"]
    return services


async def _read_status(server: FoundServer) -> Json:
    return parse_status(await server.get("/status"), server.name)


service_argument = click.argument("service", shell_complete=complete_service_names)
