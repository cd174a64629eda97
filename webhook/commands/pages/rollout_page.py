"""Pages of `podgate policy`: the history of policies, and what a command has changed."""

from collections.abc import Iterable, Iterator, Sequence

from webhook.commands.pages.table import format_table
from webhook.core.plain_text import escape_document
from webhook.core.reporting.rollout_document import ChangeDocument, Follower, RevisionEntry
from webhook.core.rollout.commands import describe_intervention
from webhook.core.rollout.progress import describe_phase

_HEADINGS = ("REVISION", "HASH", "CREATED", "STATE", "REASON")


def format_history(entries: Sequence[RevisionEntry]) -> Iterable[str]:
    """Yield the lines of a table of policies."""
    rows = [
        (str(entry.number or "-"), entry.hash, entry.created_at or "-", ", ".join(entry.roles) or "-", entry.reason)
        for entry in escape_document(entries)
    ]
    return format_table([_HEADINGS, *rows]) if rows else ("no policy is kept",)


def format_change(change: ChangeDocument) -> Iterator[str]:
    """Yield what a command has changed, and what is left to do."""
    change = escape_document(change)
    state = change.state
    yield f"{change.command}{' (dry run: nothing is written)' if change.dry_run else ''}"
    pin = f", pinned: {describe_intervention(state.pinned)}" if state.pinned is not None else ""
    yield f"in force: {change.in_force}{pin}"
    if change.candidate:
        yield f"candidate: {change.candidate}: {describe_phase(state)}"
    elif state.paused is not None:
        yield f"paused: {describe_intervention(state.paused)}"
    if change.revert_in_git:
        yield f"in Git: the ConfigMap has {change.revert_in_git}, which is not tried: revert it to what this prints:"
        yield f"  {change.next_command}"
    if not change.dry_run:
        yield from _format_servers(change)


def _format_servers(change: ChangeDocument) -> Iterator[str]:
    if change.servers:
        following = [server for server in change.servers if server.hash == change.in_force]
        yield f"servers: {len(following)} of {len(change.servers)} follow"
        yield from (f"  {_describe_behind(server)}" for server in change.servers if server.hash != change.in_force)
    elif change.unseen:
        yield f"servers: not seen whether they follow: {change.unseen}"


def _describe_behind(server: Follower) -> str:
    has = f"{server.hash} is in force there" if server.hash else "no policy is in force there"
    return f"{server.server}: {server.error or has}"
