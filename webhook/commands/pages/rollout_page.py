"""Pages of `podgate policy`: the history of policies, their rollout, its plan, and what a command has changed."""

from collections.abc import Iterable, Iterator, Sequence

from webhook.commands.pages.table import format_table
from webhook.core.plain_text import escape_document
from webhook.core.reporting.candidate_document import RolloutDocument, ShadowReport
from webhook.core.reporting.rollout_reports import ChangeDocument, Follower, RevisionEntry
from webhook.core.rollout.commands import describe_intervention, describe_rejection
from webhook.core.rollout.plan import PlannedStep
from webhook.core.rollout.progress import describe_phase

_HEADINGS = ("REVISION", "HASH", "CREATED", "STATE", "REASON")
_PLAN_HEADINGS = ("STEP", "FROM", "REACHES", "WORKLOADS", "NAMESPACES")
_NAMES_MAX = 5


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


def format_rollout(document: RolloutDocument) -> Iterator[str]:
    """Yield how far a rollout has come."""
    document = escape_document(document)
    state = document.state
    yield f"in force: {document.in_force}"
    if state.pinned is not None:
        yield f"  pinned: {describe_intervention(state.pinned)}"
    yield f"candidate: {document.candidate or 'none'}"
    yield from (f"  {line}" for line in _list_progress(document))
    if document.wished and document.wished not in {document.in_force, document.candidate}:
        yield f"wished: {document.wished}: {_explain_delay(document)}"


def _list_progress(document: RolloutDocument) -> Iterator[str]:
    state = document.state
    is_explained = document.rejection is not None or state.pinned is not None
    if document.candidate or state.paused is not None or (state.waits_for and not is_explained):
        yield describe_phase(state, document.steps)
    if document.next_at:
        yield f"next step: not before {document.next_at}"
    for symptom in document.symptoms:
        above = f": above since {symptom.above_since}" if symptom.above_since else ""
        yield f"taken back when {symptom.name} > {symptom.threshold_percent} % for {symptom.duration}{above}"
    if document.shadow is not None:
        yield from _list_differences(document.shadow)


def _list_differences(shadow: ShadowReport) -> Iterator[str]:
    of = f"{shadow.servers} server{'' if shadow.servers == 1 else 's'}"
    yield f"shadow: {shadow.judged} Pods judged by {of}{f'; {shadow.unseen}' if shadow.unseen else ''}"
    for entry in shadow.differences:
        yield f"  {entry.service or 'no service'}: {entry.pods} Pods differ: {entry.difference}"


def _explain_delay(document: RolloutDocument) -> str:
    if document.rejection is not None:
        return f"was taken back: {describe_rejection(document.rejection)}"
    if document.state.pinned is not None:
        return "is not tried while the other is pinned"
    return "comes after the candidate" if document.candidate else "waits for the leader to begin"


def format_plan(candidate: str, in_force: str, steps: Sequence[PlannedStep]) -> Iterator[str]:
    """Yield when each step of a rollout would come, and what it would reach."""
    candidate, in_force = escape_document((candidate, in_force))
    if candidate == in_force:
        yield f"{candidate} is in force: there is nothing to roll out"
        return
    yield f"from {in_force} to {candidate}, at the earliest:"
    rows = [
        (
            str(step.number),
            step.begins,
            step.asks,
            f"{step.workloads} of {step.of}",
            _format_names(step.services or step.namespaces),
        )
        for step in escape_document(steps)
    ]
    yield from format_table([_PLAN_HEADINGS, *rows])


def _format_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMES_MAX} more" if len(names) > _NAMES_MAX else ""
    return ", ".join(names[:_NAMES_MAX]) + more or "-"
