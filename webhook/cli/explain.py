"""`podgate explain`: why a Pod does not run, from its admission to the start of its containers."""

import asyncio
import shutil
import sys
from pathlib import Path

import click
import msgspec

from webhook.cli.options.cluster_options import kubeconfig_options
from webhook.cli.options.command_group import format_document, report_option
from webhook.commands.explain_target import ExplainInputs, ExplainTarget, parse_target
from webhook.commands.pages.pod_report_page import describe_unread, format_report
from webhook.core.diagnosis import Report
from webhook.core.kubernetes.timestamps import parse_microseconds
from webhook.core.plain_text import escape_line
from webhook.errors import UserError
from webhook.operations.pod_explanation import PodExplainer, open_explainer
from webhook.support.kubeconfig import Kubeconfig

_PATH = click.Path(path_type=Path, allow_dash=True)
_DENIED, _NOTHING_KNOWN = 3, 4
_AGAIN_SECONDS = 2.0


@click.command()
@click.argument("what", nargs=-1, required=True, metavar="pod NAME | deploy/NAME | KIND.GROUP/NAME | UID")
@click.option("-n", "--namespace", default="default", show_default=True, help="Namespace of a name without one.")
@click.option(
    "--server",
    metavar="URL",
    envvar="PODGATE_DECISIONS",
    help="URL of a server's decision port.  [default: of a server Pod, by port-forward, else http://127.0.0.1:8082]",
)
@click.option(
    "--leader",
    metavar="URL",
    envvar="PODGATE_LEADER",
    help="URL of the leader's plain port, for the place of a Pod that waits.  [default: found by the kubeconfig]",
)
@click.option(
    "--status",
    metavar="URL",
    envvar="PODGATE_SERVER",
    help="URL of a server's plain port, for the breakers of variants of a Pod with a slot."
    "  [default: found by the kubeconfig, else on this machine]",
)
@click.option(
    "--extender",
    metavar="URL",
    envvar="PODGATE_EXTENDER",
    help="URL of an extender's decision port, for the nodes that it refused and scored."
    "  [default: of all extender Pods, by port-forward, else http://127.0.0.1:8083]",
)
@kubeconfig_options()
@click.option("--records", type=_PATH, help="Explain from the decision records in this file only, without a cluster.")
@click.option("--policy", type=_PATH, help="The policy of the records.  [default: the server's]")
@click.option("--at", metavar="TIME", help="Explain from the decisions up to this time, such as 2026-12-01T04:00:00Z.")
@click.option("--rules", is_flag=True, help="Show the finding of each stage and rule, as review --explain.")
@report_option()
@click.option("-w", "--watch", is_flag=True, help="Show the report again when it changes, until interrupted.")
def explain(  # noqa: PLR0913  one parameter an option
    *,
    what: tuple[str, ...],
    namespace: str,
    server: str | None,
    leader: str | None,
    status: str | None,
    extender: str | None,
    kubeconfig: Kubeconfig,
    records: Path | None,
    policy: Path | None,
    at: str | None,
    rules: bool,
    output: str,
    watch: bool,
) -> int:
    """Explain why a Pod does not run: a Pod that exists, or Pods of a workload that were refused and never existed.

    \b
    podgate explain deploy/web -n checkout      # why Pods of a workload are missing, or do not run
    podgate explain jobset.jobset.x-k8s.io/mnist -n ml
    podgate explain pod checkout/web-x7

    The first line shows the state and its cause. The command reads the cluster with your kubeconfig, and decision
    records from a server's decision port; it names whatever you may not read. Refused Pods are found without records,
    too: by the Events of their controller.

    Exit code: 0 explained, 2 bad input, 3 the Pod or some Pods of the workload are denied, 4 nothing is known.
    """  # noqa: D301 - the backslash-b keeps click from filling these lines
    target = parse_target(what, namespace)
    until_us = None if at is None else _parse_time(at)
    inputs = ExplainInputs(target, kubeconfig, server, records, policy, until_us, leader, extender, status=status)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None

    def text(report: Report) -> str:
        shown = format_document(msgspec.to_builtins(report), output)
        return format_report(report, width, with_rules=rules) if shown is None else shown

    async def run() -> int:
        async with open_explainer(inputs) as explainer:
            report = await explainer.report()
            if report is None and not watch:
                return _print_nothing_known(target, explainer)
            shown = ""
            while True:
                now = "" if report is None else text(report)
                if now and now != shown:
                    click.echo(f"\n{now}" if shown and output == "text" else now)
                    shown = now
                if not watch:
                    return _DENIED if report is not None and report.is_denied else 0
                await asyncio.sleep(_AGAIN_SECONDS)
                report = await explainer.report()

    return asyncio.run(run())


def _print_nothing_known(target: ExplainTarget, explainer: PodExplainer) -> int:
    """Print why nothing is known: an object that cannot be read may still exist."""
    read = {"cluster", "pods", f"{target.shown_kind} {target.name}"}
    object_text = "no such object" if read.isdisjoint(explainer.unread) else "the object cannot be read"
    record_text = "its records cannot be read" if "records" in explainer.unread else "no record of it"
    click.echo(escape_line(f"error: nothing is known of {target}: {object_text}, and {record_text}"), err=True)
    for what, reason in explainer.unread.items():
        click.echo(f"  not read: {describe_unread(what, reason)}", err=True)
    return _NOTHING_KNOWN


def _parse_time(text: str) -> int:
    try:
        return parse_microseconds(text)
    except ValueError as error:
        raise UserError(f"--at: {text!r}: {error}") from None
