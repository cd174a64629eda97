"""Editor of the overrides document: adds, merges, replaces and ends the entries of one service."""

from collections.abc import Callable
from enum import Enum
from typing import Any

from msgspec.structs import replace

from webhook.core.document import DocumentError
from webhook.core.document.loading import load_unproved
from webhook.core.overrides import Override, combine, list_remarks, merge
from webhook.core.overrides.editing import drop_replaced, parse_entry, replace_entries
from webhook.core.overrides.editing import encode_document as document_of
from webhook.core.overrides.loading import OverridesDocument, load
from webhook.core.policy.model import Policy
from webhook.errors import NoSuchServiceError, UserError
from webhook.ports import OverridesStore

_TRIES = 10
UNCHECKED = "the service and its fields are not checked"


class Combination(Enum):
    """Ways to combine a new entry with those in force for its service."""

    BESIDE = "beside"
    """Added beside them; an error if an entry in force sets the same field."""
    MERGE = "merge"
    """Merged with them into one entry, whose end is the later one."""
    MERGE_UNTIL = "merge until"
    """Merged with them into one entry that ends when the new one does."""
    REPLACE = "replace"
    """Replaces them. Exceptions of other Pods stay, and for an exception what is for the whole service."""


class OverridesEditor:
    """Edits the document of an OverridesStore, and retries if another writer was first.

    New entries are checked against `policy`, unless it is None. `now_us` is the wall clock.
    """

    def __init__(self, store: OverridesStore, policy: Policy | None, now_us: Callable[[], int]) -> None:
        self._store = store
        self._policy = policy
        self._now_us = now_us

    async def add(self, entry: Override, combination: Combination) -> Override:
        """Write an entry; return the entry now in force. UserError if it would have no effect or be ambiguous."""
        new = replace(entry, by=await self._store.read_author())
        if self._policy is not None:
            _check_effect(self._policy, new)
        result: list[Override] = []

        def edit(document: OverridesDocument) -> tuple[Override, ...]:
            live = document.list_live(self._now_us()).get(new.service, ())
            others = tuple(entry for entry in live if entry.target_key != new.target_key)
            same = tuple(entry for entry in live if entry.target_key == new.target_key)
            entries = (*others, *_combine(same, new, combination))
            result[:] = entries[-1:]
            return replace_entries(document.entries, new.service, entries, self._now_us())

        await self._change(edit)
        return result[0]

    async def clear(self, service: str, target_key: str = "") -> tuple[Override, ...]:
        """End the entries in force for a service, all or those of one target, and return them."""
        ended: list[Override] = []

        def edit(document: OverridesDocument) -> tuple[Override, ...]:
            live = document.list_live(self._now_us())
            if service not in live and self._policy is not None:
                _check_service(self._policy, service)
            own = live.get(service, ())
            kept = tuple(entry for entry in own if target_key and entry.target_key != target_key)
            ended[:] = [entry for entry in own if entry not in kept]
            return replace_entries(document.entries, service, kept, self._now_us())

        await self._change(edit)
        return tuple(ended)

    async def list_live(self) -> list[Override]:
        """Return the live entries, by service."""
        live = (await self._read()).list_live(self._now_us())
        return [entry for service in sorted(live) for entry in live[service]]

    async def _change(self, edit: Callable[[OverridesDocument], tuple[Override, ...]]) -> None:
        for _ in range(_TRIES):
            document = await self._read()
            entries = edit(document)
            if entries == document.entries or await self._store.write(document_of(entries)):
                return
        raise UserError(f"{self._store.place}: changed by other writers {_TRIES} times in a row", "try once more")

    async def _read(self) -> OverridesDocument:
        """Return the overrides. Raise UserError with every error if the existing document is invalid."""
        place = self._store.place
        try:
            document = load(await self._store.read())
            problems = document.find_clashes(self._now_us())
        except DocumentError as error:
            problems = error.problems
        if problems:
            listed = "\n".join(f"  {place}:{problem}" for problem in problems)
            raise UserError(f"{place}: the existing overrides are invalid: fix what is listed here\n{listed}")
        return document


async def read_checking_policy(store: OverridesStore) -> tuple[Policy | None, str]:
    """Return the policy to check entries against, at the place of the overrides; or None and why there is none."""
    try:
        raw = await store.read_policy()
        return (None, UNCHECKED) if raw is None else (load_unproved(raw, None).policy, "")
    except (UserError, DocumentError) as error:
        return None, f"not checked against the policy: {str(error).splitlines()[0]}"


def parse_new_entry(plain: dict[str, Any]) -> Override:
    """Parse an entry. Raise UserError with every error."""
    try:
        return parse_entry(plain)
    except DocumentError as error:
        wrong = [
            f"{problem.path.removeprefix('[0].')}: {problem.value}: {problem.reason}: {problem.remedy}"
            for problem in error.problems
        ]
        raise UserError("; ".join(wrong)) from None


def _combine(former: tuple[Override, ...], new: Override, combination: Combination) -> tuple[Override, ...]:
    """Return the service's entries with the new one last."""
    if not former or combination is Combination.REPLACE:
        return (new,)
    if combination is not Combination.BESIDE:
        both, last = merge(combine(former), new), max(former, key=lambda entry: entry.until_us)
        ends_with_new = combination is Combination.MERGE_UNTIL or last.until_us <= new.until_us
        return (both if ends_with_new else replace(both, until=last.until),)
    kept = drop_replaced(former, new)
    for entry in kept:
        twice = [thing for thing in new.things if thing in entry.things]
        if twice:
            remedy = (
                "change it with --merge, replace all overrides with --replace,"
                f" or end all with podgate override {new.service} --clear"
            )
            if new.target is not None:
                remedy = "change it with --merge, replace it with --replace, or end it with these options and --clear"
            raise UserError(f"{new.service} has an override of {', '.join(twice)} already: {entry}", remedy)
    return (*kept, new)


def _check_service(policy: Policy, service: str) -> None:
    names = [known.name for known in policy.services]
    if service not in names:
        raise NoSuchServiceError(f"no service {service!r}: the policy has {', '.join(names)}")


def find_doubt(policy: Policy | None, entry: Override) -> str:
    """Return why an entry may have no effect although it is not refused, "" if it has one.

    While a policy comes into force in steps, the one that it replaces may have a variant that it lacks.
    """
    if policy is None or policy.rollout is None or entry.variant is None:
        return ""
    idle = list_remarks(policy, entry)
    return f"{'; '.join(idle)}; the policy that this one replaces in steps may have it" if idle else ""


def _check_effect(policy: Policy, entry: Override) -> None:
    """Reject an entry without effect, which an operator in an incident would not notice."""
    _check_service(policy, entry.service)
    if (idle := list_remarks(policy, entry)) and not find_doubt(policy, entry):
        raise UserError(f"{entry.service}: {'; '.join(idle)}", "see podgate policy render for what the service has")
