"""`podgate queue pause`, `resume`, `release` and `drop`: manual changes of a queue, each with a reason."""

import asyncio
from collections.abc import Callable

import click

from webhook.cli.options import override_options
from webhook.cli.options.cluster_options import kubeconfig_options
from webhook.cli.options.override_options import OverridesLocation, OverrideTerms
from webhook.cli.options.server_options import service_argument
from webhook.commands.explain_target import parse_pod
from webhook.core.overrides import QueueState
from webhook.core.plain_text import escape_line
from webhook.errors import UserError
from webhook.support.kubeconfig import Kubeconfig


@click.command()
@service_argument
@override_options.term_options("1h")
@override_options.location_options
def pause(service: str, terms: Callable[[], OverrideTerms], where: OverridesLocation) -> None:
    """Stop releasing Pods of SERVICE for a time; new Pods wait too. Their maxWait keeps running.

    This writes an override, see `podgate override`: the leader applies it within about a second. Exit codes are those
    of `podgate override`.
    """
    override_options.put(where, terms(), {"service": service, "queue": QueueState.PAUSED.value})


@click.command()
@service_argument
@override_options.term_options("10m")
@override_options.location_options
def resume(service: str, terms: Callable[[], OverrideTerms], where: OverridesLocation) -> None:
    """Release Pods of SERVICE again, as its limits allow.

    This replaces the override of `pause` by one that records the reason. Exit codes are those of `podgate override`.
    """
    override_options.put(where, terms(), {"service": service, "queue": QueueState.RUNNING.value})


@click.command()
@click.argument("pod", metavar="NAMESPACE/POD")
@override_options.term_options("10m")
@override_options.location_options
def release(pod: str, terms: Callable[[], OverrideTerms], where: OverridesLocation) -> None:
    """Release one waiting Pod now, whatever the limits. It is charged, so the others wait longer.

    This writes an override with the Pod's uid, see `podgate override`. It also needs the right to get the Pod. Exit
    codes are those of `podgate override`.
    """
    from webhook.operations.gated_pod import find_gated  # noqa: PLC0415  loads slowly

    asked = terms()
    namespace, name = parse_pod(pod)
    found = asyncio.run(find_gated(where.kubeconfig, namespace, name))
    released = {"namespace": namespace, "name": name, "uid": found.uid}
    override_options.put(where, asked, {"service": found.service, "releasePods": [released]})


@click.command()
@click.argument("pod", metavar="NAMESPACE/POD")
@click.option("--reason", help="Reason, such as an incident or a ticket; required.")
@click.option("--dry-run", is_flag=True, help="Only show which Pod would be deleted.")
@kubeconfig_options()
def drop(*, pod: str, reason: str | None, dry_run: bool, kubeconfig: Kubeconfig) -> None:
    """Delete one waiting Pod, with your own rights to get and delete it. Its controller, if any, creates another.

    Podgate does not delete the Pod for you: the right to write overrides must not include the right to delete Pods.
    The reason is recorded as an Event on the Pod, if you may create Events.

    Exit code: 0 success, 2 bad input, or the Pod does not wait.
    """
    from webhook.operations.gated_pod import drop_gated  # noqa: PLC0415  loads slowly

    if not reason:
        raise UserError("--reason: missing", "give one, such as --reason INC-1234")
    namespace, name = parse_pod(pod)
    found, unwritten = asyncio.run(drop_gated(kubeconfig, namespace, name, reason, is_dry=dry_run))
    text = f"{namespace}/{name} (uid {found.uid}) of {found.service}: {'would be ' if dry_run else ''}deleted"
    click.echo(escape_line(text))
    if unwritten:
        click.echo(escape_line(f"warning: the reason is not recorded: {unwritten}"), err=True)
