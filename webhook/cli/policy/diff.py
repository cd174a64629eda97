"""`podgate policy diff`: what changes between two policies."""

import asyncio
import sys

import click
import msgspec

from webhook.app.operations.live_policy import read_live_policy
from webhook.cli.options.cluster_options import ClusterLocation, cluster
from webhook.core.document import DocumentError
from webhook.core.document.loading import load_unproved
from webhook.core.policy.model import Policy
from webhook.core.policy_diff import compare
from webhook.errors import UserError
from webhook.offline.policy_argument import read_document

LIVE = "live"
DIFFERENT = 1


@click.command("diff")
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@cluster
def print_difference(before: str, after: str, where: ClusterLocation, output: str) -> None:
    """Print what changes from policy A to policy B, by service, with `defaults` applied.

    A and B are files, "-" (standard input), or `live`: the policy in the cluster.
    Exit code: 0 no difference, 1 differences, 2 a policy is unreadable or has mistakes.
    """
    if before == after == "-":
        raise UserError("-: standard input is named twice", "it can only be read once: put the other in a file")
    found = compare(_policy(before, where), _policy(after, where))
    if output == "json":
        click.echo(msgspec.json.encode({"same": not found, **msgspec.structs.asdict(found)}).decode())
    else:
        for line in found.lines():
            click.echo(line)
    if found:
        sys.exit(DIFFERENT)


def _policy(name: str, where: ClusterLocation) -> Policy:
    raw = asyncio.run(read_live_policy(where.kubeconfig, where.context)) if name == LIVE else read_document(name)
    try:
        return load_unproved(raw, None).policy
    except DocumentError as error:
        problems = "\n".join(f"  {name}:{problem}" for problem in error.problems)
        raise UserError(f"{name}: mistakes in the policy: fix what is listed here\n{problems}") from None
