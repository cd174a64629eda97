"""Reports of the extender: refused nodes as metrics, and sources of load that do not answer as log lines."""

from collections.abc import Callable

from webhook.app.telemetry import Telemetry
from webhook.core.kubernetes.pod import Pod
from webhook.core.scheduling.node_selection import FilteredNodes, ServiceRules
from webhook.extender.extender import counted
from webhook.extender.load_refresher import LoadReports
from webhook.support.condition import Condition


class SchedulingReports:
    """A `SchedulingObserver`."""

    def __init__(self, telemetry: Telemetry, now_seconds: Callable[[], float]) -> None:
        self._metrics = telemetry.metrics.scheduling
        self._said = telemetry.logs.said
        self._now_seconds = now_seconds

    def nodes_filtered(self, pod: Pod, service: ServiceRules, found: FilteredNodes) -> None:  # noqa: ARG002  metrics name no Pods
        for rule, count in counted(found.refused.values()).items():
            self._metrics.refused(service.service, rule, count)

    def of_wakes(self) -> Condition[str]:
        """Return the condition that kube-scheduler cannot be woken."""

        def trouble(reason: str) -> None:
            self._said("warning", "kube-scheduler is not woken, refused Pods wait up to five minutes", reason=reason)

        return Condition(trouble, lambda _: self._said("info", "kube-scheduler is woken again"))

    def of_refreshes(self) -> LoadReports:
        """Return the callbacks of the refresher."""

        def measured(source: str, took_seconds: float) -> None:
            self._metrics.source_read(source, self._now_seconds(), took_seconds)

        def trouble(reason: str) -> None:
            self._said("warning", "a source of load does not answer, using the next one", reason=reason)

        def over(reason: str) -> None:
            self._said("info", "a source of load answers again", reason=reason)

        return LoadReports(measured, self._metrics.source_failed, trouble, over)
