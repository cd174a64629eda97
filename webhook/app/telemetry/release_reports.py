"""Reports of the release loop: Pods that leave a queue, and the condition that none can be released."""

from webhook.app.telemetry import Telemetry
from webhook.controller.release.loop import ReleaseReports
from webhook.support.condition import Condition


def release_reports(telemetry: Telemetry) -> ReleaseReports:
    """Return the callbacks for Pods that leave a queue."""
    queue, said = telemetry.metrics.queue, telemetry.logs.said

    def trouble(reason: str) -> None:
        said("warning", "waiting Pods are not released", reason=reason)

    def over(_: str) -> None:
        said("info", "waiting Pods are released again")

    # One line until a Pod is released: the reasons differ in names of Pods.
    failure = Condition(trouble, over, key=lambda _: "")

    def released(service: str, seconds: float, latency_seconds: float) -> None:
        failure.leave()
        queue.released(service, seconds, latency_seconds)

    return ReleaseReports(released, queue.expired, queue.waiting, queue.depths, failure.enter)
