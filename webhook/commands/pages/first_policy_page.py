"""Page of a first policy: a whole document in Audit, with what the cluster has in comments."""

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from webhook.commands.pages.yaml_text import format_flow
from webhook.core.plain_text import escape_line
from webhook.core.quota import STANDING
from webhook.core.suggestion.first_policy import ALL_AUDIT, EXEMPT_NAMESPACES, FirstService

_BREAKER = {"outcomes": {"source": "PodStart"}, "errorRate": {"percent": 50, "interval": "1m"}}
_NAMES_SHOWN = 20
_SERVICES_MAX = 5_000


class FirstPolicy(Struct, frozen=True):
    """The services of a first policy, and the namespaces without workloads."""

    services: Sequence[FirstService]
    empty: Sequence[str]
    headroom_percent: int


def build_first_document(found: FirstPolicy) -> dict[str, Any]:
    """Return the policy."""
    return {
        "apiVersion": "podgate.io/v1alpha1",
        "kind": "Policy",
        "exemptions": {"namespaces": list(EXEMPT_NAMESPACES)},
        "defaults": {"failureMode": "Open", "modes": ALL_AUDIT, "breaker": _BREAKER},
        "services": [_build_service(service) for service in found.services[:_SERVICES_MAX]],
    }


def _build_service(service: FirstService) -> dict[str, Any]:
    quota: dict[str, Any] = {
        "windows": [
            {"window": limit.window, "hard": {limit.resource: limit.quantity}}
            for limit in service.limits
            if limit.window != STANDING
        ]
    }
    standing = {limit.resource: limit.quantity for limit in service.limits if limit.window == STANDING}
    if standing:
        quota["standing"] = {"hard": standing}
    return {"name": service.namespace, "match": {"namespaces": [service.namespace]}, "quota": quota}


def format_first_policy(found: FirstPolicy) -> Iterator[str]:
    """Yield the policy as YAML, with what was seen in comments."""
    document = build_first_document(found)
    yield "# A first policy for this cluster, from the workloads and Pods that exist now."
    yield "# Every mode is Audit: nothing is denied or rewritten, and Podgate counts what each namespace uses."
    yield f"# Limits are guesses with {found.headroom_percent}% headroom: all Pods that workloads want, created at once"
    yield "# (1m) or twice (1h), or the most created lately; live Pods as of now. Not seen: the past, nights, weekends."
    yield "# When it has run for some days: podgate policy suggest"
    if found.empty:
        more = f" and {len(found.empty) - _NAMES_SHOWN} more" if len(found.empty) > _NAMES_SHOWN else ""
        names = escape_line(", ".join(found.empty[:_NAMES_SHOWN]))
        yield f"# Left out, as they have no workloads but DaemonSets: {names}{more}"
    if len(found.services) > _SERVICES_MAX:
        yield f"# A policy has at most {_SERVICES_MAX} services: {len(found.services) - _SERVICES_MAX} are left out"
    for key in ("apiVersion", "kind", "exemptions"):
        yield format_flow({key: document[key]})[1:-1]
    yield "defaults:"
    yield from (f"  {format_flow({key: value})[1:-1]}" for key, value in document["defaults"].items())
    yield "services:"
    for service, written in zip(found.services, document["services"], strict=False):
        yield f"- {format_flow({'name': written['name']})[1:-1]}"
        yield from (f"  # {escape_line(line)}" for line in _describe(service))
        for key in ("match", "quota"):
            yield f"  {format_flow({key: written[key]})[1:-1]}"


def _describe(service: FirstService) -> Iterator[str]:
    kinds = ", ".join(f"{count} {kind}{'s' if count > 1 else ''}" for kind, count in service.workloads.items())
    yield f"{kinds or 'no workloads'}: {service.wanted} Pods wanted, {service.live} live now"
    if service.schedules:
        yield f"seldom seen: CronJobs {', '.join(service.schedules[:_NAMES_SHOWN])}"
    for limit in service.limits:
        if limit.use is not None:
            use = limit.use
            by = ", ".join(share.workload for share in use.contributors)
            yield f"of the Pods that exist, at most {use.largest} were created within {limit.window} ({by})"
