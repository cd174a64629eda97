"""`podgate breaker`: manual states of one service's breaker, and a table of all breakers."""

import json
import sys
from collections.abc import Callable
from typing import Any

import click

from webhook.cli.options import override_options
from webhook.cli.options.override_options import OverridesLocation, OverrideTerms
from webhook.core.admission.denials import utc
from webhook.core.overrides import ManualBreakerState
from webhook.offline.output.status_page import COLOURS
from webhook.offline.output.table import table
from webhook.offline.status_client import DEFAULT_SERVER, fetch

_HEADINGS = ("SERVICE", "STATE", "SINCE", "TRIGGERED AT", "SECONDS TO RECOVERY", "REASON")


@click.group()
def breaker() -> None:
    """Open, close or reset one service's breaker for a limited time, or list all breakers."""


@breaker.command(name="open")
@click.argument("service")
@override_options.terms()
@override_options.location
def open_(service: str, terms: Callable[[], OverrideTerms], where: OverridesLocation) -> None:
    """Deny all new Pods of SERVICE for a time, whatever its breaker's own state and its mode in the policy.

    This writes an override, see `podgate override`: servers apply it within about a second. When it ends, the breaker
    is closed and its counters are reset. If the service degrades (whenOpen: Degrade), no Pod is denied. Exit codes
    are those of `podgate override`.
    """
    plain = {"service": service, "breaker": ManualBreakerState.FORCED_OPEN.value}
    override_options.put(where, terms(), plain)


@breaker.command()
@click.argument("service")
@override_options.terms()
@override_options.location
def close(service: str, terms: Callable[[], OverrideTerms], where: OverridesLocation) -> None:
    """Admit Pods of SERVICE for a time, whatever its breaker's own state. Outcomes are ignored meanwhile.

    This writes an override, see `podgate override`: servers apply it within about a second. Exit codes are those of
    `podgate override`.
    """
    plain = {"service": service, "breaker": ManualBreakerState.FORCED_CLOSED.value}
    override_options.put(where, terms(), plain)


@breaker.command()
@click.argument("service")
@override_options.terms("10m")
@override_options.location
def reset(service: str, terms: Callable[[], OverrideTerms], where: OverridesLocation) -> None:
    """Close SERVICE's breaker once and reset its counters; from then on it works automatically.

    This also ends the effect of `open` or `close`. It writes an override, which the controller executes once, and not
    after its end. Exit codes are those of `podgate override`.
    """
    reset_at = utc(override_options.now_us())
    plain = {"service": service, "breaker": ManualBreakerState.AUTOMATIC.value, "resetAt": reset_at}
    override_options.put(where, terms(), plain)


@breaker.command(name="list")
@click.option(
    "--server", default=DEFAULT_SERVER, show_default=True, help="URL of a server's health port (--plain-listen)."
)
@click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), help="[default: table on a terminal, json elsewhere]"
)
def list_(server: str, output: str | None) -> None:
    """List all breakers: state, since when, last trigger, seconds until it admits Pods again, and reason.

    TRIGGERED AT is when the breaker last opened automatically, as in ServiceStatuses.

    Exit code: 0 success, 2 the server cannot be reached.
    """
    rows = [_row(service) for service in fetch(server)["services"] if service["breaker"] or not service["known"]]
    if output == "json" or (output is None and not sys.stdout.isatty()):
        click.echo(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    cells = [tuple(_cell(name, value) for name, value in row.items()) for row in rows]
    click.echo("\n".join(table([_HEADINGS, *cells])) if cells else "no service has a breaker")


def _row(service: dict[str, Any]) -> dict[str, Any]:
    """Return the row of one breaker; null for absent and unknown values."""
    found = service["breaker"] or {}
    state = found.get("state")
    return {
        "service": service["name"],
        "state": state,
        "since": found.get("since"),
        "triggeredAt": found.get("trippedAt"),
        "secondsToRecovery": found["openRemainingSeconds"] if state in {"OPEN", "FORCED_OPEN"} else None,
        "reason": found.get("reason", ""),
    }


def _cell(name: str, value: Any) -> str:
    if name == "state":
        return click.style(value, fg=COLOURS.get(value)) if value else "unknown"
    return "-" if value is None else str(value)
