"""Status of a server or controller as text: services, quotas, breakers, overrides, health and leadership."""

from collections.abc import Iterable
from typing import Any

import click

from webhook.commands.pages.table import format_duration, format_table
from webhook.commands.pages.yaml_text import format_flow
from webhook.core.plain_text import escape_document
from webhook.core.quota import STANDING

COLOURS = {"CLOSED": "green", "OPEN": "red", "HALF_OPEN": "yellow", "FORCED_OPEN": "red", "FORCED_CLOSED": "yellow"}
LIMIT = ("WINDOW", "RESOURCE", "USED", "HARD", "NEXT FREE")
_HEADINGS = ("SERVICE", "CLASS", "BREAKER", *LIMIT)


def format_status(document: dict[str, Any]) -> Iterable[str]:
    """Yield the lines of the page."""
    document = escape_document(document)
    policy, store = document["policy"], document["store"]
    store_text = "ok" if store["healthy"] else click.style(store["error"], fg="red")
    yield f"podgate {document['version']}, {document['time']}"
    if document["clientIdentity"] == "reduced":
        yield click.style("reduced mode: callers are not authenticated", fg="red")
    for reason in document.get("notReady", ()):  # missing from an older server
        yield click.style(f"not ready: {reason}", fg="red")
    yield f"policy  {policy['hash'] or 'none'}, loaded {policy['loadedAt'] or 'never'} from {policy['source']}"
    mode = f", {store['mode']}" if store["mode"] else ""
    replicas = document["replicas"]["count"]
    shared = f", for {replicas} servers" if replicas > 1 else ""
    yield f"store   {store['kind']}{shared}: {store_text}{mode}"
    yield from format_rollout(document.get("rollout"))
    yield from _format_overload(document.get("overload"))
    yield from format_queues(document.get("queues"))
    yield from _format_last_review(document)
    yield from _format_guard(document["breakerGuard"])
    yield from _format_overrides(document["overrides"])
    for watch in document["watches"]:
        text = click.style(watch["error"], fg="red") if watch["error"] else "ok" if watch["lastContact"] else "starting"
        contact = f", last contact {watch['lastContact']}" if watch["lastContact"] else ""
        yield f"watch   {watch['resource']}: {text}{contact}"
    yield from format_webhooks(document.get("webhooks"))
    for certificate in document["certificates"]:
        days = certificate["daysLeft"]
        text = f"{days} days left" if days >= 0 else click.style("EXPIRED", fg="red")
        yield f"certificate {certificate['name']}: {text}"
    for file in document["files"]:
        if file["error"]:
            yield click.style(f"{file['name']} rejected, the last valid one is used: {file['error']}", fg="red")
    for error in policy["errors"]:
        yield click.style(f"policy rejected: {error}", fg="red")
    yield ""
    yield from format_table([_HEADINGS, *(row for service in document["services"] for row in _build_rows(service))])
    if document["pools"]:
        yield ""
        yield from format_table(
            [("POOL", *LIMIT), *(row for pool in document["pools"] for row in build_limit_rows(pool, pool["name"]))]
        )
    notes = [format_override(entry["service"], entry) for entry in document["overrides"]["entries"]]
    notes += [note for pool in document["pools"] for note in _list_pool_notes(pool)]
    notes += [note for service in document["services"] for note in _list_notes(service)]
    if notes:
        yield from ("", *notes)


def format_webhooks(found: dict[str, Any] | None) -> Iterable[str]:
    """Yield the lines about the webhook configurations; None from an older server, or one that does not lead."""
    if found is None:
        return
    for text in (*found["outdated"], *([found["error"]] if found["error"] else [])):
        yield click.style(f"webhooks  {text}", fg="red")
    if found["comparedAt"] and not found["outdated"] and not found["error"]:
        yield f"webhooks  agree with the policy, compared {found['comparedAt']}"


def format_rollout(found: dict[str, Any] | None) -> Iterable[str]:
    """Yield the lines about the rollout; None from an older process, or without a rollout."""
    if found is None:
        return
    if found["candidate"]:
        step = f", step {found['step'] + 1}" if found["phase"] == "Canary" else ""
        yield f"rollout  candidate {found['candidate']}: {found['phase']}{step}, since {found['since'] or 'now'}"
    for name, style in (("paused", "yellow"), ("pinned", "yellow")):
        if found[name]:
            yield click.style(f"rollout  {name}: {found[name]['reason']}", fg=style)
    if found["waitsFor"]:
        yield click.style(f"rollout  waits: {found['waitsFor']}", fg="yellow")
    if found["problem"]:
        yield _style_error(f"rollout  not followed: {found['problem']}")
    if found["shadow"]:
        changed = [
            f"{entry['pods']} {entry['difference']} in {entry['service'] or 'no service'}"
            for entry in found["shadow"]["differences"]
        ]
        yield f"shadow   {found['shadow']['judged']} Pods judged here: {', '.join(changed) or 'no difference'}"


