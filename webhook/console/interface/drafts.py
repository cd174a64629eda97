"""Drafts of policies: documents that somebody arranges, checked, and kept in memory until newer ones need the room."""

import asyncio
import secrets
from dataclasses import dataclass, replace

from webhook.console.interface.console_policies import ConsolePolicies, PlannedRollout
from webhook.core.document import DocumentError, LoadResult, Problem, Purpose, load
from webhook.core.lru_cache import LruCache
from webhook.errors import NoSuchPageError, UserError
from webhook.replay.impact import Comparison

_DRAFTS_MAX = 32
"""Each is at most as long as a policy may be."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A document, the one in force when it was begun, and what was found about it."""

    document: bytes
    base: bytes
    former: str = ""
    """The name of the draft before the last change; "" for what is in force."""
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    impact: Comparison | None = None
    obstacle: str = ""
    """Why the impact is not known."""
    planned: PlannedRollout | None = None
    plan_obstacle: str = ""


class Drafts:
    """Drafts by names that nobody can guess. A draft never changes: each change makes another one."""

    def __init__(self) -> None:
        self._kept: LruCache[str, Draft] = LruCache(_DRAFTS_MAX)

    def add(self, draft: Draft) -> str:
        """Keep a draft, and return its name."""
        name = secrets.token_urlsafe(16)
        self._kept.keep(name, draft)
        return name

    def find(self, name: str) -> Draft:
        draft = self._kept.get(name)
        if draft is None:
            raise NoSuchPageError(
                "this draft is no longer kept: the console was started again, or newer drafts took its place",
                "begin at /policy/edit, or paste the text that you have downloaded there",
            )
        return draft


async def check_draft(policies: ConsolePolicies, draft: Draft) -> Draft:
    """Return a draft with its mistakes, and if it has none with its impact."""
    try:
        loaded = await load_aside(draft.document)
    except DocumentError as error:
        return replace(draft, problems=error.problems)
    try:
        impact = await policies.judge(draft.base, draft.document)
    except UserError as error:
        return replace(draft, warnings=loaded.warnings, obstacle=format_error(error))
    return replace(draft, warnings=loaded.warnings, impact=impact)


async def load_aside(document: bytes) -> LoadResult:
    """Return the policy after its proof, which is made in a thread: other pages are updated meanwhile."""
    return await asyncio.to_thread(load, document, Purpose.SERVE)


def format_error(error: UserError) -> str:
    """Return an error on one line."""
    return " ".join((f"{error}: {error.remedy}" if error.remedy else str(error)).split())
