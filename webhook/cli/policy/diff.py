"""`podgate policy diff`: what changes between two policies."""

import asyncio
import sys

import click
import msgspec

from webhook.cli.options.cluster_options import kubeconfig_options
from webhook.cli.options.command_group import format_document, report_option
from webhook.commands.policy_argument import load_valid
from webhook.core.document.defaults import ATOMIC, ATOMIC_IN_0_1
from webhook.core.plain_text import escape_line
from webhook.core.policy_changes.differences import compare
from webhook.errors import UserError
from webhook.operations.named_policies import read_policies
from webhook.operations.rollout_facts import LIVE, WISHED
from webhook.support.kubeconfig import Kubeconfig

DIFFERENT = 1


@click.command("diff")
@click.argument("before", metavar="[A]", required=False)
@click.argument("after", metavar="[B]", required=False)
@click.option(
    "--a-as",
    type=click.Choice(["0.1.0"]),
    help="Read A as this version did, to see what an upgrade changes: 0.1.0 replaced a default `hard` or `affinity` as"
    " a whole where a service has its own.",
)
@report_option()
@kubeconfig_options("where")
def print_difference(before: str | None, after: str | None, a_as: str | None, where: Kubeconfig, output: str) -> None:
    """Print what changes from policy A to policy B, by service, with `defaults` applied.

    \b
    podgate policy diff                    # from the policy in force to the wished one
    podgate policy diff policy.yaml        # from the policy in force to a file
    podgate policy diff 6 7                # from one revision to another

    A and B are files, "-" (standard input), or of the cluster: `live` (in force), `wished` (in the ConfigMap),
    `candidate`, a revision of `podgate policy history`, a hash or its first digits. A file of that name comes first.
    Exit code: 0 no difference, 1 differences, 2 a policy is unreadable or has mistakes.
    """  # noqa: D301 - the backslash-b keeps click from filling these lines
    if before is None:
        before, after = LIVE, WISHED
    elif after is None:
        before, after = LIVE, before
    if before == after == "-":
        raise UserError("-: standard input is named twice", "it can only be read once: put the other in a file")
    documents, warnings = asyncio.run(read_policies((before, after), where))
    for warning in warnings:
        click.echo(escape_line(f"warning: {warning}"), err=True)
    old = load_valid(before, documents[before], ATOMIC if a_as is None else ATOMIC_IN_0_1)
    found = compare(old, load_valid(after, documents[after]))
    document = msgspec.to_builtins({"same": not found, **msgspec.structs.asdict(found)})
    if (text := format_document(document, output, indent=None)) is not None:
        click.echo(text)
    else:
        for line in found.format_lines():
            click.echo(escape_line(line))
    if found:
        sys.exit(DIFFERENT)
