"""ServiceStatus writer: keeps one ServiceStatus object for each service, and writes only changes."""

from collections.abc import Callable, Mapping
from typing import Any

from webhook.controller.status_writer import StatusReports, StatusTiming, StatusWriter
from webhook.core.breaker import BreakerView
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.quota import CounterPlan
from webhook.core.reporting.shares_document import render_variants
from webhook.core.reporting.status_parts import render_service_status
from webhook.ports import StatusClient


class ServiceStatusWriter(StatusWriter):
    """`known` returns the last known view of a breaker, without a call."""

    def __init__(
        self,
        client: StatusClient,
        known: Callable[[CounterPlan], BreakerView | None],
        policy: Callable[[], CompiledPolicy | None],
        reports: StatusReports,
        *,
        timing: StatusTiming = StatusTiming(),  # noqa: B008  frozen
    ) -> None:
        super().__init__(client, self._compute_wanted, reports, timing=timing)
        self._known = known
        self._policy = policy
        self._made: dict[str, tuple[CounterPlan, _Views, Mapping[str, Any]]] = {}
        """Status made from a plan and views, by service."""

    def _compute_wanted(self) -> Mapping[str, Mapping[str, Any] | None] | None:
        """Return the wanted status by service; None for one with a breaker that is not known yet."""
        compiled = self._policy()
        if compiled is None:
            return None
        self._made = {service: made for service, made in self._made.items() if service in compiled.plans}
        variants = _group_variants(compiled)
        return {service: self._compute_status(plan, variants.get(service)) for service, plan in compiled.plans.items()}

    def _compute_status(
        self, plan: CounterPlan, variants: Mapping[str, CounterPlan] | None
    ) -> Mapping[str, Any] | None:
        plans = {} if plan.breaker is None else {_OWN: plan}
        views = {name: self._known(of) for name, of in (plans | dict(variants or {})).items()}
        if not views:
            return {}
        known = {name: view for name, view in views.items() if view is not None}
        return self._make_status(plan, known) if len(known) == len(views) else None

    def _make_status(self, plan: CounterPlan, views: "_Views") -> Mapping[str, Any]:
        """Return the status, built again only after a change: all services are compared each second."""
        made = self._made.get(plan.service)
        if made is None or made[0] is not plan or made[1] != views:
            own, variants = views.get(_OWN), [(name, view) for name, view in views.items() if name != _OWN]
            status = {} if own is None else render_service_status(plan, own)
            if variants:
                status["variants"] = render_variants(variants)
            made = self._made[plan.service] = plan, views, status
        return made[2]


_OWN = ""
"""Stands for the breaker of the service itself among those of its variants."""
_Views = Mapping[str, BreakerView]
"""By the names of variants."""


def _group_variants(compiled: CompiledPolicy) -> Mapping[str, Mapping[str, CounterPlan]]:
    """Return the variants with a breaker by service and name, those of the policy in force before a candidate's."""
    found: dict[str, dict[str, CounterPlan]] = {}
    for service, shares in compiled.list_shares():
        of_service = found.setdefault(service, {})
        for variant in shares.variants:
            if variant.counters is not None:
                of_service.setdefault(variant.name, variant.counters)
    return found
