"""Trace spans of sampled reviews, created after the review: a span for each would cost as much as the decision itself.

A breaker transition has its own span, and is also an event of the review that caused it if that review is sampled.

A parent may come from a tenant: an API server without tracing forwards the `traceparent` of the client that creates a
Pod.

The SDK is imported only if an endpoint is set: it takes longer to load than the whole command line.
"""

import random
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from webhook.core.admission.decision import Decision
from webhook.core.breaker import Transition
from webhook.core.overrides import Override
from webhook.core.policy.model import LoadedPolicy
from webhook.ports import Review

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span, SpanContext

RATIO = 0.01
FOLLOWED_PER_SECOND_MAX = 10
"""Reviews traced because of a sampled parent. Beyond them, the ratio applies as without a parent."""
EXPORT_TIMEOUT_SECONDS = 5
_SIGNAL_PATH = "/v1/traces"
_TRANSITION = "breaker transition"
_OUR_FAULT = 500  # and above; a denial is an answer, not an error

# https://www.w3.org/TR/trace-context/#traceparent-header: ids of only zeros and version ff are invalid.
_TRACEPARENT = re.compile(r"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_SAMPLED = 0x01
_SECOND_NS = 1_000_000_000


class Traces:
    """An Observer that traces `ratio` of the reviews. If it `follows`, a caller's parent span decides instead.

    If it does not, the spans form a separate trace with a link to the parent.
    """

    def __init__(
        self,
        provider: "TracerProvider",
        ratio: float = RATIO,
        draw: Callable[[], float] = random.random,
        *,
        follows: bool = True,
    ) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("podgate")
        self._ratio = ratio
        self._draw = draw
        self._follows = follows
        self._second = 0
        self._room = FOLLOWED_PER_SECOND_MAX
        self._followed = self._limited = 0

    def sampled_parents(self) -> Mapping[str, int]:
        """Return the number of reviews with a sampled parent, by result."""
        return {"followed": self._followed, "limited": self._limited}

    def reviewed(self, review: Review) -> None:
        parent = _parent(review.traceparent) if review.traceparent else None
        if parent is not None and self._follows:
            if not int(parent[4], 16) & _SAMPLED:
                return
            if self._has_room(review.started_ns):
                self._record(review, parent, is_followed=True)
                return
        if self._draw() < self._ratio:
            self._record(review, parent, is_followed=False)

    def _has_room(self, now_ns: int) -> bool:
        """Return whether one more sampled parent may be followed in this second; count the result."""
        second = now_ns // _SECOND_NS
        if second != self._second:
            self._second, self._room = second, FOLLOWED_PER_SECOND_MAX
        has_room = self._room > 0
        self._room -= has_room
        self._followed += has_room
        self._limited += not has_room
        return has_room

    def _record(self, review: Review, parent: "re.Match[str] | None", *, is_followed: bool) -> None:
        from opentelemetry.context import Context
        from opentelemetry.trace import Link, NonRecordingSpan, SpanKind, StatusCode, set_span_in_context

        context, links = Context(), []  # never this thread's current context
        if parent is not None and is_followed:
            context = set_span_in_context(NonRecordingSpan(_remote(parent)), context)
        elif parent is not None:
            links = [Link(_remote(parent))]

        decision, start_ns = review.decision, review.started_ns
        root = self._tracer.start_span(
            f"review {decision.half}",
            context=context,
            kind=SpanKind.SERVER,
            links=links,
            attributes=_attributes(review),
            start_time=start_ns,
        )
        if decision.status.code >= _OUR_FAULT:
            root.set_status(StatusCode.ERROR, decision.status.reason)
        for transition in decision.receipt.transitions if decision.receipt is not None else ():
            root.add_event(_TRANSITION, _moved(transition), start_ns + review.duration_ns)
        self._stages(review, set_span_in_context(root, Context()))
        root.end(start_ns + review.duration_ns)

    def _stages(self, review: Review, context: "Context") -> None:
        begin_ns = 0
        for name, end_ns in review.stages:
            found = [step.found for step in review.decision.steps if step.stage == name]
            attributes = {"podgate.found": found} if found else None
            span: Span = self._tracer.start_span(
                name, context=context, attributes=attributes, start_time=review.started_ns + begin_ns
            )
            span.end(review.started_ns + end_ns)
            begin_ns = end_ns

    def transitioned(self, transition: Transition) -> None:
        """Create a span for every transition: they are few, and the causing review may not be sampled."""
        from opentelemetry.context import Context

        at_ns = transition.at_us * 1000
        span = self._tracer.start_span(_TRANSITION, context=Context(), attributes=_moved(transition), start_time=at_ns)
        span.end(at_ns)

    def refused(self, reason: str, detail: str) -> None:
        """Do nothing: rejected callers must not cause traces."""

    def policy_loaded(self, loaded: LoadedPolicy) -> None:
        """Do nothing: logs and metrics report it."""

    def policy_failed(self, errors: Sequence[str]) -> None:
        """Do nothing: logs and metrics report it."""

    def policy_judged(self, user: str, errors: Sequence[str], document: str) -> None:
        """Do nothing: logs and metrics report it."""

    def overrides_loaded(self, live: Sequence[Override]) -> None:
        """Do nothing: logs and metrics report it."""

    def overrides_failed(self, errors: Sequence[str]) -> None:
        """Do nothing: logs and metrics report it."""

    def override_changed(self, service: str, former: Override | None, now: Override | None) -> None:
        """Do nothing: logs and metrics report it."""

    def shutdown(self) -> None:
        """Send the pending spans. Blocks until they are sent or given up: call it last, not on the event loop."""
        self._provider.shutdown()


def open_traces(
    endpoint: str | None, ratio: float = RATIO, version: str = "", *, follows: bool = True
) -> Traces | None:
    """Return Traces that send OTLP over HTTP, or None without an endpoint. A URL without a path gets `/v1/traces`."""
    if endpoint is None:
        return None
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.sampling import ALWAYS_ON

    if urlsplit(endpoint).path in ("", "/"):
        endpoint = endpoint.rstrip("/") + _SIGNAL_PATH
    provider = TracerProvider(
        sampler=ALWAYS_ON,  # sampling has been done before
        resource=Resource.create({"service.name": "podgate", "service.version": version}),
        shutdown_on_exit=False,
    )
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint, timeout=EXPORT_TIMEOUT_SECONDS)))
    return Traces(provider, ratio, follows=follows)


