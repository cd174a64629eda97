"""ServiceStatus writer: keeps one ServiceStatus object for each service, and writes only changes."""

from collections.abc import Callable, Mapping
from typing import Any

from webhook.controller.status_writer import StatusReports, StatusTiming, StatusWriter
from webhook.core.breaker import BreakerView
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.quota import CounterPlan
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
        self._made: dict[str, tuple[CounterPlan, BreakerView, Mapping[str, Any]]] = {}
        """Status made from a plan and view, by service."""

    def _compute_wanted(self) -> Mapping[str, Mapping[str, Any] | None] | None:
        """Return the wanted status by service; None for one whose breaker is not known yet."""
        compiled = self._policy()
        if compiled is None:
            return None
        self._made = {service: made for service, made in self._made.items() if service in compiled.plans}
        return {service: self._compute_status(plan) for service, plan in compiled.plans.items()}

    def _compute_status(self, plan: CounterPlan) -> Mapping[str, Any] | None:
        if plan.breaker is None:
            return {}
        view = self._known(plan)
        return None if view is None else self._make_status(plan, view)

    def _make_status(self, plan: CounterPlan, view: BreakerView) -> Mapping[str, Any]:
        """Return the status, built again only after a change: all services are compared each second."""
        made = self._made.get(plan.service)
        if made is None or made[0] is not plan or made[1] != view:
            made = self._made[plan.service] = plan, view, render_service_status(plan, view)
        return made[2]
