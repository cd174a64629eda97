"""Trace spans of sampled reviews, created after the review, so that reviews which are not sampled pay nothing.

A breaker transition has its own span, and is also an event of the review that caused it if that review is sampled.

A parent may come from a tenant: an API server without tracing forwards the `traceparent` of the client that creates a
Pod.

The SDK is imported only if an endpoint is set, because it loads slowly.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from webhook.adapters.traces.pod_start import PodStarts
from webhook.adapters.traces.sampling import RatioSampler
from webhook.adapters.traces.scheduling_calls import SchedulingCalls
from webhook.core.breaker import Transition
from webhook.core.quota import UnseenPod
from webhook.ports import PartialObserver, Review
from webhook.ports.traces import TracedPod

if TYPE_CHECKING:
    from webhook.adapters.traces.spans import Spans

_SIGNAL_PATH = "/v1/traces"


class Traces(PartialObserver):
    """An Observer that creates the spans of reviews that `sampler` has selected, of transitions, refunds and releases.

    Rejected calls cause no traces: anybody can make them.
    """

    def __init__(self, spans: "Spans", sampler: RatioSampler, now_ns: Callable[[], int]) -> None:
        self._spans = spans
        self._sampler = sampler
        self._now_ns = now_ns
        self.sample = sampler.sample

    def count_sampled_parents(self) -> Mapping[str, int]:
        """Return the number of reviews with a sampled parent, by result."""
        return self._sampler.count_sampled_parents()

    def on_reviewed(self, review: Review) -> None:
        if review.trace is not None:
            self._spans.add_review(review, review.trace)

    def on_transition(self, transition: Transition) -> None:
        """Create a span for every transition: they are few, and the causing review may not be sampled."""
        self._spans.add_transition(transition)

    def on_refunded(self, service: str, pod: UnseenPod, cause: str) -> None:
        """Create a span in the trace of the Pod, if the ratio selects it: a tenant can cause many refunds."""
        if self._sampler.is_drawn(pod.uid):
            self._spans.add_refund(service, pod, cause, self._now_ns())

    def on_released(self, pod: TracedPod, waited_seconds: float) -> None:
        """Create a span of the wait in a queue, in the trace of the Pod, if the ratio selects it."""
        if self._sampler.is_drawn(pod.uid):
            self._spans.add_release(pod, waited_seconds, self._now_ns())

    def scheduling(self) -> SchedulingCalls:
        """Return an observer of the extender's calls that creates a span for each, if the ratio selects the Pod."""
        return SchedulingCalls(self._sampler.is_drawn, self._spans.add_scheduling, self._now_ns)

    def starts(self) -> PodStarts:
        """Return an observer of Pods that creates a span for each start of a Pod that the ratio selects."""
        return PodStarts(self._sampler.is_drawn, self._spans.add_start, lambda: self._now_ns() // 1000)

    def shutdown(self) -> None:
        """Send the pending spans. Blocks until they are sent or given up: call it last, not on the event loop."""
        self._spans.shutdown()


def open_traces(
    endpoint: str, sampler: RatioSampler, now_ns: Callable[[], int], resource: Mapping[str, str], store: str = ""
) -> Traces:
    """Return Traces that send OTLP over HTTP. A URL without a path gets `/v1/traces`.

    `resource` are the attributes of this process, `store` is the `HOST:PORT` of its Redis if there is only one.
    """
    from webhook.adapters.traces.spans import open_spans

    if urlsplit(endpoint).path in ("", "/"):
        endpoint = endpoint.rstrip("/") + _SIGNAL_PATH
    return Traces(open_spans(endpoint, resource, store), sampler, now_ns)