def _parent(traceparent: str) -> "re.Match[str] | None":
    """Parse the header; None if it is invalid. Only versions above 00 may have additional fields at the end."""
    found = _TRACEPARENT.fullmatch(traceparent)
    return None if found is None or (found[1] == "00" and found[5]) else found


def _remote(parent: "re.Match[str]") -> "SpanContext":
    from opentelemetry.trace import SpanContext, TraceFlags

    flags = TraceFlags(int(parent[4], 16) & _SAMPLED)
    return SpanContext(int(parent[2], 16), int(parent[3], 16), is_remote=True, trace_flags=flags)


def _moved(transition: Transition) -> dict[str, str | int]:
    return {
        "podgate.service": transition.service,
        "podgate.breaker.from": transition.old,
        "podgate.breaker.to": transition.new,
        "podgate.breaker.reason": transition.reason,
        "podgate.breaker.generation": transition.generation,
    }


def _attributes(review: Review) -> dict[str, str | int | bool]:
    decision: Decision = review.decision
    attributes: dict[str, str | int | bool] = {
        "podgate.review.uid": decision.review_uid,
        "podgate.half": decision.half,
        "podgate.operation": decision.operation,
        "podgate.decision": decision.verdict,
        "podgate.service": decision.service or "",
        "podgate.policy.hash": decision.policy_hash,
        "podgate.client_id": review.caller.client_id if review.caller else "",
        "podgate.code": ",".join(dict.fromkeys(finding.code for finding in decision.findings)),
        "podgate.would_rewrite": ",".join(write.concern for write in decision.would_write),
        "podgate.dry_run": decision.dry_run,
        "podgate.status": decision.status.code,
        "podgate.patch.operations": len(decision.patch),
        "k8s.namespace.name": decision.namespace,
        "k8s.pod.name": decision.pod,
        "k8s.pod.uid": decision.pod_uid,
        "podgate.workload": decision.workload,
        "user.name": decision.user,
    }
    return {name: value for name, value in attributes.items() if value != ""}
