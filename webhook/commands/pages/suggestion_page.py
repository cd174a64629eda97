"""Page of a suggestion: a part of a policy as YAML, with its evidence in comments, and the same as a document."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import msgspec

from webhook.commands.pages.yaml_text import format_flow
from webhook.core.plain_text import escape_line
from webhook.core.policy.model import Match
from webhook.core.quota import STANDING
from webhook.core.quota.pod_cost import format_amount
from webhook.core.suggestion.limits import LimitSuggestion
from webhook.core.suggestion.observed_outcomes import BreakerSuggestion, ObservedOutcomes
from webhook.core.suggestion.observed_use import ObservedUse
from webhook.core.suggestion.seen_time import UNKNOWN_TIME, SeenTime
from webhook.core.suggestion.suggestion import SuggestedPool, SuggestedService, Suggestion

_SECOND_US = 1_000_000
_UNOWNED_SHOWN = 5
_DATED = SeenTime(0, 0, is_dated=True)
_HEAD = ("apiVersion: podgate.io/v1alpha1", "kind: Policy")


def format_suggestion(suggestion: Suggestion) -> Iterator[str]:
    """Yield the changes of a policy as YAML lines; only comments if nothing is to be changed."""
    time = suggestion.time or UNKNOWN_TIME
    yield from (f"# {escape_line(line)}" for line in _describe_all(suggestion))
    services = [service for service in suggestion.services if service.is_changed]
    pools = [pool for pool in suggestion.pools if pool.is_changed]
    for found in suggestion.services:
        if not found.is_changed:
            yield from (f"# {escape_line(line)}" for line in _describe_unchanged(found, time))
    if not services:
        if pools:
            yield "# pools to change:"
        for pool in pools:
            yield from (f"# {line}" for line in _format_pool(pool, time))
        return
    yield from _HEAD
    if not suggestion.exempts_daemon_sets:
        yield "exemptions: {daemonSets: false}"
    if pools:
        yield "pools:"
        for pool in pools:
            yield from _format_pool(pool, time)
    yield "services:"
    for found in services:
        yield from _format_service(found, time)


def _describe_all(suggestion: Suggestion) -> Iterator[str]:
    time = suggestion.time
    if time is None:
        yield f"no requests in {suggestion.source}"
    else:
        moments = f"{time.format_moment(time.first_us)} to {time.format_moment(time.last_us)}"
        yield f"{suggestion.requests} requests in {time.format_duration()}, {moments}, from {suggestion.source}"
        unseen = time.list_unseen()
        if unseen:
            yield f"not seen: {'; '.join(unseen)}"
    history = suggestion.history
    if history is not None:
        moments = f"{history.format_moment(history.first_us)} to {history.format_moment(history.last_us)}"
        missing = "".join(f"; {line}" for line in history.list_unseen())
        yield f"measured by Prometheus for {history.format_duration()}, {moments}{missing}"
    yield f"headroom: {suggestion.headroom_percent}% above the largest use, rounded up"
    yield from suggestion.notes
    yield from (f"left out: {count}: {reason}" for reason, count in suggestion.left_out.items())
    for namespace, count in list(suggestion.unowned.items())[:_UNOWNED_SHOWN]:
        yield f"no service: {count} requests in namespace {namespace}"


def _describe_unchanged(found: SuggestedService, time: SeenTime) -> Iterator[str]:
    name = found.service.name
    if not found.requests and found.outcomes is None and not any(limit.use for limit in found.limits):
        yield f"{name}: no requests seen: no numbers"
        return
    yield f"{name}: nothing to change" if found.limits else f"{name}: no use seen: no numbers"
    for limit in found.limits:
        yield f"{name}: {limit.resource} in {limit.window}: {limit.quantity}: {_describe_limit(limit, time)}"
    yield from (f"{name}: {line}" for line in _describe_service(found, time))


def _format_service(found: SuggestedService, time: SeenTime) -> Iterator[str]:
    yield f"- {_format_entry({'name': found.service.name})}"
    yield from (f"  # {escape_line(line)}" for line in _describe_service(found, time))
    yield f"  {_format_entry({'match': _shorten(found.service.match)})}"
    if any(limit.is_changed for limit in found.limits):
        yield "  quota:"
        yield from _format_limits(found.limits, time, "    ")
    if found.breaker is not None:
        yield "  breaker:"
        for field, value in select_fields(found.breaker).items():
            reason = found.breaker.reasons.get(field)
            yield f"    {_format_entry({field: value})}" + (f"  # {reason}" if reason else "")


def _format_pool(pool: SuggestedPool, time: SeenTime) -> Iterator[str]:
    yield f"- {_format_entry({'name': pool.pool.name})}"
    yield from _format_limits(pool.limits, time, "  ")


def _format_limits(limits: Sequence[LimitSuggestion], time: SeenTime, indent: str) -> Iterator[str]:
    windows = [limit for limit in limits if limit.window != STANDING]
    standing = [limit for limit in limits if limit.window == STANDING]
    if windows:
        yield f"{indent}windows:"
    for window, group in groupby(windows, lambda limit: limit.window):
        yield f"{indent}- window: {window}"
        yield f"{indent}  hard:"
        yield from (f"{indent}    {_format_limit(limit, time)}" for limit in group)
    if standing:
        yield f"{indent}standing:"
        yield f"{indent}  hard:"
        yield from (f"{indent}    {_format_limit(limit, time)}" for limit in standing)


def _format_limit(limit: LimitSuggestion, time: SeenTime) -> str:
    return f"{_format_entry({limit.resource: limit.quantity})}  # {escape_line(_describe_limit(limit, time))}"


def _describe_limit(limit: LimitSuggestion, time: SeenTime) -> str:
    """Return the evidence of a limit."""
    if limit.use is None:
        return "kept: less time was seen than this window is long" if limit.is_unseen else "kept: no use seen"
    use = limit.use
    where = f" in namespace {limit.namespace}" if limit.namespace else ""
    at = f"in the hour before {_DATED.format_moment(use.at_us)} ({use.source})"
    at = at if use.source else f"at {time.format_moment(use.at_us)}"
    parts = [f"largest {_format_use(use, use.largest)}{where} {at}"]
    if use.contributors:
        parts[0] += f" ({', '.join(_list_contributors(use))})"
    parts.append(f"usual {_format_use(use, use.usual)}")
    if use.spans == 1 and not use.source:
        parts.append("seen only once")
    if not limit.is_changed:
        parts.insert(0, "kept")
    elif limit.former is not None:
        parts.append(f"now {format_amount(limit.resource, limit.former)}")
    return "; ".join(parts)


def _list_contributors(use: ObservedUse) -> Iterator[str]:
    for share in use.contributors:
        yield f"{_format_use(use, share.amount)} by {share.workload}"


def _format_use(use: ObservedUse, amount: int) -> str:
    return str(format_amount(use.resource, amount))


def _describe_service(found: SuggestedService, time: SeenTime) -> Iterator[str]:
    """Yield what was seen besides the limits, and the proof."""
    denied = f", {found.denied} of them denied: no use, as they may ask for the same Pods again" if found.denied else ""
    refused = f", {found.unfinished} refused by others before they were charged" if found.unfinished else ""
    yield f"{found.requests} requests{denied}{refused}"
    yield from (line for limit in found.limits for line in _describe_outlier(limit, time))
    if found.outcomes is not None:
        yield _describe_outcomes(found.outcomes)
    yield from found.notes
    proof = found.proof
    yield f"proof: {proof.pods} past Pods replayed: {proof.denied} denied"
    if proof.example:
        yield f"denied in the replay: {proof.example}"


def _describe_outlier(limit: LimitSuggestion, time: SeenTime) -> Iterator[str]:
    use = limit.use
    if use is None or use.outlier is None or limit.hard_without is None:
        return
    outlier = use.outlier
    where = "inside the limit" if use.largest <= limit.hard else "above the limit"
    without = f"{_format_use(use, outlier.without)}, limit {_format_use(use, limit.hard_without)}"
    yield (
        f"outlier: {limit.resource} in {limit.window}: {_format_use(use, outlier.amount)} by {outlier.workload}"
        f" at {time.format_moment(use.at_us)}, usual {_format_use(use, use.usual)}: {where}; without it: {without}"
    )


def _describe_outcomes(seen: ObservedOutcomes) -> str:
    kind = "starts" if seen.source == "PodStart" else "outcomes"
    total = seen.succeeded + seen.failed
    return (
        f"{total} {kind}, {seen.failed} failed; usual {_format_seconds(seen.usual_latency_us)},"
        f" longest {_format_seconds(seen.largest_latency_us)}; noise {seen.noise_percent}% failed"
    )


def _format_seconds(us: int) -> str:
    return f"{us / _SECOND_US:.3g}s"


def _format_entry(entry: Mapping[str, Any]) -> str:
    return format_flow(dict(entry))[1:-1]


def _shorten(match: Match) -> dict[str, Any]:
    """Return a match without the fields that are not set."""
    return _drop_empty(msgspec.to_builtins(match, enc_hook=str))


def _drop_empty(fields: Mapping[str, Any]) -> dict[str, Any]:
    found = {key: _drop_empty(value) if isinstance(value, dict) else value for key, value in fields.items()}
    return {key: value for key, value in found.items() if value not in (None, [], {}, False, ())}


def select_fields(suggested: BreakerSuggestion) -> dict[str, Any]:
    """Return the changed triggers of a breaker with the outcomes that they need, as the policy writes them."""
    breaker = suggested.breaker
    fields = msgspec.to_builtins(breaker, enc_hook=str)
    kept = {key: fields[key] for key in ("outcomes", *suggested.reasons) if fields.get(key)}
    if breaker.outcomes is not None and breaker.outcomes.reporters:
        kept["outcomes"].pop("startDeadline")
    return _drop_empty(kept)
