"""`podgate nodes`: the load of nodes as a scheduler extender knows it."""

import asyncio
from urllib.parse import quote

import click
import msgspec

from webhook.app.scheduling.extender_ports import ExtenderPorts, open_extenders
from webhook.cli.options.cluster_options import kubeconfig_options
from webhook.cli.options.command_group import WIDE, format_document, output_option
from webhook.cli.options.server_options import print_repeatedly, watch_option
from webhook.commands.pages.nodes_page import format_nodes
from webhook.core.json_depth import UNREADABLE_JSON
from webhook.core.reporting.node_document import NodeDocument
from webhook.errors import NoSuchNodeError, UserError
from webhook.support.kubeconfig import Kubeconfig


@click.command()
@click.argument("node", required=False)
@click.option(
    "--limit",
    type=click.IntRange(1, 50_000),
    default=100,
    show_default=True,
    help="Show at most this many nodes, hottest first.",
)
@click.option(
    "--extender",
    metavar="URL",
    envvar="PODGATE_EXTENDER",
    help="URL of an extender's decision port.  [default: of an extender Pod, by port-forward, else"
    " http://127.0.0.1:8083]",
)
@kubeconfig_options()
@output_option()
@watch_option
def nodes(
    *, node: str | None, limit: int, extender: str | None, kubeconfig: Kubeconfig, output: str | None, watch: bool
) -> None:
    """Show the load of NODE or of all nodes, the hottest first: its source, its age, and whose thresholds it exceeds.

    CPU and MEMORY are shares of the allocatable amount, including the load that is assumed for new Pods. Each extender
    assumes this load for itself until a Pod is bound: the table is the view of one extender, named on stderr. Without
    --extender this needs `list pods` and `create pods/portforward` in podgate-system.

    Exit code: 0 success, 2 no extender can be reached, 4 there is no such NODE.
    """
    path = f"/api/v1/nodes?limit={limit}" if node is None else f"/api/v1/nodes?name={quote(node, safe='')}"
    asked: list[str] = []

    async def text() -> str:
        async with open_extenders(extender, kubeconfig) as ports:  # anew each time: Pods are replaced
            name, document = await _read(ports, path)
        if extender is None and asked != [name]:
            of_all = f", one of {len(ports.ports)}" if len(ports.ports) > 1 else ""
            click.echo(f"extender: {name}{of_all}", err=True)
            asked[:] = [name]
        if node is not None and not document.nodes:
            raise NoSuchNodeError(f"no node {node!r} among the {document.count} known", "see `podgate nodes`")
        page = format_nodes(document, is_wide=output == WIDE)
        return format_document(msgspec.to_builtins(document), output) or "\n".join(page)

    asyncio.run(print_repeatedly(text, watch=watch))


async def _read(ports: ExtenderPorts, path: str) -> tuple[str, NodeDocument]:
    """Return the first extender that answers, and its document."""
    name, body = await ports.read_first(path)
    try:
        return name, msgspec.json.decode(body, type=NodeDocument)
    except UNREADABLE_JSON:
        raise UserError(
            f"{name}: answers, but not as Podgate's extender",
            "give --extender the URL of the decision port (--decision-listen) of podgate extender",
        ) from None
