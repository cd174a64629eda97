"""What the commands that override have in common: where they write, until when, why, and beside what is there."""

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from webhook.cli.status import NoSuchServiceError
from webhook.core.document import DocumentError
from webhook.core.document.loading import unproved
from webhook.core.kubernetes.quantity import Duration
from webhook.core.kubernetes.timestamps import microseconds, rfc3339
from webhook.core.overrides import Override, combined, merged, remarks
from webhook.core.overrides_document import OverridesDocument, cleared, displaced, drafted, load, placed
from webhook.core.overrides_document import written as document_of
from webhook.core.policy.model import Policy
from webhook.errors import UserError
from webhook.ports import OverridesBook
from webhook.support.input_files import content

_TRIES = 10
_PATH = click.Path(path_type=Path)
_KUBECONFIG = Path("~/.kube/config")


@dataclass(frozen=True, slots=True)
class Where:
    """The overrides, and the policy that they are checked against where it is not beside them."""

    kubeconfig: Path
    file: Path | None
    policy: Path | None


@dataclass(frozen=True, slots=True)
class Span:
    """How long an entry is to be live and why. `is_told`: its end was asked for, and not left to the command."""

    until: str
    is_told: bool
    reason: str
    merge: bool
    replace: bool


def placing(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that say where overrides are; it gets them as `where`."""

    @click.option(
        "--kubeconfig", type=_PATH, envvar="KUBECONFIG", help="The cluster, and who you are.  [default: ~/.kube/config]"
    )
    @click.option(
        "--overrides", "file", type=_PATH, envvar="PODGATE_OVERRIDES", help="A file instead, without a cluster."
    )
    @click.option(
        "--policy", type=_PATH, envvar="PODGATE_POLICY", help="Check against this document.  [default: the cluster's]"
    )
    @wraps(command)
    def run(*, kubeconfig: Path | None, file: Path | None, policy: Path | None, **rest: Any) -> None:
        command(where=Where(kubeconfig or _KUBECONFIG.expanduser(), file, policy), **rest)

    return run


def timing(default: str | None = None) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of a new entry; it gets them as `span`, a function, for not every use has one."""
    suffix = f"  [default: {default}]" if default else ""

    def given(command: Callable[..., None]) -> Callable[..., None]:
        @click.option("--for", "length", metavar="DURATION", help=f"How long it holds, such as 10m or 1h30m.{suffix}")
        @click.option("--until", metavar="TIME", help="Until when it holds, such as 2026-12-01T04:00:00Z.")
        @click.option("--reason", help="Why: an incident, a ticket, a name.")
        @click.option("--merge", is_flag=True, help="Make one of this and of what is in force for the service.")
        @click.option("--replace", is_flag=True, help="Put this in the place of all that is in force for the service.")
        @wraps(command)
        def run(
            *, length: str | None, until: str | None, reason: str | None, merge: bool, replace: bool, **rest: Any
        ) -> None:
            def span() -> Span:
                if merge and replace:
                    raise UserError("--merge and --replace exclude each other", "give one of the two")
                if not reason:
                    raise UserError("--reason: missing", "say why, such as --reason INC-1234")
                end = _end(length, until, default)
                return Span(end, length is not None or until is not None, reason, merge, replace)

            command(span=span, **rest)

        return run

    return given


def _end(length: str | None, until: str | None, default: str | None) -> str:
    if (length is None) == (until is None) and (until is not None or default is None):
        raise UserError("give --for or --until, one of the two", "such as --for 10m")
    if until is not None:
        try:
            ended = microseconds(until) <= now_us()
        except ValueError as error:
            raise UserError(f"--until: {until!r}: {error}") from None
        if ended:
            raise UserError(f"--until: {until!r}: in the past", "write a time to come, or give --for 10m")
        return until
    text = length or default or ""
    try:
        return rfc3339(now_us() + Duration.parse(text).us)
    except (ValueError, OverflowError) as error:
        raise UserError(f"--for: {text!r}: {error}") from None


def now_us() -> int:
    return time.time_ns() // 1000


def pairs(option: str, given: tuple[str, ...], example: str) -> dict[str, str]:
    """Return what an option of `NAME=VALUE` says that may be given several times."""
    found: dict[str, str] = {}
    for text in given:
        name, separator, value = text.partition("=")
        if not (separator and name and value):
            raise UserError(f"{option}: {text!r}: not NAME=VALUE", f"write {option} {example}")
        if name in found:
            raise UserError(f"{option}: {name} is given twice", "keep one of the two")
        found[name] = value
    return found


def put(where: Where, span: Span, plain: dict[str, Any]) -> None:
    """Write an entry, `plain` as it stands in a document but for until and reason, and say what holds now."""
    asked = _entry({**plain, "until": span.until, "reason": span.reason})
    done: list[Override] = []

    def edit(document: OverridesDocument, policy: Policy | None, author: str | None) -> tuple[Override, ...]:
        new = replace(asked, by=author)
        if policy is not None:
            _refuse_idle(policy, new)
        its = _beside(document.live(now_us()).get(new.service, ()), new, span)
        done[:] = its[-1:]
        return placed(document.entries, new.service, its, now_us())

    place = asyncio.run(_change(where, edit))
    click.echo(f"{asked.service}: {done[0]}")
    click.echo(f"written to {place}", err=True)


def clear(where: Where, service: str) -> None:
    """End all that is in force for a service."""
    ended: list[Override] = []

    def edit(document: OverridesDocument, policy: Policy | None, _: str | None) -> tuple[Override, ...]:
        live = document.live(now_us())
        if service not in live and policy is not None:
            _refuse_unknown(policy, service)
        ended[:] = live.get(service, ())
        return cleared(document.entries, service, now_us())

    place = asyncio.run(_change(where, edit))
    for entry in ended:
        click.echo(f"{service}: ended: {entry}")
    if not ended:
        click.echo(f"{service}: there was no override in {place}")


def in_force(where: Where) -> list[Override]:
    """Return the live entries, by service."""

    async def look() -> list[Override]:
        async with _opened(where) as book:
            live = _document(await book.read(), book.place).live(now_us())
            return [entry for service in sorted(live) for entry in live[service]]

    return asyncio.run(look())


def _opened(where: Where) -> AbstractAsyncContextManager[OverridesBook]:
    from webhook.app.overrides_store import open_overrides  # noqa: PLC0415  --help needs no client

    return open_overrides(where.kubeconfig, where.file)


async def _change(
    where: Where, edit: Callable[[OverridesDocument, Policy | None, str | None], tuple[Override, ...]]
) -> str:
    async with _opened(where) as book:
        policy, author = await _policy(where, book), await book.author()
        for _ in range(_TRIES):
            document = _document(await book.read(), book.place)
            entries = edit(document, policy, author)
            if entries == document.entries or await book.write(document_of(entries)):
                return book.place
        raise UserError(f"{book.place}: changed by others again and again", "try once more")


def _document(raw: bytes, place: str) -> OverridesDocument:
    """Return the overrides as they are; what is wrong in them is not ours to mend."""
    try:
        document = load(raw)
        problems = document.clashes(now_us())
    except DocumentError as error:
        problems = error.problems
    if problems:
        listed = "\n".join(f"  {place}:{problem}" for problem in problems)
        raise UserError(f"{place}: the overrides are refused as they are: mend what is listed here\n{listed}")
    return document


async def _policy(where: Where, book: OverridesBook) -> Policy | None:
    """Return the policy to check against; where it cannot be had, say so and go on: nights are short."""
    try:
        given = where.policy
        raw = await book.policy() if given is None else content(given, "give the path of a policy document")
        return None if raw is None else unproved(raw, None).policy
    except (UserError, DocumentError) as error:
        if where.policy is not None:
            raise error if isinstance(error, UserError) else UserError(f"{where.policy}:{error}") from None
        click.echo(f"warning: not checked against the policy: {str(error).splitlines()[0]}", err=True)
        return None


def _entry(plain: dict[str, Any]) -> Override:
    """Return an entry, checked as any other one is."""
    try:
        return drafted(plain)
    except DocumentError as error:
        wrong = [
            f"{problem.path.removeprefix('[0].')}: {problem.value}: {problem.reason}: {problem.remedy}"
            for problem in error.problems
        ]
        raise UserError("; ".join(wrong)) from None


def _refuse_unknown(policy: Policy, service: str) -> None:
    names = [known.name for known in policy.services]
    if service not in names:
        raise NoSuchServiceError(f"no service {service!r}: the policy has {', '.join(names)}")


def _refuse_idle(policy: Policy, entry: Override) -> None:
    """Refuse what would do nothing: at night nobody looks twice."""
    _refuse_unknown(policy, entry.service)
    if idle := remarks(policy, entry):
        raise UserError(f"{entry.service}: {'; '.join(idle)}", "see podgate policy render for what the service has")


def _beside(former: tuple[Override, ...], new: Override, span: Span) -> tuple[Override, ...]:
    """Return the service's entries with the new one, which is the last; UserError where it sets what one has set."""
    if not former or span.replace:
        return (new,)
    if span.merge:
        both, last = merged(combined(former), new), max(former, key=lambda entry: entry.until_us)
        return (both if span.is_told or last.until_us <= new.until_us else replace(both, until=last.until),)
    kept = displaced(former, new)
    for entry in kept:
        twice = [thing for thing in new.things if thing in entry.things]
        if twice:
            remedy = (
                "change it with --merge, put this in the place of all with --replace,"
                f" or end all with podgate override {new.service} --clear"
            )
            raise UserError(f"{new.service} has an override of {', '.join(twice)} already: {entry}", remedy)
    return (*kept, new)
