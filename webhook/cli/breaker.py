"""`podgate breaker`: breakers opened, closed and begun anew by hand, and a table of how all of them stand."""

import json
import sys
from collections.abc import Callable
from typing import Any

import click

from webhook.cli.options import override_options
from webhook.cli.options.override_options import Span, Where
from webhook.cli.status import COLOURS, DEFAULT_SERVER, fetch, table
from webhook.core.admission.denials import utc
from webhook.core.overrides import ManualBreakerState

_HEADINGS = ("SERVICE", "STATE", "SINCE", "TRIGGERED AT", "SECONDS TO RECOVERY", "REASON")


@click.group()
def breaker() -> None:
    """Open, close or reset one service's breaker for a time, with a reason; show how all of them stand."""


@breaker.command(name="open")
@click.argument("service")
@override_options.timing()
@override_options.placing
def open_(service: str, span: Callable[[], Span], where: Where) -> None:
    """Keep all new Pods of SERVICE out, for a time, whatever its breaker would do and its mode in the policy says.

    An override, see `podgate override`: servers act on it within a second or so, and it ends by itself: closed, with
    nothing counted yet. Where the service degrades (whenOpen: Degrade) nobody is kept out. Exits as `podgate
    override` does.
    """
    override_options.put(where, span(), {"service": service, "breaker": ManualBreakerState.FORCED_OPEN.value})


@breaker.command()
@click.argument("service")
@override_options.timing()
@override_options.placing
def close(service: str, span: Callable[[], Span], where: Where) -> None:
    """Let Pods of SERVICE in, for a time, whatever its breaker would do by itself: it hears nothing meanwhile.

    An override, see `podgate override`: servers act on it within a second or so, and it ends by itself. Exits as
    that does.
    """
    override_options.put(where, span(), {"service": service, "breaker": ManualBreakerState.FORCED_CLOSED.value})


@breaker.command()
@click.argument("service")
@override_options.timing("10m")
@override_options.placing
def reset(service: str, span: Callable[[], Span], where: Where) -> None:
    """Close SERVICE's breaker once, with nothing of before counted; it goes on by itself from there.

    It also ends what `open` or `close` did. An override too, which the controller takes up; its end only ends the
    waiting for that. Exits as `podgate override` does.
    """
    override_options.put(
        where,
        span(),
        {"service": service, "breaker": ManualBreakerState.AUTOMATIC.value, "resetAt": utc(override_options.now_us())},
    )


@breaker.command(name="list")
@click.option("--server", default=DEFAULT_SERVER, show_default=True, help="A server's plain port.")
@click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), help="[default: table on a terminal, json elsewhere]"
)
def list_(server: str, output: str | None) -> None:
    """Show every breaker: its state and since when, when a trigger last fired, the seconds until it lets Pods in, why.

    TRIGGERED AT is when the breaker last opened by itself, whatever happened to it since, as in ServiceStatuses.

    Exits 0, 2 if the server cannot be reached.
    """
    rows = [_row(service) for service in fetch(server)["services"] if service["breaker"] or not service["known"]]
    if output == "json" or (output is None and not sys.stdout.isatty()):
        click.echo(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    cells = [tuple(_cell(name, value) for name, value in row.items()) for row in rows]
    click.echo("\n".join(table([_HEADINGS, *cells])) if cells else "no service has a breaker")


def _row(service: dict[str, Any]) -> dict[str, Any]:
    """Return how one stands; null is what there is none of, or what is not known."""
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
