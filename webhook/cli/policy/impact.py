"""`podgate policy impact`: what a candidate policy would have changed for recent requests."""

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from webhook.cli.options.command_group import format_document, report_option
from webhook.cli.options.request_options import PATH, refuse_since, request_options
from webhook.core.plain_text import escape_line

if TYPE_CHECKING:
    from webhook.operations.recorded_events import RequestSource

_DENIALS, _CHANGES = "denials", "changes"
_FAILED = 3


@click.command()
@click.argument("candidate", type=PATH)
@click.option(
    "--before", default="live", show_default=True, help="The policy to compare with, as A of `podgate policy diff`."
)
@click.option(
    "--fail-on",
    type=click.Choice([_DENIALS, _CHANGES]),
    help="Exit with 3 if a Pod would be denied or wait that was admitted, or if any Pod changes.",
)
@request_options
@report_option()
def impact(*, candidate: Path, before: str, fail_on: str | None, source: "RequestSource", output: str) -> None:
    """Judge recent requests for Pods by the policy CANDIDATE and by the one in force, and print what differs.

    \b
    podgate policy impact policy.yaml                       # the decisions that servers keep
    podgate policy impact policy.yaml --fail-on denials     # for a pipeline
    podgate policy impact policy.yaml --before old.yaml --record events.jsonl

    Both policies judge the same requests in virtual time, with counters that begin empty. Nothing is written.

    Exit code: 0 printed, 2 bad input or no server, 3 --fail-on applies.
    """  # noqa: D301 - the backslash-b keeps click from filling these lines
    from webhook.operations.policy_impact import ImpactInputs, compare_policies  # noqa: PLC0415  the others need less

    refuse_since(source)
    done = asyncio.run(compare_policies(ImpactInputs(candidate, before, source)))
    for warning in done.warnings:
        click.echo(escape_line(f"warning: {warning}"), err=True)
    text = format_document(msgspec.to_builtins(done.report), output)
    for line in done.report.format_lines() if text is None else (text,):
        click.echo(escape_line(line) if text is None else line)
    if (fail_on == _DENIALS and done.report.has_denials) or (fail_on == _CHANGES and done.report.has_changes):
        sys.exit(_FAILED)
