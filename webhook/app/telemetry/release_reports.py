"""Reports of the release loop: Pods that leave a queue, and the condition that none can be released."""

from webhook.app.telemetry import Telemetry
from webhook.controller.release.gated_pods import GatedPod
from webhook.controller.release.loop import ReleaseReports
from webhook.core.quota import QueuePlan
from webhook.core.reporting.queue_document import expiry_text
from webhook.ports import PlaceEvents
from webhook.ports.traces import TracedPod
from webhook.support.condition import Condition


def release_reports(telemetry: Telemetry, places: PlaceEvents | None = None) -> ReleaseReports:
    """Return the callbacks for Pods that leave a queue; `places` sends Events about those that expire."""
    queue, said = telemetry.metrics.queue, telemetry.logs.said

    def trouble(reason: str) -> None:
        said("warning", "waiting Pods are not released", reason=reason)

    def over(_: str) -> None:
        said("info", "waiting Pods are released again")

    # One line until a Pod is released: the reasons differ in names of Pods.
    failure = Condition(trouble, over, key=lambda _: "")

    def released(pod: GatedPod, seconds: float, latency_seconds: float) -> None:
        failure.leave()
        queue.released(pod.waiting.service, seconds, latency_seconds)
        if telemetry.traces is not None:
            traced = TracedPod(pod.waiting.service, pod.namespace, pod.name, pod.waiting.uid)
            telemetry.traces.released(traced, seconds)

    def expired(pod: GatedPod, rules: QueuePlan, seconds: float) -> None:
        queue.expired(pod.waiting.service, seconds)
        if places is not None:
            note = expiry_text(rules.max_wait_us, is_kept=rules.keeps_expired)
            places.expired(pod.namespace, pod.name, pod.waiting.uid, note, is_kept=rules.keeps_expired)

    return ReleaseReports(released, expired, queue.waiting, queue.depths, failure.enter)
