"""`podgate status`: how the services stand, as a running server sees them."""

import json
import sys
from collections.abc import Iterable, Sequence
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, build_opener

import click

from webhook.cli.controller_status import CONTROLLER, controller_page
from webhook.errors import UserError
from webhook.offline.output.yaml_text import as_flow
from webhook.support.input_files import bounded
from webhook.support.redaction import masked

DEFAULT_SERVER = "http://127.0.0.1:8081"
TIMEOUT_SECONDS = 5
_PLAIN_PORT = "give --server the plain port (--plain-listen) of podgate serve"
COLOURS = {"CLOSED": "green", "OPEN": "red", "HALF_OPEN": "yellow", "FORCED_OPEN": "red", "FORCED_CLOSED": "yellow"}
LIMIT = ("WINDOW", "RESOURCE", "USED", "HARD", "NEXT FREE")
_HEADINGS = ("SERVICE", "CLASS", "BREAKER", *LIMIT)


class NoSuchServiceError(click.ClickException):
    exit_code = 4


@click.command()
@click.argument("service", required=False)
@click.option("--server", default=DEFAULT_SERVER, show_default=True, help="A server's plain port.")
@click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), help="[default: table on a terminal, json elsewhere]"
)
def status(service: str | None, server: str, output: str | None) -> None:
    """Show services, what is used of their quotas, and their breakers' states and countdowns.

    With the plain port of a controller as --server: whether it leads, and how its store and watches are.

    Exits 0, 2 if the server cannot be reached, 4 if it knows no such SERVICE.
    """
    document = read(server)
    is_controller = document.get("role") == CONTROLLER
    if is_controller and service is not None:
        raise no_services(server)
    if service is not None:
        known = [found["name"] for found in document["services"]]
        if service not in known:
            raise NoSuchServiceError(f"no service {service!r}: the policy in force has {', '.join(known) or 'none'}")
        document["services"] = [found for found in document["services"] if found["name"] == service]
        entries = document["overrides"]["entries"]
        document["overrides"]["entries"] = [entry for entry in entries if entry["service"] == service]
        document["pools"] = [pool for pool in document["pools"] if service in pool["members"]]
    if output == "json" or (output is None and not sys.stdout.isatty()):
        click.echo(json.dumps(document, indent=2))
    else:
        click.echo("\n".join(controller_page(document) if is_controller else page(document)))


def fetch(server: str) -> dict[str, Any]:
    """Read the status document of a server, which has services; UserError says why it cannot be had."""
    document = read(server)
    if document.get("role") == CONTROLLER:
        raise no_services(server)
    return document


def read(server: str) -> dict[str, Any]:
    """Read the status document of a server or a controller; UserError says why it cannot be had."""
    url = server.rstrip("/") + "/status"
    try:
        document = json.loads(_read(url))
    except ValueError:
        document = None
    is_podgate = isinstance(document, dict) and (
        document.get("role") == CONTROLLER or isinstance(document.get("services"), list)
    )
    if not is_podgate:
        raise UserError(f"{masked(url)} answers, but not as Podgate does", _PLAIN_PORT)
    return document  # type: ignore[no-any-return]  # a dict, as was just seen


def no_services(server: str) -> UserError:
    remedy = f"{_PLAIN_PORT}; podgate status --server {masked(server)} shows the controller itself"
    return UserError(f"{masked(server)} is a controller, which shows no services", remedy)


def _read(url: str) -> bytes:
    name = masked(url)
    if not url.startswith(("http://", "https://")):
        raise UserError(f"--server: {name!r} is no URL", f"write one such as {DEFAULT_SERVER}")
    opener = build_opener(ProxyHandler({}))  # a proxy of the environment would be asked for its own loopback
    try:
        with opener.open(url, timeout=TIMEOUT_SECONDS) as answer:
            return bounded(answer, name)
    except HTTPError as error:
        with error:
            raise UserError(f"{name}: HTTP {error.code}", _PLAIN_PORT) from None
    except (OSError, HTTPException, ValueError) as error:
        unread = "its host and port cannot be read"  # what the error says of them may quote a password
        reason = (getattr(error, "reason", None) or error) if isinstance(error, OSError) else unread
        remedy = "start one with `podgate serve`, or give --server the URL of its plain port (--plain-listen)"
        raise UserError(f"no server answers at {name}: {reason}", remedy) from None


