"""Document of a suggestion: the same as its page, for programs."""

from typing import Any

import msgspec

from webhook.commands.pages.suggestion_page import select_fields
from webhook.core.quota.pod_cost import format_amount
from webhook.core.suggestion.limits import LimitSuggestion
from webhook.core.suggestion.seen_time import UNKNOWN_TIME, SeenTime
from webhook.core.suggestion.suggestion import SuggestedPool, SuggestedService, Suggestion

_DATED = SeenTime(0, 0, is_dated=True)


def build_document(suggestion: Suggestion) -> dict[str, Any]:
    """Return the suggestion as a document; amounts are those of a policy."""
    time = suggestion.time
    moments = (
        {} if time is None else {"since": time.format_moment(time.first_us), "until": time.format_moment(time.last_us)}
    )
    return {
        "source": suggestion.source,
        **moments,
        "requests": suggestion.requests,
        "headroomPercent": suggestion.headroom_percent,
        "notSeen": [] if time is None else time.list_unseen(),
        "notes": list(suggestion.notes),
        "leftOut": dict(suggestion.left_out),
        "unowned": dict(suggestion.unowned),
        "pools": [_build_pool(pool, time or UNKNOWN_TIME) for pool in suggestion.pools],
        "services": [_build_service(found, time or UNKNOWN_TIME) for found in suggestion.services],
    }


def _build_pool(found: SuggestedPool, time: SeenTime) -> dict[str, Any]:
    return {"name": found.pool.name, "limits": [_build_limit(limit, time) for limit in found.limits]}


def _build_service(found: SuggestedService, time: SeenTime) -> dict[str, Any]:
    return {
        "name": found.service.name,
        "changed": found.is_changed,
        "requests": found.requests,
        "denied": found.denied,
        "unfinished": found.unfinished,
        "limits": [_build_limit(limit, time) for limit in found.limits],
        "outcomes": msgspec.to_builtins(found.outcomes),
        "breaker": None if found.breaker is None else select_fields(found.breaker),
        "proof": msgspec.to_builtins(found.proof),
        "notes": list(found.notes),
    }


def _build_limit(limit: LimitSuggestion, time: SeenTime) -> dict[str, Any]:
    found: dict[str, Any] = {"window": limit.window, "resource": limit.resource, "hard": limit.quantity}
    if limit.former is not None:
        found["now"] = format_amount(limit.resource, limit.former)
    if limit.namespace:
        found["namespace"] = limit.namespace
    use = limit.use
    if use is None:
        return found
    at = (_DATED if use.source else time).format_moment(use.at_us)
    found |= {"largest": format_amount(use.resource, use.largest), "at": at}
    if use.source:
        found["source"] = use.source
    found["usual"] = format_amount(use.resource, use.usual)
    found["by"] = [
        {"workload": share.workload, "amount": format_amount(use.resource, share.amount)} for share in use.contributors
    ]
    if use.outlier is not None and limit.hard_without is not None:
        found["outlier"] = {
            "workload": use.outlier.workload,
            "amount": format_amount(use.resource, use.outlier.amount),
            "without": format_amount(use.resource, use.outlier.without),
            "hardWithout": format_amount(use.resource, limit.hard_without),
            "inside": use.largest <= limit.hard,
        }
    return found
