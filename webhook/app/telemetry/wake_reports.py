"""Reports of the waking of held controllers, to metrics and log."""

from webhook.app.telemetry import Telemetry
from webhook.controller import WakeReports


def wake_reports(telemetry: Telemetry) -> WakeReports:
    """Return the callbacks for waking controllers whose Pods were denied."""
    ledger, said, fails = telemetry.metrics.ledger, telemetry.logs.said, telemetry.metrics.failing_writes.set

    def trouble(reason: str) -> None:
        fails("controllers", fails=True)
        said("warning", "held controllers are not woken", reason=reason)

    def over(reason: str) -> None:
        fails("controllers", fails=False)
        said("info", "held controllers are woken again", reason=reason)

    return WakeReports(ledger.woken, ledger.held, trouble, over)
