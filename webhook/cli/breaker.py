"""`podgate breaker`: manual states of one service's breaker, and a table of all breakers."""

from collections.abc import Callable
from typing import Any

import click

from webhook.cli.options import override_options
from webhook.cli.options.command_group import WIDE, CommandGroup, format_document, output_option
from webhook.cli.options.override_options import OverridesLocation, OverrideTerms
from webhook.cli.options.server_options import (
    require_server,
    server_options,
    service_argument,
    show_status,
    watch_option,
)
from webhook.commands.pages.status_page import COLOURS
from webhook.commands.pages.table import format_table
from webhook.core.admission.denials import format_utc
from webhook.core.breaker import BreakerOwner
from webhook.core.overrides import ManualBreakerState
from webhook.core.plain_text import escape_document
from webhook.core.policy_fields import Mode
from webhook.operations.server_discovery import ServerLocation

_variant_option = click.option(
    "--variant", metavar="NAME", help="The breaker of this variant of placement.shares, which chooses among variants."
)
_HEADINGS = ("SERVICE", "STATE", "SINCE", "TRIGGERED AT", "SECONDS TO RECOVERY", "REASON")
_WIDE_HEADINGS = ("MODE", "GENERATION", "OPEN UNTIL", "TRIPPED BY")


@click.group(cls=CommandGroup)
def breaker() -> None:
    """Open, close or reset one breaker, of a service or a variant, for a limited time; or list all breakers."""


@breaker.command(name="open")
@service_argument
@_variant_option
@override_options.term_options()
@override_options.location_options
def open_(service: str, variant: str | None, terms: Callable[[], OverrideTerms], where: OverridesLocation) -> None:
    """Deny all new Pods of SERVICE for a time, whatever its breaker's own state and its mode in the policy.

    \b
    podgate breaker open payment-api --for 10m --reason INC-1234
    podgate breaker open payment-api --variant spot --for 10m --reason INC-1234

    With --variant no Pod is denied: new Pods get the next variant, and those that wait for a node of it are evicted.

    This writes an override, see `podgate override`: servers apply it within about a second. When it ends, the breaker
    is closed and its counters are reset. If the service degrades (whenOpen: Degrade), no Pod is denied. Exit codes
    are those of `podgate override`.
    """  # noqa: D301 - the backslash-b keeps click from filling this line
    plain = {"breaker": ManualBreakerState.FORCED_OPEN.value}
    override_options.put(where, terms(), _name_breaker(service, variant) | plain)


@breaker.command()
@service_argument
@_variant_option
@override_options.term_options()
@override_options.location_options
def close(service: str, variant: str | None, terms: Callable[[], OverrideTerms], where: OverridesLocation) -> None:
    """Admit Pods of SERVICE for a time, whatever its breaker's own state. Outcomes are ignored meanwhile.

    With --variant new Pods get the variant, even if Pods of it have found no node.

    This writes an override, see `podgate override`: servers apply it within about a second. Exit codes are those of
    `podgate override`.
    """
    plain = {"breaker": ManualBreakerState.FORCED_CLOSED.value}
    override_options.put(where, terms(), _name_breaker(service, variant) | plain)


@breaker.command()
@service_argument
@_variant_option
@override_options.term_options("10m")
@override_options.location_options
def reset(service: str, variant: str | None, terms: Callable[[], OverrideTerms], where: OverridesLocation) -> None:
    """Close SERVICE's breaker once and reset its counters; from then on it works automatically.

    This also ends the effect of `open` or `close`. It writes an override, which the controller executes once, and not
    after its end. Exit codes are those of `podgate override`.
    """
    reset_at = format_utc(override_options.read_now_us())
    plain = {"breaker": ManualBreakerState.AUTOMATIC.value, "resetAt": reset_at}
    override_options.put(where, terms(), _name_breaker(service, variant) | plain)


def _name_breaker(service: str, variant: str | None) -> dict[str, Any]:
    """Return the fields of an entry that say which breaker it is about."""
    return {"service": service} if variant is None else {"service": service, "variant": variant}


@breaker.command(name="list")
@server_options
@output_option()
@watch_option
def list_(*, where: ServerLocation, output: str | None, watch: bool) -> None:
    """List all breakers: state, since when, last trigger, seconds until it admits Pods again, and reason.

    Those of variants follow as SERVICE/VARIANT.

    TRIGGERED AT is when the breaker last opened automatically, as in ServiceStatuses.

    Exit code: 0 success, 2 the server cannot be reached.
    """
    show_status(where, lambda document, name: _format_breakers(require_server(document, name), output), watch=watch)


def _format_breakers(document: dict[str, Any], output: str | None) -> str:
    found = [service for service in document["services"] if service["breaker"] or not service["known"]]
    found += [_make_variant(service, each) for service in document["services"] for each in _list_variants(service)]
    rows = [_build_row(service) for service in found]
    text = format_document(rows, output)
    if text is not None:
        return text
    if not rows:
        return "no service has a breaker"
    rows, found = escape_document(rows), escape_document(found)
    cells = [_format_cells(row) for row in rows]
    if output != WIDE:
        return "\n".join(format_table([_HEADINGS, *cells]))
    wide = [(*row, *_format_wide_cells(service)) for row, service in zip(cells, found, strict=True)]
    return "\n".join(format_table([(*_HEADINGS, *_WIDE_HEADINGS), *wide]))


def _list_variants(service: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the variants that have a breaker; an older server has none."""
    return [variant for variant in (service.get("shares") or {}).get("variants", ()) if variant["hasBreaker"]]


def _make_variant(service: dict[str, Any], variant: dict[str, Any]) -> dict[str, Any]:
    """Return a variant in the form of a service."""
    modes = {"breaker": Mode.ENFORCE.value}
    return {"name": service["name"], "variant": variant["name"], "breaker": variant["breaker"], "modes": modes}


def _build_row(service: dict[str, Any]) -> dict[str, Any]:
    """Return the row of one breaker; null for absent and unknown values."""
    found = service["breaker"] or {}
    state = found.get("state")
    return {
        "service": service["name"],
        "variant": service.get("variant"),
        "state": state,
        "since": found.get("since"),
        "triggeredAt": found.get("trippedAt"),
        "secondsToRecovery": found["openRemainingSeconds"] if state in {"OPEN", "FORCED_OPEN"} else None,
        "reason": found.get("reason", ""),
    }


def _format_cells(row: dict[str, Any]) -> tuple[str, ...]:
    """Return the cells of a row; the first names the service, or SERVICE/VARIANT."""
    name = BreakerOwner(row["service"], row["variant"] or "").name
    others = {key: value for key, value in row.items() if key not in {"service", "variant"}}
    return (name, *(_format_cell(key, value) for key, value in others.items()))


def _format_cell(name: str, value: Any) -> str:
    if name == "state":
        return click.style(value, fg=COLOURS.get(value)) if value else "unknown"
    return "-" if value is None else str(value)


def _format_wide_cells(service: dict[str, Any]) -> tuple[str, ...]:
    found = service["breaker"] or {}
    figures = (found.get(name) for name in ("generation", "openUntil", "trippedBy"))
    return (service["modes"]["breaker"], *("-" if value is None else str(value) for value in figures))
