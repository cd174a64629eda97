"""Reports of the waking of held controllers, to metrics and log."""

from webhook.app.telemetry import Telemetry
from webhook.controller import WakeReports


def wake_reports(telemetry: Telemetry) -> WakeReports:
    """Return the callbacks for waking controllers whose Pods were denied."""
    ledger, said = telemetry.metrics.ledger, telemetry.logs.said

    def trouble(reason: str) -> None:
        said("warning", "held controllers are not woken", reason=reason)

    def over(reason: str) -> None:
        said("info", "held controllers are woken again", reason=reason)

    return WakeReports(ledger.woken, ledger.held, trouble, over)
