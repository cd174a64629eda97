"""`podgate quota`: one service's quota: usage, temporary grants, and resets."""

from collections.abc import Callable
from typing import Any

import click

from webhook.cli.options import override_options
from webhook.cli.options.command_group import CommandGroup, format_document, output_option
from webhook.cli.options.override_options import OverridesLocation, OverrideTerms
from webhook.cli.options.server_options import (
    require_server,
    server_options,
    service_argument,
    show_status,
    watch_option,
)
from webhook.commands.clients.status_client import find_service
from webhook.commands.pages.status_page import LIMIT, build_limit_rows, format_override
from webhook.commands.pages.table import format_table
from webhook.core.admission.denials import format_utc
from webhook.core.plain_text import escape_document
from webhook.operations.server_discovery import ServerLocation

_SHOWN = ("name", "pool", "scope", "modes", "known", "windows", "standing", "schedule", "override")


@click.group(cls=CommandGroup)
def quota() -> None:
    """Show one service's quota, grant more for a limited time, or reset its counters."""


@quota.command()
@service_argument
@server_options
@output_option()
@watch_option
def show(*, service: str, where: ServerLocation, output: str | None, watch: bool) -> None:
    """Show the usage of the limits of SERVICE and of its pool, when more becomes free, and the override in force.

    Exit code: 0 success, 2 the server cannot be reached, 4 it has no such SERVICE.
    """
    show_status(
        where, lambda document, name: _format_quota(require_server(document, name), service, output), watch=watch
    )


def _format_quota(document: dict[str, Any], service: str, output: str | None) -> str:
    found = find_service(document, service)
    pool = next((pool for pool in document["pools"] if pool["name"] == found["pool"]), None)
    shown = {key: found[key] for key in _SHOWN if key in found}
    text = format_document({**shown, "pool": pool}, output)
    if text is not None:
        return text
    found, pool = escape_document(found), escape_document(pool)
    rows = [*build_limit_rows(found, found["name"]), *(build_limit_rows(pool, f"pool {pool['name']}") if pool else ())]
    lines = list(format_table([("OF", *LIMIT), *rows]))
    if found["modes"]["quota"] != "Enforce":
        lines += ["", f"{found['name']}: quota {found['modes']['quota']}"]
    if found.get("schedule"):  # missing from an older server
        lines += ["", f"schedule: {found['schedule']['text']}"]
    if found["override"]:
        lines += ["", format_override(found["name"], found["override"])]
    return "\n".join(lines)


@quota.command()
@service_argument
@click.option("--window", required=True, metavar="DURATION", help="One of the service's own windows, such as 1m.")
@click.option(
    "--hard",
    "hard",
    required=True,
    multiple=True,
    metavar="RESOURCE=AMOUNT",
    help="Amount to add, such as pods=100 or cpu=40; repeatable.",
)
@override_options.term_options()
@override_options.location_options
def grant(
    service: str, window: str, hard: tuple[str, ...], terms: Callable[[], OverrideTerms], where: OverridesLocation
) -> None:
    """Add to the limits of one of SERVICE's own windows for a limited time. See `podgate override`.

    \b
    podgate quota grant payment-api --window 1m --hard pods=100 --for 30m --reason INC-1234

    With --merge, a grant for the same window and resource replaces the former one. Exit codes are those of `podgate
    override`.
    """  # noqa: D301 - the backslash-b keeps click from filling this line
    amounts = override_options.parse_pairs("--hard", hard, "pods=100")
    override_options.put(where, terms(), {"service": service, "grant": [{"window": window, "hard": amounts}]})


@quota.command()
@service_argument
@click.option("--window", metavar="DURATION", help="Reset only this one of the service's own windows.")
@override_options.term_options("10m")
@override_options.location_options
def reset(service: str, window: str | None, terms: Callable[[], OverrideTerms], where: OverridesLocation) -> None:
    """Reset the counters of SERVICE's own windows once; later Pods are counted as usual.

    It writes an override, which the controller executes once, and not after its end. Exit codes are those of `podgate
    override`.
    """
    wanted: dict[str, Any] = {"at": format_utc(override_options.read_now_us())}
    if window is not None:
        wanted["window"] = window
    override_options.put(where, terms(), {"service": service, "quotaReset": wanted})
