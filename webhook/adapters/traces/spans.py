"""Finished spans of reviews, breaker transitions, refunds, releases and Pod starts, queued for export.

A review is over when it is traced. So its spans are created as the finished records that a span processor receives:
the SDK's tracer, made for spans that still change, costs more.
"""

from collections.abc import Mapping
from typing import Any

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from webhook.adapters.traces.attributes import (
    describe_failure,
    describe_pod,
    describe_redis_call,
    describe_refund,
    describe_review,
    describe_scheduling,
    describe_start,
    describe_transition,
)
from webhook.adapters.traces.pod_start import PodStart
from webhook.adapters.traces.sampling import draw_span_id, draw_trace_id, find_trace_id
from webhook.adapters.traces.scheduling_calls import SchedulingCall
from webhook.core.breaker import Transition
from webhook.core.pods.start_outcome import StartResult
from webhook.core.quota import UnseenPod
from webhook.ports import Review
from webhook.ports.traces import REDIS, ReviewTrace, SpanReference, TimedCall, TracedPod

_EXPORT_TIMEOUT_SECONDS = 5
_TRANSITION = "breaker transition"
_REFUND = "refund"
_RELEASE = "queue release"
_START = "pod start"
_OUR_FAULT = 500  # and above; a denial is an answer, not an error
_SAMPLED, _NOT_SAMPLED = TraceFlags(TraceFlags.SAMPLED), TraceFlags(TraceFlags.DEFAULT)
_SCOPE = InstrumentationScope("podgate")
_OK = Status()