def format_queues(found: dict[str, Any] | None) -> Iterable[str]:
    """Yield the line about waiting Pods; None from an older process, or one that does not lead."""
    if found is None:
        return
    parts = [
        f"{depth['waiting']} in {depth['class']}, oldest {format_duration(depth['oldestSeconds'])}"
        for depth in found["classes"]
    ]
    paused = [service["service"] for service in found["services"] if service["paused"]]
    parts += [click.style(f"paused: {', '.join(paused)}", fg="yellow")] if paused else []
    failing = [service["service"] or "no service" for service in found["services"] if service.get("failing")]
    parts += [click.style(f"cannot be released: {', '.join(failing)}", fg="red")] if failing else []
    if parts:
        yield f"waiting  {'; '.join(parts)}"


def _format_overload(found: dict[str, Any] | None) -> Iterable[str]:
    """Yield a line for each reason; None from an older server, or one that is not overloaded."""
    for reason in found["reasons"] if found is not None else ():
        yield click.style(f"overloaded  {reason['message']}", fg="red")
    if found is not None:
        yield f"overloaded  since {found['since']}, Pods gated: {found['gatedPods']}"


def _format_last_review(document: dict[str, Any]) -> Iterable[str]:
    if "lastReviewAt" in document:  # missing from an older server
        none = click.style("none yet: the API server has not called this server", fg="yellow")
        yield f"last review  {document['lastReviewAt'] or none}"


def _format_guard(guard: dict[str, Any] | None) -> Iterable[str]:
    if guard is not None:
        is_full = guard["open"] >= guard["max"]
        held = click.style(": no more breakers will open", fg="red") if is_full else ""
        yield f"breakers  {guard['open']} open, at most {guard['max']} (breakerGuard){held}"


def _format_overrides(overrides: dict[str, Any]) -> Iterable[str]:
    if overrides["source"]:
        yield f"overrides  {len(overrides['entries']) or 'none'} in force, from {overrides['source']}"
    for error in overrides["errors"]:
        yield click.style(f"overrides rejected: {error}", fg="red")


def format_override(service: str, override: dict[str, Any]) -> str:
    """Return an override on one line: its effect, its end and its reason."""
    described = {"service", "until", "reason", "by", "remainingSeconds", "withoutEffect"}
    done = format_flow({key: value for key, value in override.items() if key not in described})[1:-1]
    text = click.style(f"{service}: override {done}", fg="yellow")
    left = f"until {override['until']} ({format_duration(override['remainingSeconds'])} left): {override['reason']}"
    left += f" (by {override['by']})" if override.get("by") else ""
    idle = "; ".join(override["withoutEffect"])
    return f"{text} {left}" + (click.style(f"; without effect: {idle}", fg="red") if idle else "")


def _build_rows(service: dict[str, Any]) -> Iterable[tuple[str, ...]]:
    return build_limit_rows(service, service["name"], service["slaClass"], _format_breaker(service))


def build_limit_rows(holder: dict[str, Any], *first: str) -> Iterable[tuple[str, ...]]:
    """Yield a row for each limit; the columns in `first` are set on the first row only."""
    fleet = "Fleet" if holder["scope"] == "Fleet" else ""
    for window in holder["windows"]:
        name = " ".join(filter(None, (window["window"], window["namespace"] or window.get("team"), fleet)))
        used = "?" if window["used"] is None else str(window["used"])
        hard = (
            f"{window['hard']} +{window['surge']}" if window.get("surge") not in {None, 0, "0"} else str(window["hard"])
        )
        yield (*first, name, window["resource"], used, hard, _format_next_free(window))
        first = ("",) * len(first)
    if not holder["windows"]:
        yield (*first, "-", "", "", "", "")


def _format_next_free(window: dict[str, Any]) -> str:
    if window["used"] is None:
        return "?"
    if window.get("enforced") is False:
        return click.style("not enforced", fg="yellow")
    if window["nextFree"]:
        return f"in {format_duration(window['nextFreeSeconds'])}"
    return "-" if window["full"] else "now"


def _format_breaker(service: dict[str, Any]) -> str:
    if not service["known"]:
        return "unknown"
    breaker = service["breaker"]
    if breaker is None:
        return "-"
    state = breaker["state"]
    text = click.style(state, fg=COLOURS.get(state))
    if breaker["openRemainingSeconds"]:
        return f"{text} {format_duration(breaker['openRemainingSeconds'])} left"
    if state == "HALF_OPEN":
        probes = breaker["probes"]
        return f"{text} {probes['succeeded']}/{probes['needed']} probes"
    return text


def _list_pool_notes(pool: dict[str, Any]) -> Iterable[str]:
    """Yield whether limits on live Pods are enforced, and for each limit with guarantees what its services share."""
    if any(window.get("enforced") is False for window in pool["windows"]):
        yield f"{pool['name']}: limits on live Pods are not enforced: the live Pods of all its services are not known"
    for window in pool["windows"]:
        if "guaranteed" in window:  # older servers have none
            left = "?" if window["sharedLeft"] is None else window["sharedLeft"]
            of_limit = f"{pool['name']}: {_name_limit(window)}"
            yield f"{of_limit}: {window['guaranteed']} guaranteed, {window['shared']} shared, of which {left} left"