def page(document: dict[str, Any]) -> Iterable[str]:
    """Return the lines for a person."""
    policy, store = document["policy"], document["store"]
    store_text = "ok" if store["healthy"] else click.style(store["error"], fg="red")
    yield f"podgate {document['version']}, {document['time']}"
    if document["clientIdentity"] == "reduced":
        yield click.style("reduced mode: callers are not authenticated", fg="red")
    for reason in document.get("notReady", ()):  # an older server does not say
        yield click.style(f"not ready: {reason}", fg="red")
    yield f"policy  {policy['hash'] or 'none'}, loaded {policy['loadedAt'] or 'never'} from {policy['source']}"
    mode = f", {store['mode']}" if store["mode"] else ""
    replicas = document["replicas"]["count"]
    shared = f", for {replicas} servers" if replicas > 1 else ""
    yield f"store   {store['kind']}{shared}: {store_text}{mode}"
    yield from _guard(document["breakerGuard"])
    yield from _overrides(document["overrides"])
    for watch in document["watches"]:
        text = click.style(watch["error"], fg="red") if watch["error"] else "ok" if watch["lastContact"] else "begins"
        heard = f", last heard of at {watch['lastContact']}" if watch["lastContact"] else ""
        yield f"watch   {watch['resource']}: {text}{heard}"
    for certificate in document["certificates"]:
        days = certificate["daysLeft"]
        text = f"{days} days left" if days >= 0 else click.style("EXPIRED", fg="red")
        yield f"certificate {certificate['name']}: {text}"
    for file in document["files"]:
        if file["error"]:
            yield click.style(f"{file['name']} refused, the last good one stays: {file['error']}", fg="red")
    for error in policy["errors"]:
        yield click.style(f"policy refused: {error}", fg="red")
    yield ""
    yield from table([_HEADINGS, *(row for service in document["services"] for row in _rows(service))])
    if document["pools"]:
        yield ""
        yield from table([("POOL", *LIMIT), *(row for pool in document["pools"] for row in limits(pool, pool["name"]))])
    notes = [override_text(entry["service"], entry) for entry in document["overrides"]["entries"]]
    notes += [note for service in document["services"] for note in _notes(service)]
    if notes:
        yield from ("", *notes)


def _guard(guard: dict[str, Any] | None) -> Iterable[str]:
    if guard is not None:
        is_full = guard["open"] >= guard["max"]
        held = click.style(": further trips are held back", fg="red") if is_full else ""
        yield f"breakers  {guard['open']} open, of {guard['max']} that may be (breakerGuard){held}"


def _overrides(overrides: dict[str, Any]) -> Iterable[str]:
    if overrides["source"]:
        yield f"overrides  {len(overrides['entries']) or 'none'} in force, from {overrides['source']}"
    for error in overrides["errors"]:
        yield click.style(f"overrides refused: {error}", fg="red")


def override_text(service: str, override: dict[str, Any]) -> str:
    """Say in one line what is done to a service, until when, and why."""
    told = {"service", "until", "reason", "by", "remainingSeconds", "withoutEffect"}
    done = as_flow({key: value for key, value in override.items() if key not in told})[1:-1]
    text = click.style(f"{service}: override {done}", fg="yellow")
    left = f"until {override['until']} ({countdown(override['remainingSeconds'])} left): {override['reason']}"
    left += f" (by {override['by']})" if override.get("by") else ""
    idle = "; ".join(override["withoutEffect"])
    return f"{text} {left}" + (click.style(f"; without effect: {idle}", fg="red") if idle else "")