class Spans:
    """Creates finished spans, and passes them to a span processor. `store` is the HOST:PORT of the only Redis."""

    def __init__(self, processor: SpanProcessor, resource: Resource, store: str = "") -> None:
        self._processor = processor
        self._resource = _SharedResource(resource.attributes, resource.schema_url)
        self._store = store

    def add_review(self, review: Review, trace: ReviewTrace) -> None:
        """Add the spans of a review, of its stages, and of its calls to the store."""
        decision, start_ns, end_ns = review.decision, review.started_ns, review.started_ns + review.duration_ns
        context = _context(trace.span, is_remote=False)
        self._add_stages(review, context)
        transitions = decision.charge.receipt.transitions if decision.charge.receipt is not None else ()
        has_failed = decision.status.code >= _OUR_FAULT
        self._add(
            f"review {decision.half}",
            context,
            start_ns,
            end_ns,
            parent=None if trace.parent is None else _context(trace.parent, is_remote=True),
            kind=SpanKind.SERVER,
            links=[Link(_context(link, is_remote=True)) for link in trace.links],
            attributes=describe_review(review),
            events=[Event(_TRANSITION, describe_transition(transition), end_ns) for transition in transitions],
            status=Status(StatusCode.ERROR, decision.status.reason) if has_failed else _OK,
        )

    def add_transition(self, transition: Transition) -> None:
        at_ns = transition.at_us * 1000
        self._add(_TRANSITION, _root(draw_trace_id()), at_ns, at_ns, attributes=describe_transition(transition))

    def add_refund(self, service: str, pod: UnseenPod, cause: str, at_ns: int) -> None:
        """Add a span to the trace of a Pod: from its charge to its refund."""
        charged_ns = at_ns - pod.age_us * 1000
        self._add(
            _REFUND, _root(find_trace_id(pod.uid)), charged_ns, at_ns, attributes=describe_refund(service, pod, cause)
        )

    def add_release(self, pod: TracedPod, waited_seconds: float, at_ns: int) -> None:
        """Add a span to the trace of a Pod: from its registration in a queue to its release."""
        registered_ns = at_ns - round(waited_seconds * 1e9)
        self._add(_RELEASE, _root(find_trace_id(pod.uid)), registered_ns, at_ns, attributes=describe_pod(pod))

    def add_start(self, start: PodStart) -> None:
        """Add a span to the trace of a Pod: from its creation until it is Ready, or has failed."""
        begin_ns = start.created_us * 1000
        end_ns = begin_ns + start.taken_us * 1000
        status = _OK if start.result is StartResult.OK else Status(StatusCode.ERROR, start.result)
        context = _root(find_trace_id(start.uid))
        self._add(_START, context, begin_ns, end_ns, attributes=describe_start(start), status=status)

    def add_scheduling(self, call: SchedulingCall) -> None:
        """Add a call of kube-scheduler about a Pod to the trace of the Pod."""
        context = _root(find_trace_id(call.uid))
        name, attributes = f"scheduling {call.verb}", describe_scheduling(call)
        self._add(name, context, call.started_ns, call.ended_ns, kind=SpanKind.SERVER, attributes=attributes)

    def shutdown(self) -> None:
        """Send the pending spans. Blocks until they are sent or given up: call it last, not on the event loop."""
        self._processor.shutdown()

    def _add_stages(self, review: Review, parent: SpanContext) -> None:
        begin_ns = 0
        for name, end_ns in zip(review.stages, review.ends_ns, strict=True):
            found = tuple([step.found for step in review.decision.steps if step.stage == name])
            attributes = {"podgate.found": found} if found else None
            context = _make_child(parent)
            calls = [call for call in review.calls if begin_ns <= call.started_ns < end_ns]
            self._add_calls(calls, review.started_ns, context)
            start_ns = review.started_ns + begin_ns
            self._add(name, context, start_ns, review.started_ns + end_ns, parent=parent, attributes=attributes)
            begin_ns = end_ns

    def _add_calls(self, calls: list[TimedCall], origin_ns: int, stage: SpanContext) -> None:
        """Add the calls of a stage: those to Redis are part of the one to the store."""
        store = _make_child(stage)
        for call in calls:
            is_redis = call.name == REDIS
            self._add(
                call.name,
                _make_child(store) if is_redis else store,
                origin_ns + call.started_ns,
                origin_ns + call.ended_ns,
                parent=store if is_redis else stage,
                kind=SpanKind.CLIENT if is_redis else SpanKind.INTERNAL,
                attributes=describe_redis_call(call, self._store) if is_redis else describe_failure(call),
                status=Status(StatusCode.ERROR, str(call.failure)) if call.failure is not None else _OK,
            )

    def _add(self, name: str, context: SpanContext, start_ns: int, end_ns: int, **more: Any) -> None:
        span = ReadableSpan(
            name,
            context,
            resource=self._resource,
            start_time=start_ns,
            end_time=end_ns,
            instrumentation_scope=_SCOPE,
            **more,
        )
        self._processor.on_end(span)


class _SharedResource(Resource):
    """The one resource of all spans, compared by identity.

    The exporter groups spans by resource, and would hash its content for each span.
    """

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


def open_spans(endpoint: str, resource: Mapping[str, str], store: str) -> Spans:
    """Return Spans that are sent in batches to `endpoint`, as OTLP over HTTP."""
    processor = BatchSpanProcessor(OTLPSpanExporter(endpoint, timeout=_EXPORT_TIMEOUT_SECONDS))
    return Spans(processor, Resource.create(dict(resource)), store)


def _context(span: SpanReference, *, is_remote: bool) -> SpanContext:
    flags = _SAMPLED if span.is_sampled else _NOT_SAMPLED
    return SpanContext(int(span.trace_id, 16), int(span.span_id, 16), is_remote=is_remote, trace_flags=flags)


def _root(trace_id: str) -> SpanContext:
    return _context(SpanReference(trace_id, draw_span_id()), is_remote=False)


def _make_child(parent: SpanContext) -> SpanContext:
    """Return the context of a new span in the same trace."""
    return SpanContext(parent.trace_id, int(draw_span_id(), 16), is_remote=False, trace_flags=_SAMPLED)
