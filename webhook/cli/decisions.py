"""`podgate decisions`: recent decisions, and new ones as they are made."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import click

from webhook.cli.options import durations
from webhook.cli.options.cluster_options import kubeconfig_options
from webhook.cli.options.command_group import WIDE, format_document, output_option
from webhook.commands.clients.decision_client import DecisionClient
from webhook.commands.pages.decisions_page import format_heading, format_rows
from webhook.core.plain_text import escape_json, escape_line
from webhook.errors import UserError
from webhook.operations.decision_port import open_decision_port
from webhook.operations.server_discovery import ServerLocation
from webhook.support.kubeconfig import Kubeconfig


@click.command()
@click.argument("service", required=False)
@click.option("--denied", is_flag=True, help="Only denials.")
@click.option("--since", metavar="DURATION", help="Only decisions younger than this, such as 10m.")
@click.option("-n", "--namespace", help="Only Pods of this namespace.")
@click.option(
    "--limit",
    type=click.IntRange(1, 50_000),
    default=100,
    show_default=True,
    help="Show at most this many decisions, newest first.",
)
@click.option(
    "--server",
    metavar="URL",
    envvar="PODGATE_DECISIONS",
    help="URL of a server's decision port.  [default: of a server Pod, by port-forward, else http://127.0.0.1:8082]",
)
@kubeconfig_options()
@output_option()
@click.option("-w", "--watch", is_flag=True, help="Show further decisions as they are made, until interrupted.")
def decisions(  # noqa: PLR0913  one parameter an option
    *,
    service: str | None,
    denied: bool,
    since: str | None,
    namespace: str | None,
    limit: int,
    server: str | None,
    kubeconfig: Kubeconfig,
    output: str | None,
    watch: bool,
) -> None:
    """Show the newest decisions, of one SERVICE or of all, newest last.

    \b
    podgate decisions --denied --since 10m      # what was denied, and why
    podgate decisions payment-api -w            # then new decisions as they are made

    Any server shows the decisions of all servers that share its Redis; without a Redis it shows only its own. Without
    --server this needs `list pods` and `create pods/portforward` in podgate-system. With -w and -o json each decision
    is one line.

    Exit code: 0 success, 2 no server can be reached.
    """  # noqa: D301 - the backslash-b keeps click from filling these lines
    if since is not None:
        durations.parse_seconds("--since", since)
    conditions = {
        "service": service or "",
        "namespace": namespace or "",
        "since": since or "",
        "denied": "true" if denied else "",
    }

    async def run() -> None:
        async with open_decision_port(ServerLocation(server, kubeconfig)) as found:
            if server is None:
                click.echo(f"server: {found.name}", err=True)
            client = DecisionClient(found.get, found.name)
            page = await client.read_newest(conditions, limit)
            if page.error:
                click.echo(f"warning: {escape_line(page.error)}", err=True)
            oldest_first = page.decisions[::-1]
            click.echo(_format_decisions(oldest_first, output, watch=watch))
            if watch:
                async for decision in client.follow(conditions, _print_error):
                    click.echo(_format_line(decision, output))

    asyncio.run(run())


def _format_decisions(found: Sequence[dict[str, Any]], output: str | None, *, watch: bool) -> str:
    wide = output == WIDE
    if watch and format_document(found, output) is not None:
        return "\n".join(_format_line(decision, output) for decision in found)
    return format_document(found, output) or "\n".join((format_heading(wide=wide), *format_rows(found, wide=wide)))


def _format_line(decision: dict[str, Any], output: str | None) -> str:
    text = format_document([decision], output)
    if text is None:
        return "\n".join(format_rows([decision], wide=output == WIDE))
    return text if output == "yaml" else escape_json(json.dumps(decision, ensure_ascii=False))


def _print_error(error: UserError) -> None:
    click.echo(f"error: {escape_line(str(error))}", err=True)
