"""`podgate check`: what is wrong with an installation, with a remedy for each finding."""

import asyncio
import os
import sys
import time

import click

from webhook.cli.options.command_group import format_document, report_option
from webhook.cli.options.durations import parse_seconds
from webhook.cli.options.server_options import server_options
from webhook.commands.pages.check_page import Outcome, build_check_document, count_severities, format_check, is_blind
from webhook.core.checks import ClusterFacts, Severity, judge_facts
from webhook.operations.cluster_check import gather_facts
from webhook.operations.server_discovery import ServerLocation
from webhook.support.kubeconfig import Kubeconfig
from webhook.support.redaction import mask

_AGAIN_SECONDS = 2.0
_NOTHING_JUDGED = 3


@click.command()
@server_options
@click.option(
    "--extender",
    metavar="URL",
    envvar="PODGATE_EXTENDER",
    help="URL of an extender's decision port, if the policy needs one.  [default: of the extenders' Pods]",
)
@report_option("table")
@click.option("--wait", metavar="DURATION", help="Repeat until there is no error, for at most this long, such as 2m.")
@click.option("--strict", is_flag=True, help="Fail on warnings too.")
def check(*, where: ServerLocation, extender: str | None, output: str, wait: str | None, strict: bool) -> None:
    """Check an installation: print what is wrong with it, with a remedy and an entry of the runbook.

    It reads the cluster with your kubeconfig, and the status of a server, found like that of `podgate status`. For up
    to ten services it creates a Pod with dryRun, which must come back rewritten: this shows whether the API server
    really calls Podgate. It changes nothing. Parts that you may not read are shown as not checked, and parts that this
    installation lacks as not applicable.

    If one command applies a remedy, it is printed, complete for this installation: run it in a shell, as you ran the
    check. docs/runbook.md lists all findings by code. An error keeps Podgate from applying the policy; a warning may.

    Exit code: 0 no error (with --strict: no finding), 1 errors (with --strict: findings), 2 the API server cannot be
    asked, 3 nothing could be checked: you may read nothing, and no server answers.
    """
    end_seconds = time.monotonic() + (0.0 if wait is None else parse_seconds("--wait", wait))
    facts, outcome = _run_checks(where, extender)
    while count_severities(outcome)[Severity.ERROR] and time.monotonic() < end_seconds - _AGAIN_SECONDS:
        time.sleep(_AGAIN_SECONDS)
        facts, outcome = _run_checks(where, extender)
    if where.url is None and facts.server:
        click.echo(f"server: {facts.server}", err=True)
    read_from = {"server": facts.server or None, "version": facts.version, "kubernetes": facts.kubernetes}
    text = format_document(
        {**read_from, "environment": _find_environment(where), **build_check_document(outcome)}, output
    )
    if text is not None:
        click.echo(text)
    else:
        is_unicode = sys.stdout.isatty() and "utf" in (sys.stdout.encoding or "").lower()
        click.echo("\n".join(format_check(outcome, _find_environment(where), is_unicode=is_unicode)))
    counts = count_severities(outcome)
    if is_blind(outcome):
        sys.exit(_NOTHING_JUDGED)
    if counts[Severity.ERROR] or (strict and counts[Severity.WARNING]):
        sys.exit(1)


def _find_environment(where: ServerLocation) -> dict[str, str]:
    """Return the variables that a shell needs so that commands reach the same cluster and server."""
    present = {**os.environ, "KUBECONFIG": str(Kubeconfig.from_text(os.environ.get("KUBECONFIG")))}
    found = {"KUBECONFIG": str(where.kubeconfig)}
    if where.url is not None and mask(where.url) == where.url:
        found["PODGATE_SERVER"] = where.url
    return {name: value for name, value in found.items() if present.get(name) != value}


def _run_checks(where: ServerLocation, extender: str | None) -> tuple[ClusterFacts, Outcome]:
    facts = asyncio.run(gather_facts(where, extender))
    return facts, tuple(judge_facts(facts))