def _name_limit(row: dict[str, Any]) -> str:
    return (
        f"{row['resource']} live at one time" if row["window"] == STANDING else f"{row['resource']} in {row['window']}"
    )


def _list_notes(service: dict[str, Any]) -> Iterable[str]:
    """Yield details that the table has no room for: a breaker's reason, and modes other than Enforce."""
    breaker = service["breaker"]
    if breaker is not None and breaker["state"] != "CLOSED":
        yield f"{service['name']}: {_explain_breaker(breaker)}"
    if any(window.get("enforced") is False for window in service["windows"]):
        yield f"{service['name']}: limits on live Pods are not enforced: the live Pods are not known"
    for found in service.get("guaranteed", ()):  # older servers have none
        used, left = ("?" if found[key] is None else found[key] for key in ("used", "left"))
        limit = f"{_name_limit(found)} of pool {service['pool']}"
        yield f"{service['name']}: guaranteed {found['hard']} {limit}: {used} used, {left} left"
    yield from _list_variants(service)
    if service.get("schedule"):  # missing from an older server
        yield f"{service['name']}: schedule: {service['schedule']['text']}"
    relaxed = [f"{concern} {mode}" for concern, mode in service["modes"].items() if mode != "Enforce"]
    if relaxed:
        yield f"{service['name']}: {', '.join(relaxed)}"


def _list_variants(service: dict[str, Any]) -> Iterable[str]:
    """Yield the split of a service with shares, and each breaker that avoids a variant; older servers have none."""
    shares = service.get("shares")
    if shares is None:
        return
    base = f"the first {shares['base']['pods']} {shares['base']['variant']}, then " if shares["base"] else ""
    own = [variant for variant in shares["variants"] if not variant.get("ofCandidate")]
    split = " : ".join(f"{variant['name']} {variant['weight']}" for variant in own)
    yield f"{service['name']}: shares {base}{split or 'of the candidate alone'}"
    for variant in shares["variants"]:
        of = " of the candidate" if variant.get("ofCandidate") else ""
        name, breaker = f"{service['name']}, variant {variant['name']}{of}", variant["breaker"]
        if variant["hasBreaker"] and breaker is None:
            yield f"{name}: breaker unknown"
        elif breaker is not None and breaker["state"] != "CLOSED":
            left = breaker["openRemainingSeconds"]
            shown = f" ({format_duration(left)} left)" if left else ""
            yield click.style(f"{name}: {_explain_breaker(breaker)}{shown}", fg=COLOURS.get(breaker["state"]))


def _explain_breaker(breaker: dict[str, Any]) -> str:
    """Return a breaker's state with its times and reason, and what tripped it if that differs."""
    until = f" until {breaker['openUntil']}" if breaker["openUntil"] else ""
    since = f"{breaker['state']} since {breaker['since']}{until} (generation {breaker['generation']})"
    reason = f": {breaker['reason']}" if breaker["reason"] else ""
    tripped = ""
    if breaker["trippedBy"] and breaker["trippedBy"] != breaker["reason"]:
        tripped = f"; tripped at {breaker['trippedAt']} by {breaker['trippedBy']}"
    early = f"; {breaker['probes']['early']} may probe early" if breaker["probes"]["early"] else ""
    return f"{since}{reason}{tripped}{early}"


def format_controller(document: dict[str, Any]) -> Iterable[str]:
    """Yield the lines of the page. Fields that an older controller lacks are left out."""
    document = escape_document(document)
    leadership = "leads" if document["leads"] else f"stands by: {document['waitsFor']}"
    yield f"podgate {document['version']}, controller: {leadership}"
    for reason in document.get("notReady", ()):
        yield _style_error(f"not ready: {reason}")
    policy, store = document["policy"], document["store"]
    yield f"policy  {policy['hash'] or 'none'} from {policy['source']}"
    yield from format_rollout(document.get("rollout"))
    yield f"store   {store['kind']}: {_style_error(store['error']) if store['error'] else 'ok'}"
    for error in policy.get("errors", ()):
        yield _style_error(f"policy refused: {error}")
    for resource, error in document["watches"].items():
        yield f"watch   {resource}: {_style_error(error) if error else 'ok'}"
    yield from format_webhooks(document.get("webhooks"))
    yield from format_queues(document.get("queues"))
    certificates = document["certificates"]
    if certificates is not None:
        yield f"certificates  kept by {certificates['keptBy']}"
        for secret, end in certificates["secrets"].items():
            yield f"certificate {secret}: until {end}"
        for error in certificates["errors"]:
            yield _style_error(f"certificates: {error}")
    yield "services, quotas and breakers are shown by podgate serve: give --server its plain port"


def _style_error(text: str) -> str:
    return click.style(text, fg="red")
