"""Options of the commands that write overrides: location, end, reason, and combination with existing overrides."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import click

from webhook.cli.options import durations
from webhook.cli.options.cluster_options import kubeconfig_options
from webhook.core.document import DocumentError
from webhook.core.document.loading import load_unproved
from webhook.core.kubernetes.timestamps import format_rfc3339, parse_microseconds
from webhook.core.overrides import Override
from webhook.core.plain_text import escape_line
from webhook.core.policy.model import Policy
from webhook.errors import UserError
from webhook.policy_in_force.overrides_editor import (
    UNCHECKED,
    Combination,
    OverridesEditor,
    find_doubt,
    parse_new_entry,
    read_checking_policy,
)
from webhook.ports import OverridesStore
from webhook.support.input_files import read_content
from webhook.support.kubeconfig import Kubeconfig

_PATH = click.Path(path_type=Path)


@dataclass(frozen=True, slots=True)
class OverridesLocation:
    """Location of the overrides: a file, or the cluster; `policy` is a file to check them against."""

    kubeconfig: Kubeconfig
    file: Path | None
    policy: Path | None
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class OverrideTerms:
    """End and reason of a new entry, and its combination with those in force."""

    until: str
    reason: str
    combination: Combination


def location_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options for the location of the overrides, passed as `where`."""

    @kubeconfig_options()
    @click.option(
        "--overrides", "file", type=_PATH, envvar="PODGATE_OVERRIDES", help="Write to this file instead of a cluster."
    )
    @click.option(
        "--policy",
        type=_PATH,
        envvar="PODGATE_POLICY",
        help="Policy to check against.  [default: the cluster's]",
    )
    @click.option("--dry-run", is_flag=True, help="Check and print what would be written, and write nothing.")
    @wraps(command)
    def run(*, kubeconfig: Kubeconfig, file: Path | None, policy: Path | None, dry_run: bool, **rest: Any) -> None:
        command(where=OverridesLocation(kubeconfig, file, policy, dry_run), **rest)

    return run


def term_options(default: str | None = None) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the options of a new entry, passed as `terms`: a function, since not every mode of a command needs them."""
    suffix = f"  [default: {default}]" if default else ""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @click.option("--for", "length", metavar="DURATION", help=f"Duration, such as 10m or 1h30m.{suffix}")
        @click.option("--until", metavar="TIME", help="End, such as 2026-12-01T04:00:00Z.")
        @click.option("--reason", help="Reason, such as an incident or a ticket; required.")
        @click.option("--merge", is_flag=True, help="Merge with the overrides in force for the service.")
        @click.option("--replace", is_flag=True, help="Replace all overrides in force for the service.")
        @wraps(command)
        def run(
            *, length: str | None, until: str | None, reason: str | None, merge: bool, replace: bool, **rest: Any
        ) -> None:
            def entry_terms() -> OverrideTerms:
                if merge and replace:
                    raise UserError("--merge and --replace exclude each other", "give one of the two")
                if not reason:
                    raise UserError("--reason: missing", "give one, such as --reason INC-1234")
                end = _choose_end(length, until, default)
                if replace:
                    combination = Combination.REPLACE
                elif not merge:
                    combination = Combination.BESIDE
                else:
                    is_given = length is not None or until is not None
                    combination = Combination.MERGE_UNTIL if is_given else Combination.MERGE
                return OverrideTerms(end, reason, combination)

            command(terms=entry_terms, **rest)

        return run

    return decorate


def _choose_end(length: str | None, until: str | None, default: str | None) -> str:
    if (length is None) == (until is None) and (until is not None or default is None):
        raise UserError("give --for or --until, one of the two", "such as --for 10m")
    if until is not None:
        try:
            ended = parse_microseconds(until) <= read_now_us()
        except ValueError as error:
            raise UserError(f"--until: {until!r}: {error}") from None
        if ended:
            raise UserError(f"--until: {until!r}: in the past", "give a future time, or --for 10m")
        return until
    return format_rfc3339(
        read_now_us() + durations.parse_microseconds("--for:", length or default or "", durations.MONTH)
    )


def read_now_us() -> int:
    return time.time_ns() // 1000


def parse_pairs(option: str, given: tuple[str, ...], example: str) -> dict[str, str]:
    """Parse a repeatable option of the form NAME=VALUE."""
    found: dict[str, str] = {}
    for text in given:
        name, separator, value = text.partition("=")
        if not (separator and name and value):
            raise UserError(f"{option}: {text!r}: not NAME=VALUE", f"write {option} {example}")
        if name in found:
            raise UserError(f"{option}: {name} is given twice", "keep one of the two")
        found[name] = value
    return found


def put(where: OverridesLocation, terms: OverrideTerms, plain: dict[str, Any]) -> None:
    """Write an entry with the fields `plain`, an end and a reason, and print the overrides now in force."""
    entry = parse_new_entry({**plain, "until": terms.until, "reason": terms.reason})

    async def run() -> tuple[Override, str]:
        async with _open_store(where) as store:
            policy = await _read_policy(where, store)
            result = await OverridesEditor(store, policy, read_now_us).add(entry, terms.combination)
            if doubt := find_doubt(policy, entry):
                click.echo(escape_line(f"warning: {entry.service}: {doubt}"), err=True)
            return result, store.place

    result, place = asyncio.run(run())
    click.echo(escape_line(f"{entry.service}: {result}"))
    click.echo(f"dry run: nothing is written to {place}" if where.dry_run else f"written to {place}", err=True)


def clear(where: OverridesLocation, service: str, target: dict[str, Any]) -> None:
    """End all overrides of a service, or those of the Pods or the variant that `target` names, and print them."""
    key = ""
    if target:
        end = format_rfc3339(read_now_us())
        changes = {} if "variant" in target else {"quotaFactor": 1}
        key = parse_new_entry({"service": service, **target, **changes, "until": end, "reason": "-"}).target_key

    async def run() -> tuple[tuple[Override, ...], str]:
        async with _open_store(where) as store:
            editor = OverridesEditor(store, await _read_policy(where, store), read_now_us)
            return await editor.clear(service, key), store.place

    ended, place = asyncio.run(run())
    for entry in ended:
        click.echo(escape_line(f"{service}: {'would end' if where.dry_run else 'ended'}: {entry}"))
    if not ended:
        click.echo(f"{service}: there was no override in {place}")


def list_in_force(where: OverridesLocation) -> list[Override]:
    """Return the overrides in force, by service."""

    async def run() -> list[Override]:
        async with _open_store(where) as store:
            return await OverridesEditor(store, None, read_now_us).list_live()

    return asyncio.run(run())


@asynccontextmanager
async def _open_store(where: OverridesLocation) -> AsyncIterator[OverridesStore]:
    from webhook.operations.stored_documents import open_overrides  # noqa: PLC0415  --help needs no client

    async with open_overrides(where.kubeconfig, where.file, dry_run=where.dry_run) as store:
        yield store


async def _read_policy(where: OverridesLocation, store: OverridesStore) -> Policy | None:
    """Return the policy to check against; if the cluster's cannot be read, warn and go on without it."""
    if where.policy is not None:
        try:
            return load_unproved(read_content(where.policy, "give the path of a policy document"), None).policy
        except DocumentError as error:
            raise UserError(f"{where.policy}:{error}") from None
    policy, reason = await read_checking_policy(store)
    if reason:
        remedy = ": give --policy" if reason == UNCHECKED else ""
        click.echo(escape_line(f"warning: {reason}{remedy}"), err=True)
    return policy
