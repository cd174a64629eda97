"""`podgate policy candidate`: the rollout that goes on, or what a rollout of a file would do."""

import asyncio
import time
from collections.abc import Iterable
from itertools import chain

import click
import msgspec

from webhook.cli.options.cluster_options import kubeconfig_options
from webhook.cli.options.command_group import format_document, report_option
from webhook.cli.options.server_options import servers_option
from webhook.commands.pages.rollout_page import format_plan, format_rollout
from webhook.commands.policy_argument import read_document
from webhook.core.plain_text import escape_line
from webhook.operations.rollout_documents import read_rollout
from webhook.operations.rollout_plan import plan_rollout
from webhook.support.kubeconfig import Kubeconfig


@click.command()
@click.argument("file", metavar="[FILE]", required=False)
@servers_option
@kubeconfig_options()
@report_option()
def candidate(*, file: str | None, servers: tuple[str, ...], kubeconfig: Kubeconfig, output: str) -> None:
    """Show the rollout: its phase, since when, and what it waits for. With FILE, what a rollout of FILE would do.

    \b
    podgate policy candidate
    podgate policy candidate policy.yaml

    In shadow the differences that servers have counted are summed. With FILE nothing is applied: printed are the steps
    under the rollout in force, the workloads that each would reach in the cluster, and the difference to the policy in
    force.

    Exit code: 0 success, 2 FILE has mistakes, or no cluster.
    """  # noqa: D301 - the backslash-b keeps click from filling these lines
    if file is None:
        shown, warnings = asyncio.run(read_rollout(kubeconfig, servers))
        text = format_document(msgspec.to_builtins(shown), output)
        lines: Iterable[str] = format_rollout(shown)
    else:
        plan = asyncio.run(plan_rollout(file, read_document(file), kubeconfig, time.time_ns() // 1000))
        warnings = plan.warnings
        text = format_document(msgspec.to_builtins(plan), output)
        lines = chain(format_plan(plan.candidate, plan.in_force, plan.steps), plan.describe())
    for warning in warnings:
        click.echo(escape_line(f"warning: {warning}"), err=True)
    for line in lines if text is None else (text,):
        click.echo(escape_line(line) if text is None else line)
