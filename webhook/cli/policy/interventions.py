"""`podgate policy promote`, `pause`, `retry` and `rollback`: a person's hands on the rollout of a policy."""

import asyncio
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple

import click
import msgspec

from webhook.cli.options import durations
from webhook.cli.options.cluster_options import kubeconfig_options
from webhook.cli.options.command_group import format_document, report_option
from webhook.cli.options.server_options import servers_option
from webhook.commands.pages.rollout_page import format_change
from webhook.core.plain_text import escape_line
from webhook.errors import UserError
from webhook.operations.rollout_change import Act, RolloutPlace, change_rollout
from webhook.support.kubeconfig import Kubeconfig

_BEHIND = 4
_REASON = "Reason, such as an incident or a ticket; required."


class Terms(NamedTuple):
    """The cluster, the servers that are to follow and for how long, and the form of the answer."""

    kubeconfig: Kubeconfig
    servers: tuple[str, ...]
    wait_seconds: float
    dry_run: bool
    output: str


def _term_options(command: Callable[..., None]) -> Callable[..., None]:
    @click.option("--dry-run", is_flag=True, help="Check and print what would be written, and write nothing.")
    @servers_option
    @click.option("--wait", default="5s", show_default=True, help="Wait so long for the servers to follow.")
    @kubeconfig_options()
    @report_option()
    @wraps(command)
    def run(
        *, dry_run: bool, servers: tuple[str, ...], wait: str, kubeconfig: Kubeconfig, output: str, **rest: Any
    ) -> None:
        seconds = durations.parse_seconds("--wait", wait)
        command(terms=Terms(kubeconfig, servers, seconds, dry_run, output), **rest)

    return run


@click.command()
@_term_options
def promote(terms: Terms) -> None:
    """Put the candidate into force at once, without its remaining steps.

    Without a candidate it is the wished policy, if that waits. This ends a pause and a pin.

    Exit code: 0 success, 2 nothing to promote or no cluster, 4 a server did not follow within --wait.
    """
    _carry_out("promoted", terms, lambda editor: editor.promote())


@click.command()
@click.option("--reason", help=_REASON)
@_term_options
def pause(reason: str | None, terms: Terms) -> None:
    """Stop the candidate at its step, or the next one before it begins. Symptoms still take a candidate back.

    `podgate policy retry` lets it go on, and its step begins again; `promote` and `rollback` end the pause too.

    Exit code: 0 success, 2 nothing to pause or no cluster, 4 a server did not follow within --wait.
    """
    why = _require_reason(reason)
    _carry_out("paused", terms, lambda editor: editor.pause(why))


@click.command()
@_term_options
def retry(terms: Terms) -> None:
    """Let the wished policy be tried again: forget that it was taken back, and end a pin and a pause.

    With a rollout in force it becomes the candidate again; without one it is in force at once.

    Exit code: 0 success, 2 nothing to retry or no cluster, 4 a server did not follow within --wait.
    """
    _carry_out("to be tried again", terms, lambda editor: editor.retry())


@click.command()
@click.option("--to", "revision", metavar="REV", help="Revision, hash or its first digits.  [default: see above]")
@click.option("--reason", help=_REASON)
@_term_options
def rollback(revision: str | None, reason: str | None, terms: Terms) -> None:
    """Put the policy that was in force before back, and pin it: it stays, whatever the ConfigMap has.

    \b
    podgate policy rollback --reason INC-1234
    podgate policy rollback --to 7 --reason INC-1234

    With a candidate, the policy in force stays; without one, the newest earlier revision comes into force that was in
    force and was not taken back, as `podgate policy history` shows. What was bad is not tried again until `podgate
    policy retry`. The pin ends when the ConfigMap has the policy in force, or with `retry` or `promote`. This works
    without a controller. The ConfigMap is not changed: revert it in Git with the command that is printed.

    Exit code: 0 success, 2 no such revision or no cluster, 4 a server did not follow within --wait.
    """  # noqa: D301 - the backslash-b keeps click from filling these lines
    why = _require_reason(reason)
    _carry_out("rolled back", terms, lambda editor: editor.roll_back(revision, why))


def _require_reason(reason: str | None) -> str:
    if not reason:
        raise UserError("--reason: missing", "give one, such as --reason INC-1234")
    return reason


def _carry_out(command: str, terms: Terms, act: Act) -> None:
    place = RolloutPlace(terms.kubeconfig, terms.servers, terms.wait_seconds)
    change, warning = asyncio.run(change_rollout(command, act, place, dry_run=terms.dry_run))
    if warning:
        click.echo(escape_line(f"warning: {warning}"), err=True)
    text = format_document(msgspec.to_builtins(change), terms.output)
    if text is not None:
        click.echo(text)
    else:
        for line in format_change(change):
            click.echo(escape_line(line))
    if any(server.hash != change.in_force for server in change.servers):
        click.echo(f"error: written, but not all servers follow after {terms.wait_seconds:g} s", err=True)
        sys.exit(_BEHIND)
