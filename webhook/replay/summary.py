"""Output of a replay: the limits and breaker of each line, and the summary of breakers at its end."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from webhook.core.admission.decision import Decision
from webhook.core.breaker import State, Transition, format_duration
from webhook.core.findings import Code
from webhook.core.policy_fields import Mode
from webhook.core.quota import CounterPlan, ServiceSnapshot, Use
from webhook.core.quota.pod_cost import format_amount

_SECOND_US = 1_000_000


def render_breaker(snapshot: ServiceSnapshot) -> dict[str, Any]:
    view = snapshot.breaker
    return {"breaker": view.state if view else None, "generation": view.generation if view else None}


def compute_remaining(snapshot: ServiceSnapshot) -> float | int:
    """Return the remaining open time in seconds, 0 if there is none."""
    remaining_us = snapshot.breaker.compute_open_remaining_us(snapshot.at_us) if snapshot.breaker else 0
    return remaining_us // _SECOND_US if remaining_us % _SECOND_US == 0 else remaining_us / _SECOND_US


def render_usage(plan: CounterPlan, snapshot: ServiceSnapshot, scope: str | None) -> list[dict[str, Any]]:
    """Return the usage of each window; where namespaces or teams count apart, of `scope`, or of all with usage."""
    wanted = {scope} if plan.per_namespace and scope is not None else set(snapshot.uses)
    field = "team" if plan.team_key else "namespace"
    of_the_service = [
        _render_use(use, plan.service, "") | {field: key or None}
        for key in sorted(wanted)
        for use in snapshot.uses.get(key, ())
    ]
    return of_the_service + [_render_use(use, use.name, "") for use in snapshot.pool]


def _render_use(use: Use, name: str, namespace: str) -> dict[str, Any]:
    return {
        "window": use.window,
        "resource": use.resource,
        "used": format_amount(use.resource, use.used),
        "hard": format_amount(use.resource, use.hard),
        "of": use.of,
        "name": name,
        "namespace": namespace or None,
    }


HEADINGS = ("SERVICE", "TRIPS", "HELD BACK", "REOPENED", "OPEN", "REFUSED", "DEGRADED", "NOT ENFORCED")
_REFUSALS = frozenset({Code.BREAKER_OPEN, Code.BREAKER_PROBING})


@dataclass(slots=True)
class _Breaker:
    key: tuple[str, str]
    trips: Counter[str] = field(default_factory=Counter)
    held_back: Counter[str] = field(default_factory=Counter)
    reopened: int = 0
    open_us: int = 0
    opened_at_us: int | None = None
    refused: int = 0
    degraded: int = 0
    not_enforced: int = 0
    """Pods that would have been denied or degraded if the breaker's mode were Enforce."""

    def close(self, at_us: int) -> None:
        if self.opened_at_us is not None:
            self.open_us += max(0, at_us - self.opened_at_us)
        self.opened_at_us = None


class BreakerSummary:
    """Collects decisions and transitions, in order. Reports breakers named by an event, or with transitions."""

    def __init__(self) -> None:
        self._breakers: dict[str, _Breaker] = {}
        self._seen: set[str] = set()

    def set_plans(self, plans: Mapping[str, CounterPlan], now_us: int) -> None:
        """Set the breakers of the policy in force; close those that were removed, or have new counters."""
        for service, breaker in self._breakers.items():
            plan = plans.get(service)
            if plan is None or plan.breaker is None or plan.key != breaker.key:
                breaker.close(now_us)
        for service, plan in plans.items():
            if plan.breaker is not None:
                self._breakers.setdefault(service, _Breaker(plan.key)).key = plan.key

    def mark_seen(self, service: str | None) -> None:
        """Record that an event was about a service."""
        if service in self._breakers:
            self._seen.add(service)

    def add_decisions(self, mutated: Decision, validated: Decision) -> None:
        """Record the decisions about a Pod; dry runs are ignored."""
        breaker = self._breakers.get(validated.service or "")
        self.mark_seen(validated.service)
        if breaker is None or validated.call.dry_run:
            return
        modes = {finding.mode for finding in validated.findings if finding.code in _REFUSALS}
        breaker.refused += Mode.ENFORCE in modes
        breaker.degraded += bool(mutated.deviation.degraded)
        breaker.not_enforced += bool(modes - {Mode.ENFORCE}) or mutated.deviation.would_degrade

    def add_transitions(self, transitions: Iterable[Transition]) -> None:
        for transition in transitions:
            breaker = self._breakers.get(transition.service)
            if breaker is not None:
                self._seen.add(transition.service)
                _count(breaker, transition)

    def make_rows(self, now_us: int) -> Iterator[tuple[str, ...]]:
        """Yield a table as of now, headings first; empty if no event was about a service with a breaker."""
        if self._seen:
            yield HEADINGS
        for service, breaker in self._breakers.items():
            if service in self._seen:
                breaker.close(now_us)
                counts = breaker.refused, breaker.degraded, breaker.not_enforced
                trips, held_back = _format_by_trigger(breaker.trips), _format_by_trigger(breaker.held_back)
                yield (
                    service,
                    trips,
                    held_back,
                    str(breaker.reopened),
                    format_duration(breaker.open_us),
                    *map(str, counts),
                )


def _count(breaker: _Breaker, transition: Transition) -> None:
    if transition.is_held_back:
        breaker.held_back[transition.cause] += 1
    if not transition.is_change:
        return
    breaker.close(transition.at_us)
    if transition.new is State.OPEN:
        breaker.opened_at_us = transition.at_us
        if transition.old is State.CLOSED:
            breaker.trips[transition.cause] += 1
        else:
            breaker.reopened += 1


def _format_by_trigger(counts: Counter[str]) -> str:
    total = str(counts.total())
    return (
        f"{total} ({', '.join(f'{trigger} {count}' for trigger, count in sorted(counts.items()))})" if counts else total
    )
