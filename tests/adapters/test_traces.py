"""Traces: sampled before a span is made, parents honoured, stages as children, OTLP on the wire."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from msgspec.structs import replace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from tests.harness.records import ADMITTED, ADVISED, AT_NS, AT_US, QUOTA_DENIED, policy, review, transition
from tests.harness.server_process import Files, pod, serving
from webhook.adapters.traces import FOLLOWED_PER_SECOND_MAX, Traces, open_traces
from webhook.adapters.traces.spans import Spans
from webhook.core.admission.decision import Half, StageNote, WouldWrite
from webhook.core.breaker import State
from webhook.core.kubernetes.admission_response import ResponseStatus
from webhook.core.policy_spec import Mode
from webhook.core.quota import Receipt
from webhook.offline.simulator import Ask, admission_review, as_sent_to_mutate

TRACE_ID, SPAN_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED = f"00-{TRACE_ID}-{SPAN_ID}-01"
UNSAMPLED = f"00-{TRACE_ID}-{SPAN_ID}-00"
STAGES = (("decode", 10_000), ("own", 15_000), ("charge", 600_000), ("answer", 650_000))
NOTED = replace(
    QUOTA_DENIED,
    steps=(StageNote("own", "service payment-api"), StageNote("charge", "pods over"), StageNote("charge", "denied")),
)

MOVED = {
    "podgate.service": "payment-api",
    "podgate.breaker.from": "CLOSED",
    "podgate.breaker.to": "OPEN",
    "podgate.breaker.reason": "quotaExceeded: 10 within 1m",
    "podgate.breaker.generation": 1,
}
TRIPPED = transition(State.CLOSED, State.OPEN, "quotaExceeded: 10 within 1m")
RESOURCE = Resource.create({"service.name": "podgate"})


class Recorder:
    """Traces over an exporter in memory, with the random draw decided by the test."""

    def __init__(self, draw: float, *, follows: bool = True) -> None:
        self.exporter = InMemorySpanExporter()
        spans = Spans(SimpleSpanProcessor(self.exporter), RESOURCE)
        self.traces = Traces(spans, ratio=0.01, draw=lambda: draw, follows=follows)

    def spans(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self.exporter.get_finished_spans()}


@pytest.fixture
def sampled() -> Iterator[Recorder]:
    recorder = Recorder(0.0099)
    yield recorder
    recorder.traces.shutdown()


@pytest.fixture
def unsampled() -> Iterator[Recorder]:
    recorder = Recorder(0.01)
    yield recorder
    recorder.traces.shutdown()


def test_review_is_one_span_with_its_stages_as_children(sampled: Recorder) -> None:
    sampled.traces.reviewed(review(NOTED, 700_000, stages=STAGES))
    spans = sampled.spans()
    root = spans["review validate"]
    assert (root.start_time, root.end_time, root.kind, root.parent) == (AT_NS, AT_NS + 700_000, SpanKind.SERVER, None)
    children = [(name, spans[name].start_time - AT_NS, spans[name].end_time - AT_NS) for name, _ in STAGES]
    assert children == [
        ("decode", 0, 10_000),
        ("own", 10_000, 15_000),
        ("charge", 15_000, 600_000),
        ("answer", 600_000, 650_000),
    ]
    assert {spans[name].parent.span_id for name, _ in STAGES} == {root.context.span_id}
    assert spans["charge"].attributes == {"podgate.found": ("pods over", "denied")}
    assert not spans["decode"].attributes


def on_the_wire(exporter: InMemorySpanExporter) -> tuple[ExportTraceServiceRequest, list[bool]]:
    """Return what an exporter has received, without random ids, and which of its spans are children of the last."""
    request = encode_spans(exporter.get_finished_spans())
    spans = request.resource_spans[0].scope_spans[0].spans
    root = spans[-1]
    assert {span.trace_id for span in spans} == {root.trace_id}
    are_children = [span.parent_span_id == root.span_id for span in spans]
    for span, is_child in zip(spans, are_children, strict=True):
        span.trace_id = span.span_id = b""
        span.parent_span_id = b"" if is_child else span.parent_span_id
    return request, are_children


@pytest.mark.parametrize("parent", [None, SAMPLED])
def test_spans_on_the_wire_are_those_of_the_tracer(sampled: Recorder, parent: str | None) -> None:
    receipt = Receipt(AT_US, transitions=(TRIPPED,))
    failed = replace(NOTED, status=ResponseStatus(500, "InternalError"), receipt=receipt)
    sampled.traces.reviewed(review(failed, 700_000, traceparent=parent, stages=STAGES))

    exporter = InMemorySpanExporter()
    provider = TracerProvider(resource=RESOURCE, shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("podgate")
    remote = SpanContext(int(TRACE_ID, 16), int(SPAN_ID, 16), is_remote=True, trace_flags=TraceFlags(1))
    above = Context() if parent is None else set_span_in_context(NonRecordingSpan(remote), Context())
    attributes = sampled.spans()["review validate"].attributes
    root = tracer.start_span("review validate", above, kind=SpanKind.SERVER, attributes=attributes, start_time=AT_NS)
    root.set_status(StatusCode.ERROR, "InternalError")
    root.add_event("breaker transition", MOVED, AT_NS + 700_000)
    begin_ns = AT_NS
    for name, end_ns in STAGES:
        found = tuple(step.found for step in failed.steps if step.stage == name)
        below = set_span_in_context(root, Context())
        noted = {"podgate.found": found} if found else None
        tracer.start_span(name, below, attributes=noted, start_time=begin_ns).end(AT_NS + end_ns)
        begin_ns = AT_NS + end_ns
    root.end(AT_NS + 700_000)
    assert on_the_wire(sampled.exporter) == on_the_wire(exporter)
    provider.shutdown()


def test_span_attributes_show_the_decision(sampled: Recorder) -> None:
    sampled.traces.reviewed(review(NOTED))
    assert sampled.spans()["review validate"].attributes == {
        "podgate.review.uid": "review-1",
        "podgate.half": "validate",
        "podgate.operation": "CREATE",
        "podgate.decision": "Deny",
        "podgate.service": "payment-api",
        "podgate.policy.hash": "0123456789abcdef",
        "podgate.client_id": "prod-eu-1",
        "podgate.code": "QuotaExceeded",
        "podgate.dry_run": False,
        "podgate.status": 429,
        "podgate.patch.operations": 0,
        "k8s.namespace.name": "payments",
        "k8s.pod.name": "payment-api-7d9c",
        "k8s.pod.uid": "pod-1",
        "user.name": "system:serviceaccount:kube-system:replicaset-controller",
    }


def test_span_names_the_concerns_that_enforce_would_write(sampled: Recorder) -> None:
    written = tuple(WouldWrite(concern, Mode.WARN, ("spec.x",)) for concern in ("placement", "resources"))
    sampled.traces.reviewed(review(replace(ADMITTED, would_write=written)))
    assert sampled.spans()["review validate"].attributes["podgate.would_rewrite"] == "placement,resources"


def test_span_of_a_template_names_the_workload_and_no_pod(sampled: Recorder) -> None:
    sampled.traces.reviewed(review(ADVISED))
    attributes = sampled.spans()["review validate"].attributes
    assert attributes["podgate.workload"] == "deployment.apps/payment-api"
    assert not {"k8s.pod.name", "k8s.pod.uid"} & set(attributes)


def test_denial_is_no_error_and_an_internal_error_is(sampled: Recorder) -> None:
    sampled.traces.reviewed(review(QUOTA_DENIED))
    assert sampled.spans()["review validate"].status.status_code is StatusCode.UNSET
    sampled.exporter.clear()
    sampled.traces.reviewed(review(replace(ADMITTED, status=ResponseStatus(500, "InternalError"))))
    assert sampled.spans()["review validate"].status.status_code is StatusCode.ERROR


def test_ratio_decides_without_a_parent(sampled: Recorder, unsampled: Recorder) -> None:
    for recorder in (sampled, unsampled):
        recorder.traces.reviewed(review())
    assert len(sampled.spans()) == 1
    assert not unsampled.spans()


def test_sampled_parent_is_followed_whatever_the_ratio(unsampled: Recorder) -> None:
    unsampled.traces.reviewed(review(traceparent=SAMPLED, stages=STAGES))
    spans = unsampled.spans()
    root = spans["review validate"]
    assert f"{root.context.trace_id:032x}" == TRACE_ID
    assert f"{root.parent.span_id:016x}" == SPAN_ID
    assert root.parent.is_remote
    assert {span.context.trace_id for span in spans.values()} == {root.context.trace_id}


def test_unsampled_parent_is_followed(sampled: Recorder) -> None:
    sampled.traces.reviewed(review(traceparent=UNSAMPLED))
    assert not sampled.spans()


def test_sampled_parents_beyond_the_bound_are_sampled_by_ratio(
    unsampled: Recorder,
) -> None:
    for _ in range(FOLLOWED_PER_SECOND_MAX + 3):
        unsampled.traces.reviewed(review(traceparent=SAMPLED))
    assert len(unsampled.exporter.get_finished_spans()) == FOLLOWED_PER_SECOND_MAX
    assert unsampled.traces.sampled_parents() == {"followed": FOLLOWED_PER_SECOND_MAX, "limited": 3}
    unsampled.traces.reviewed(replace(review(traceparent=SAMPLED), started_ns=AT_NS + 1_000_000_000))
    assert len(unsampled.exporter.get_finished_spans()) == FOLLOWED_PER_SECOND_MAX + 1


def test_sampled_trace_beyond_the_bound_links_its_parent(sampled: Recorder) -> None:
    for _ in range(FOLLOWED_PER_SECOND_MAX + 1):
        sampled.traces.reviewed(review(traceparent=SAMPLED))
    *_, last = sampled.exporter.get_finished_spans()
    assert last.parent is None
    assert f"{last.context.trace_id:032x}" != TRACE_ID
    assert [f"{link.context.trace_id:032x}" for link in last.links] == [TRACE_ID]


@pytest.mark.parametrize("traceparent", [SAMPLED, UNSAMPLED])
def test_linked_trace_is_sampled_independently_of_its_parent(traceparent: str) -> None:
    for draw, spans in ((0.0099, 1), (0.01, 0)):
        recorder = Recorder(draw, follows=False)
        recorder.traces.reviewed(review(traceparent=traceparent))
        found = recorder.exporter.get_finished_spans()
        recorder.traces.shutdown()
        assert [(span.parent, [f"{link.context.span_id:016x}" for link in span.links]) for span in found] == [
            (None, [SPAN_ID])
        ] * spans
        assert recorder.traces.sampled_parents() == {"followed": 0, "limited": 0}


@pytest.mark.parametrize(
    "traceparent",
    [
        "",
        "garbage",
        f"ff-{TRACE_ID}-{SPAN_ID}-00",
        f"00-{'0' * 32}-{SPAN_ID}-00",
        f"00-{TRACE_ID}-{'0' * 16}-00",
        f"00-{TRACE_ID.upper()}-{SPAN_ID}-00",
        f"{UNSAMPLED}-more",
        f"{UNSAMPLED}\n",
    ],
)
def test_malformed_parent_is_ignored(sampled: Recorder, traceparent: str) -> None:
    sampled.traces.reviewed(review(traceparent=traceparent))
    root = sampled.spans()["review validate"]
    assert root.parent is None
    assert f"{root.context.trace_id:032x}" != TRACE_ID


def test_later_traceparent_version_is_accepted(sampled: Recorder) -> None:
    sampled.traces.reviewed(review(traceparent=f"01-{TRACE_ID}-{SPAN_ID}-00-more"))
    assert not sampled.spans()


def test_transition_is_an_event_of_its_review(sampled: Recorder) -> None:
    sampled.traces.reviewed(review(replace(QUOTA_DENIED, receipt=Receipt(AT_US, transitions=(TRIPPED,)))))
    [event] = sampled.spans()["review validate"].events
    assert (event.name, dict(event.attributes or {})) == ("breaker transition", MOVED)
    sampled.exporter.clear()
    sampled.traces.reviewed(review(ADMITTED))
    assert not sampled.spans()["review validate"].events


def test_transition_has_its_own_span_whatever_the_ratio(unsampled: Recorder) -> None:
    unsampled.traces.reviewed(review(replace(QUOTA_DENIED, receipt=Receipt(AT_US, transitions=(TRIPPED,)))))
    unsampled.traces.transitioned(TRIPPED)
    [(name, span)] = unsampled.spans().items()
    assert (name, dict(span.attributes or {}), span.parent) == ("breaker transition", MOVED, None)
    assert (span.start_time, span.end_time) == (AT_US * 1000, AT_US * 1000)


def test_other_reports_make_no_span(sampled: Recorder) -> None:
    sampled.traces.refused("no_token", "")
    sampled.traces.policy_loaded(policy("payment-api"))
    sampled.traces.policy_failed(["error"])
    assert not sampled.spans()


@asynccontextmanager
async def collector() -> AsyncIterator[tuple[str, list[tuple[str, str, ExportTraceServiceRequest]]]]:
    """Run an OTLP/HTTP receiver; yield its address and the received requests."""
    received: list[tuple[str, str, ExportTraceServiceRequest]] = []

    async def collect(request: web.Request) -> web.Response:
        body = ExportTraceServiceRequest.FromString(await request.read())
        received.append((request.path, request.content_type, body))
        return web.Response()

    application = web.Application()
    application.router.add_post("/{path:.*}", collect)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    try:
        yield f"http://{host}:{port}", received
    finally:
        await runner.cleanup()


async def test_shutdown_exports_queued_spans_as_otlp_over_http() -> None:
    async with collector() as (endpoint, received):
        traces = await asyncio.to_thread(open_traces, endpoint, 0.0, "0.1.0")
        assert traces is not None
        traces.reviewed(review(NOTED, 700_000, traceparent=SAMPLED, stages=STAGES))
        await asyncio.to_thread(traces.shutdown)
    [(path, content_type, body)] = received
    assert (path, content_type) == ("/v1/traces", "application/x-protobuf")
    [resource_spans] = body.resource_spans
    resource = {pair.key: pair.value.string_value for pair in resource_spans.resource.attributes}
    assert (resource["service.name"], resource["service.version"]) == ("podgate", "0.1.0")
    spans = {span.name: span for span in resource_spans.scope_spans[0].spans}
    root = spans.pop("review validate")
    assert root.trace_id.hex() == TRACE_ID
    assert root.parent_span_id.hex() == SPAN_ID
    assert root.end_time_unix_nano - root.start_time_unix_nano == 700_000
    assert {span.parent_span_id for span in spans.values()} == {root.span_id}
    assert set(spans) == {"decode", "own", "charge", "answer"}


async def test_server_traces_sampled_calls_only(tmp_path: Path) -> None:
    ask = Ask(pod(), "free", "uid-1")
    body = json.dumps(admission_review(ask, as_sent_to_mutate(ask), Half.MUTATE)).encode()
    async with (
        collector() as (endpoint, received),
        serving(Files.create(tmp_path), "--otlp-endpoint", endpoint, "--trace-ratio", "1") as server,
    ):
        for parent in (SAMPLED, UNSAMPLED):
            status, _ = await server.post("/mutate", body, headers={"traceparent": parent})
            assert status == 200
    spans = [span for *_, body in received for span in body.resource_spans[0].scope_spans[0].spans]
    assert {span.trace_id.hex() for span in spans} == {TRACE_ID}
    assert [span.name for span in spans] == ["decode", "policy", "exempt", "own", "rewrite", "answer", "review mutate"]


def test_sdk_is_not_imported_with_the_module() -> None:
    program = (
        "import sys, webhook.adapters.traces; sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
