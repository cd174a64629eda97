"""`podgate policy diff`: what changes between two policies."""

import asyncio
import sys

import click
import msgspec

from webhook.cli.options.cluster_options import kubeconfig_options
from webhook.cli.options.command_group import format_document, report_option
from webhook.commands.policy_argument import read_document
from webhook.core.document import DocumentError
from webhook.core.document.defaults import ATOMIC, ATOMIC_IN_0_1
from webhook.core.document.loading import load_unproved
from webhook.core.plain_text import escape_line
from webhook.core.policy.model import Policy
from webhook.core.policy_changes.differences import compare
from webhook.errors import UserError
from webhook.operations.stored_documents import read_live_policy
from webhook.support.kubeconfig import Kubeconfig

LIVE = "live"
DIFFERENT = 1


@click.command("diff")
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@click.option(
    "--a-as",
    type=click.Choice(["0.1.0"]),
    help="Read A as this version did, to see what an upgrade changes: 0.1.0 replaced a default `hard` or `affinity` as"
    " a whole where a service has its own.",
)
@report_option()
@kubeconfig_options("where")
def print_difference(before: str, after: str, a_as: str | None, where: Kubeconfig, output: str) -> None:
    """Print what changes from policy A to policy B, by service, with `defaults` applied.

    A and B are files, "-" (standard input), or `live`: the policy in the cluster.
    Exit code: 0 no difference, 1 differences, 2 a policy is unreadable or has mistakes.
    """
    if before == after == "-":
        raise UserError("-: standard input is named twice", "it can only be read once: put the other in a file")
    old = _load_policy(before, _read(before, where), ATOMIC if a_as is None else ATOMIC_IN_0_1)
    found = compare(old, _load_policy(after, _read(after, where), ATOMIC))
    document = msgspec.to_builtins({"same": not found, **msgspec.structs.asdict(found)})
    if (text := format_document(document, output, indent=None)) is not None:
        click.echo(text)
    else:
        for line in found.format_lines():
            click.echo(escape_line(line))
    if found:
        sys.exit(DIFFERENT)


def _read(name: str, where: Kubeconfig) -> bytes:
    return asyncio.run(read_live_policy(where)) if name == LIVE else read_document(name)


def _load_policy(name: str, raw: bytes, atomic: frozenset[str]) -> Policy:
    try:
        return load_unproved(raw, None, atomic).policy
    except DocumentError as error:
        problems = "\n".join(f"  {name}:{problem}" for problem in error.problems)
        raise UserError(f"{name}: mistakes in the policy: fix what is listed here\n{problems}") from None
