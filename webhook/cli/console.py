"""`podgate console`: the services of a running server in a browser."""

import asyncio
import signal
import webbrowser
from pathlib import Path

import click

from webhook.cli.options.server_options import server_options
from webhook.commands.terminal_input import watch_enter
from webhook.core.plain_text import escape_line
from webhook.operations.server_discovery import ServerLocation

_UNKNOWN = {"decisions": "denials", "leader": "waiting Pods"}


@click.command()
@server_options
@click.option(
    "--decisions",
    metavar="URL",
    envvar="PODGATE_DECISIONS",
    help="URL of a server's decision port.  [default: of a server Pod, by port-forward, else http://127.0.0.1:8082]",
)
@click.option(
    "--extender",
    metavar="URL",
    envvar="PODGATE_EXTENDER",
    help="URL of an extender's decision port, for nodes.  [default: of an extender Pod, by port-forward, else"
    " http://127.0.0.1:8083]",
)
@click.option(
    "--overrides",
    type=click.Path(path_type=Path),
    envvar="PODGATE_OVERRIDES",
    help="Write overrides to this file instead of a cluster.",
)
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port on 127.0.0.1.  [default: a free one]")
@click.option("--no-browser", is_flag=True, help="Only print the address.")
def console(
    *,
    where: ServerLocation,
    decisions: str | None,
    extender: str | None,
    overrides: Path | None,
    port: int,
    no_browser: bool,
) -> None:
    """Show services, breakers, quotas and queues in a browser, with your own rights.

    Listens on 127.0.0.1 only. The printed address lets in one browser, once; press Enter for another address. What you
    do there is done with your kubeconfig, so the cluster's RBAC and its audit log apply.

    Exit code: 0 ended by Ctrl-C, 2 no server can be reached.
    """
    from webhook.console.local_server import run_console  # noqa: PLC0415  loads a web server
    from webhook.operations.console_ports import build_hands, open_console_ports, pin_context  # noqa: PLC0415  the same

    async def run() -> None:
        ended = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, ended.set)
        place = pin_context(where)
        async with (
            open_console_ports(place, decisions, extender) as ports,
            run_console(ports, build_hands(place, overrides), port) as running,
        ):
            click.echo(f"server: {ports.plain.name}", err=True)
            for name, reason in ports.missing.items():
                click.echo(escape_line(f"warning: {_UNKNOWN[name]} are not shown: {reason}"), err=True)
            _show_address(running.issue_address(), no_browser=no_browser)
            watch_enter(lambda: _show_address(running.issue_address(), no_browser=True))
            await ended.wait()

    asyncio.run(run())


def _show_address(address: str, *, no_browser: bool) -> None:
    click.echo(f"console: {address}")
    if not no_browser:
        webbrowser.open(address)
