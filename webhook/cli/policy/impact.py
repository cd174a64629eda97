"""`podgate policy impact`: what a candidate policy would have changed for recent requests."""

import asyncio
import sys
from pathlib import Path

import click
import msgspec

from webhook.cli.options import durations
from webhook.cli.options.cluster_options import kubeconfig_options
from webhook.cli.options.command_group import format_document, report_option
from webhook.commands.namespace_labels import read_namespace_labels
from webhook.core.plain_text import escape_line
from webhook.errors import UserError
from webhook.support.kubeconfig import Kubeconfig

_PATH = click.Path(path_type=Path, allow_dash=True)
_DENIALS, _CHANGES = "denials", "changes"
_FAILED = 3


@click.command()
@click.argument("candidate", type=_PATH)
@click.option(
    "--before", default="live", show_default=True, help="The policy to compare with, as A of `podgate policy diff`."
)
@click.option("--record", type=_PATH, help="Events that `podgate serve --record` wrote, instead of decisions.")
@click.option("--decisions", type=_PATH, help="Decisions of `podgate decisions -o json`, instead of a server's.")
@click.option(
    "--server",
    metavar="URL",
    envvar="PODGATE_DECISIONS",
    help="URL of a server's decision port.  [default: of a server Pod, by port-forward, else http://127.0.0.1:8082]",
)
@click.option("--since", metavar="DURATION", help="Only the last, such as 10m.")
@click.option(
    "--limit",
    type=click.IntRange(1, 50_000),
    default=50_000,
    show_default=True,
    help="Read at most this many decisions, newest first.",
)
@click.option("--namespaces", type=_PATH, help="Labels of Namespaces: `kubectl get namespaces -o yaml`.")
@click.option(
    "--fail-on",
    type=click.Choice([_DENIALS, _CHANGES]),
    help="Exit with 3 if a Pod would be denied or wait that was admitted, or if any Pod changes.",
)
@kubeconfig_options()
@report_option()
def impact(  # noqa: PLR0913  one parameter an option
    *,
    candidate: Path,
    before: str,
    record: Path | None,
    decisions: Path | None,
    server: str | None,
    since: str | None,
    limit: int,
    namespaces: Path | None,
    fail_on: str | None,
    kubeconfig: Kubeconfig,
    output: str,
) -> None:
    """Judge recent requests for Pods by the policy CANDIDATE and by the one in force, and print what differs.

    \b
    podgate policy impact policy.yaml                       # the decisions that servers keep
    podgate policy impact policy.yaml --fail-on denials     # for a pipeline
    podgate policy impact policy.yaml --before old.yaml --record events.jsonl

    Both policies judge the same requests in virtual time, with counters that begin empty. Nothing is written.

    Exit code: 0 printed, 2 bad input or no server, 3 --fail-on applies.
    """  # noqa: D301 - the backslash-b keeps click from filling these lines
    from webhook.operations.policy_impact import ImpactInputs, compare_policies  # noqa: PLC0415  the others need less

    if record is not None and decisions is not None:
        raise UserError("--record and --decisions: both are given", "give the one with the requests to judge")
    if since is not None:
        durations.parse_seconds("--since", since)
    inputs = ImpactInputs(
        candidate,
        before,
        record=record,
        decisions=decisions,
        server=server,
        since=since or "",
        limit=limit,
        namespaces=None if namespaces is None else read_namespace_labels(namespaces),
        kubeconfig=kubeconfig,
    )
    done = asyncio.run(compare_policies(inputs))
    for warning in done.warnings:
        click.echo(escape_line(f"warning: {warning}"), err=True)
    text = format_document(msgspec.to_builtins(done.report), output)
    for line in done.report.format_lines() if text is None else (text,):
        click.echo(escape_line(line) if text is None else line)
    if (fail_on == _DENIALS and done.report.has_denials) or (fail_on == _CHANGES and done.report.has_changes):
        sys.exit(_FAILED)
