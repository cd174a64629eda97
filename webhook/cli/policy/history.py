"""`podgate policy history` and `wait`: the policies that are kept, and the outcome of a rollout for a pipeline."""

import asyncio
import sys
import time

import click
import msgspec

from webhook.cli.options import durations
from webhook.cli.options.cluster_options import kubeconfig_options
from webhook.cli.options.command_group import format_document, output_option, report_option
from webhook.commands.pages.rollout_page import format_history
from webhook.commands.policy_argument import read_document
from webhook.core.document.loading import compute_hash
from webhook.core.plain_text import escape_line
from webhook.core.rollout.progress import RolloutProgress, RolloutVerdict, judge
from webhook.errors import UserError
from webhook.operations.rollout_documents import read_history
from webhook.operations.rollout_facts import RolloutFacts
from webhook.operations.stored_policies import StoredPolicies, open_policies
from webhook.support.kubeconfig import Kubeconfig

_TAKEN_BACK, _TIMEOUT = 3, 4
_POLL_SECONDS = 1.0


@click.command()
@click.argument("revision", metavar="[REV]", required=False)
@kubeconfig_options()
@output_option()
def history(revision: str | None, kubeconfig: Kubeconfig, output: str | None) -> None:
    """List the policies that are kept, the newest first; with REV, print the document of one.

    \b
    podgate policy history
    podgate policy history 7 > policy.yaml

    REV is a revision, a hash or its first digits, `live` (in force), `wished` (in the ConfigMap) or `candidate`.
    Revisions are kept by the leader, the newest `rollout.history` of them.

    Exit code: 0 success, 2 no such revision or no cluster.
    """  # noqa: D301 - the backslash-b keeps click from filling these lines
    if revision is not None:
        click.echo(asyncio.run(_read_revision(revision, kubeconfig)).decode(), nl=False)
        return
    entries = asyncio.run(read_history(kubeconfig))
    text = format_document(msgspec.to_builtins(entries), output)
    for line in format_history(entries) if text is None else (text,):
        click.echo(escape_line(line) if text is None else line)


async def _read_revision(revision: str, kubeconfig: Kubeconfig) -> bytes:
    async with open_policies(kubeconfig) as policies:
        facts = await policies.read_facts()
        return await policies.read_document(facts.require_hash(revision), facts)


@click.command()
@click.argument("awaited", metavar="[FILE]", required=False)
@click.option("--for", "condition", type=click.Choice(["promoted"]), required=True, help="What to wait for.")
@click.option("--timeout", default="30m", show_default=True, metavar="DURATION", help="Wait at most this long.")
@kubeconfig_options()
@report_option()
def wait(*, awaited: str | None, condition: str, timeout: str, kubeconfig: Kubeconfig, output: str) -> None:
    """Wait until the wished policy, or the one in FILE, is in force, and print each change.

    \b
    kubectl apply -f policy-configmap.yaml
    podgate policy wait policy.yaml --for promoted --timeout 45m

    Give FILE in a pipeline that does not write the ConfigMap itself: without it, this waits for what the ConfigMap has
    when the command starts.

    Exit code: 0 promoted, 2 the policy is invalid or no cluster, 3 taken back, or not tried, 4 not promoted in time.
    """  # noqa: D301 - the backslash-b keeps click from filling these lines
    seconds = durations.parse_seconds("--timeout", timeout)
    given = None if awaited is None else compute_hash(read_document(awaited))
    policy_hash, seen = asyncio.run(_await_verdict(given, seconds, kubeconfig, is_text=output == "text"))
    document = {"hash": policy_hash, "verdict": seen.verdict.name.replace("_", " ").lower(), "reason": seen.text}
    if (text := format_document(document, output)) is not None:
        click.echo(text)
    if seen.verdict is RolloutVerdict.TAKEN_BACK:
        sys.exit(_TAKEN_BACK)
    if seen.verdict is RolloutVerdict.PENDING:
        click.echo(escape_line(f"error: not {condition} after {timeout}: {seen.text}"), err=True)
        sys.exit(_TIMEOUT)


async def _await_verdict(
    given: str | None, timeout_seconds: float, kubeconfig: Kubeconfig, *, is_text: bool
) -> tuple[str, RolloutProgress]:
    end_seconds = time.monotonic() + timeout_seconds
    shown, was_wished = "", False
    async with open_policies(kubeconfig) as policies:
        facts = await policies.read_facts()
        awaited = given or _require_wished(facts)
        while True:
            was_wished |= facts.wished.hash == awaited
            seen = judge(awaited, facts.wished.hash, facts.state, was_wished=was_wished)
            if is_text and seen.text != shown:
                shown = seen.text
                click.echo(escape_line(shown))
            if seen.verdict is not RolloutVerdict.PENDING or time.monotonic() >= end_seconds:
                return awaited, seen
            await asyncio.sleep(min(_POLL_SECONDS, max(0.0, end_seconds - time.monotonic())))
            facts = await _read_again(policies, end_seconds)


async def _read_again(policies: StoredPolicies, end_seconds: float) -> RolloutFacts:
    """Read the rollout; an API server that is away for a moment does not end the wait."""
    while True:
        try:
            return await policies.read_facts()
        except UserError as error:
            if time.monotonic() >= end_seconds:
                raise
            click.echo(escape_line(f"warning: {error}"), err=True)
            await asyncio.sleep(_POLL_SECONDS)


def _require_wished(facts: RolloutFacts) -> str:
    if facts.wished.obstacle:
        raise UserError(facts.wished.obstacle)
    return facts.wished.hash
