"""Reports of the writer of ServiceStatuses, to log and metrics."""

from webhook.app.telemetry import Telemetry
from webhook.controller import ServiceStatusReports

_OBJECT = "servicestatuses"


def service_status_reports(telemetry: Telemetry) -> ServiceStatusReports:
    """Return the callbacks for failures to write ServiceStatuses; a cluster without the kind is none."""
    said, fails = telemetry.logs.said, telemetry.metrics.failing_writes.set

    def absent(reason: str) -> None:
        fails(_OBJECT, fails=False)
        said("info", "ServiceStatuses are not written", reason=reason)

    def trouble(reason: str) -> None:
        fails(_OBJECT, fails=True)
        said("warning", "ServiceStatuses are not written", reason=reason)

    def over(reason: str) -> None:
        fails(_OBJECT, fails=False)
        said("info", "ServiceStatuses are written again", reason=reason)

    return ServiceStatusReports(absent, trouble, over)