def _rows(service: dict[str, Any]) -> Iterable[tuple[str, ...]]:
    return limits(service, service["name"], service["slaClass"], _breaker(service))


def limits(holder: dict[str, Any], *first: str) -> Iterable[tuple[str, ...]]:
    """Return a line for each limit; the holder's own columns only on the first."""
    fleet = "Fleet" if holder["scope"] == "Fleet" else ""
    for window in holder["windows"]:
        name = " ".join(filter(None, (window["window"], window["namespace"], fleet)))
        used = "?" if window["used"] is None else str(window["used"])
        hard = (
            f"{window['hard']} +{window['surge']}" if window.get("surge") not in {None, 0, "0"} else str(window["hard"])
        )
        yield (*first, name, window["resource"], used, hard, _next_free(window))
        first = ("",) * len(first)
    if not holder["windows"]:
        yield (*first, "-", "", "", "", "")


def _next_free(window: dict[str, Any]) -> str:
    if window["used"] is None:
        return "?"
    if window.get("enforced") is False:
        return click.style("not enforced", fg="yellow")
    if window["nextFree"]:
        return f"in {countdown(window['nextFreeSeconds'])}"
    return "-" if window["full"] else "now"


def _breaker(service: dict[str, Any]) -> str:
    if not service["known"]:
        return "unknown"
    breaker = service["breaker"]
    if breaker is None:
        return "-"
    state = breaker["state"]
    text = click.style(state, fg=COLOURS.get(state))
    if breaker["openRemainingSeconds"]:
        return f"{text} {countdown(breaker['openRemainingSeconds'])} left"
    if state == "HALF_OPEN":
        probes = breaker["probes"]
        return f"{text} {probes['succeeded']}/{probes['needed']} probes"
    return text


def _notes(service: dict[str, Any]) -> Iterable[str]:
    """Return what the table has no room for: why a breaker is where it is, and modes that do not enforce."""
    breaker = service["breaker"]
    if breaker is not None and breaker["state"] != "CLOSED":
        yield f"{service['name']}: {_why(breaker)}"
    if any(window.get("enforced") is False for window in service["windows"]):
        yield f"{service['name']}: limits on live Pods are not enforced: Pods are not known yet, or no longer"
    relaxed = [f"{concern} {mode}" for concern, mode in service["modes"].items() if mode != "Enforce"]
    if relaxed:
        yield f"{service['name']}: {', '.join(relaxed)}"


def _why(breaker: dict[str, Any]) -> str:
    """Say since when a breaker is where it is, until when, why, and what tripped it where that is not why."""
    until = f" until {breaker['openUntil']}" if breaker["openUntil"] else ""
    since = f"{breaker['state']} since {breaker['since']}{until} (generation {breaker['generation']})"
    reason = f": {breaker['reason']}" if breaker["reason"] else ""
    tripped = ""
    if breaker["trippedBy"] and breaker["trippedBy"] != breaker["reason"]:
        tripped = f"; tripped at {breaker['trippedAt']} by {breaker['trippedBy']}"
    early = f"; {breaker['probes']['early']} may probe early" if breaker["probes"]["early"] else ""
    return f"{since}{reason}{tripped}{early}"


def table(rows: Sequence[tuple[str, ...]]) -> Iterable[str]:
    """Align columns by what is seen, not by colour codes."""
    widths = [max(len(click.unstyle(row[column])) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = (cell + " " * (width - len(click.unstyle(cell))) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()


def countdown(seconds: int) -> str:
    """Return a span as Go writes it, without what is zero: 2m31s, 1h, 45s."""
    hours, rest = divmod(seconds, 3600)
    minutes, rest = divmod(rest, 60)
    parts = ((hours, "h"), (minutes, "m"), (rest, "s"))
    return "".join(f"{amount}{unit}" for amount, unit in parts if amount) or "0s"
