"""Finished spans of reviews and breaker transitions, queued for export.

A review is over when it is traced. So its spans are created as the finished records that a span processor receives:
16 us for a review of six stages, where the SDK's tracer, made for spans that still change, takes 100 us.
"""

import re
from typing import Any

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from webhook.core.admission.decision import Decision
from webhook.core.breaker import Transition
from webhook.ports import Review

_EXPORT_TIMEOUT_SECONDS = 5
_TRANSITION = "breaker transition"
_OUR_FAULT = 500  # and above; a denial is an answer, not an error
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_SCOPE = InstrumentationScope("podgate")
_ids = RandomIdGenerator()


class Spans:
    """Creates finished spans, and passes them to a span processor."""

    def __init__(self, processor: SpanProcessor, resource: Resource) -> None:
        self._processor = processor
        self._resource = _SharedResource(resource.attributes, resource.schema_url)

    def add_review(self, review: Review, parent: "re.Match[str] | None", *, is_followed: bool) -> None:
        """Add the spans of a review: below its parent if that `is_followed`, else as a trace with a link to it."""
        decision, start_ns, end_ns = review.decision, review.started_ns, review.started_ns + review.duration_ns
        remote = None if parent is None else _remote(parent)
        followed = remote if is_followed else None
        context = _context(_ids.generate_trace_id() if followed is None else followed.trace_id)
        self._add_stages(review, context)
        transitions = decision.receipt.transitions if decision.receipt is not None else ()
        has_failed = decision.status.code >= _OUR_FAULT
        self._add(
            f"review {decision.half}",
            context,
            start_ns,
            end_ns,
            parent=followed,
            kind=SpanKind.SERVER,
            links=() if remote is None or is_followed else (Link(remote),),
            attributes=_attributes(review),
            events=[Event(_TRANSITION, _moved(transition), end_ns) for transition in transitions],
            status=Status(StatusCode.ERROR, decision.status.reason) if has_failed else Status(),
        )

    def add_transition(self, transition: Transition) -> None:
        at_ns = transition.at_us * 1000
        self._add(_TRANSITION, _context(_ids.generate_trace_id()), at_ns, at_ns, attributes=_moved(transition))

    def shutdown(self) -> None:
        """Send the pending spans. Blocks until they are sent or given up: call it last, not on the event loop."""
        self._processor.shutdown()

    def _add_stages(self, review: Review, parent: SpanContext) -> None:
        begin_ns = review.started_ns
        for name, after_ns in review.stages:
            found = tuple([step.found for step in review.decision.steps if step.stage == name])
            attributes = {"podgate.found": found} if found else None
            end_ns = review.started_ns + after_ns
            self._add(name, _context(parent.trace_id), begin_ns, end_ns, parent=parent, attributes=attributes)
            begin_ns = end_ns

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

    The exporter groups spans by resource. To hash its content for each span took a third of the encoding (6 us of 16).
    """

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


def open_spans(endpoint: str, version: str) -> Spans:
    """Return Spans that are sent in batches to `endpoint`, as OTLP over HTTP."""
    processor = BatchSpanProcessor(OTLPSpanExporter(endpoint, timeout=_EXPORT_TIMEOUT_SECONDS))
    return Spans(processor, Resource.create({"service.name": "podgate", "service.version": version}))


def _context(trace_id: int) -> SpanContext:
    return SpanContext(trace_id, _ids.generate_span_id(), is_remote=False, trace_flags=_SAMPLED)


def _remote(parent: "re.Match[str]") -> SpanContext:
    flags = TraceFlags(int(parent[4], 16) & TraceFlags.SAMPLED)
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
