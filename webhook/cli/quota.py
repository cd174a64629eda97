"""`podgate quota`: one service's quota, shown and mended by hand."""

import json
import sys
from collections.abc import Callable
from typing import Any

import click

from webhook.cli.options import override_options
from webhook.cli.options.override_options import Span, Where
from webhook.cli.status import DEFAULT_SERVER, LIMIT, NoSuchServiceError, fetch, limits, override_text, table
from webhook.core.admission.denials import utc

_SHOWN = ("name", "pool", "scope", "modes", "known", "windows", "standing", "override")


@click.group()
def quota() -> None:
    """Show one service's quota, grant more for a time, forget what was counted."""


@quota.command()
@click.argument("service")
@click.option("--server", default=DEFAULT_SERVER, show_default=True, help="A server's plain port.")
@click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), help="[default: table on a terminal, json elsewhere]"
)
def show(service: str, server: str, output: str | None) -> None:
    """Show what is used of SERVICE's limits and its pool's, when there is room, and the override in force.

    Exits 0, 2 if the server cannot be reached, 4 if it knows no such SERVICE.
    """
    document = fetch(server)
    found = next((one for one in document["services"] if one["name"] == service), None)
    if found is None:
        names = ", ".join(one["name"] for one in document["services"]) or "none"
        raise NoSuchServiceError(f"no service {service!r}: the policy in force has {names}")
    pool = next((one for one in document["pools"] if one["name"] == found["pool"]), None)
    if output == "json" or (output is None and not sys.stdout.isatty()):
        shown = {key: found[key] for key in _SHOWN if key in found}
        click.echo(json.dumps({**shown, "pool": pool}, indent=2, ensure_ascii=False))
        return
    rows = [*limits(found, found["name"]), *(limits(pool, f"pool {pool['name']}") if pool else ())]
    click.echo("\n".join(table([("OF", *LIMIT), *rows])))
    if found["modes"]["quota"] != "Enforce":
        click.echo(f"\n{service}: quota {found['modes']['quota']}")
    if found["override"]:
        click.echo(f"\n{override_text(service, found['override'])}")


@quota.command()
@click.argument("service")
@click.option("--window", required=True, metavar="DURATION", help="Which of its own windows, such as 1m.")
@click.option(
    "--hard", "hard", required=True, multiple=True, metavar="RESOURCE=AMOUNT", help="How much more; repeatable."
)
@override_options.timing()
@override_options.placing
def grant(service: str, window: str, hard: tuple[str, ...], span: Callable[[], Span], where: Where) -> None:
    """Add to the limits of one of SERVICE's own windows, for a time: an override, see `podgate override`.

    With --merge a grant of the same window and resource takes the former one's place. Exits as that does.
    """
    amounts = override_options.pairs("--hard", hard, "pods=100")
    override_options.put(where, span(), {"service": service, "grant": [{"window": window, "hard": amounts}]})


@quota.command()
@click.argument("service")
@click.option("--window", metavar="DURATION", help="Only this one of its own windows.")
@override_options.timing("10m")
@override_options.placing
def reset(service: str, window: str | None, span: Callable[[], Span], where: Where) -> None:
    """Forget what SERVICE's own windows have counted until now, once; what comes afterwards counts as ever.

    An override too, which the controller takes up; its end only ends the waiting for that. Exits as `podgate override`.
    """
    wanted: dict[str, Any] = {"at": utc(override_options.now_us())}
    if window is not None:
        wanted["window"] = window
    override_options.put(where, span(), {"service": service, "quotaReset": wanted})
