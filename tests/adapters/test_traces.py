"""Spans of sampled reviews, transitions and refunds: stages and calls as children, OTLP on the wire."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import (
    db_attributes,
    error_attributes,
    http_attributes,
    k8s_attributes,
    server_attributes,
    user_attributes,
)
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from tests.harness.records import (
    ADMITTED,
    ADVISED,
    AT_NS,
    AT_US,
    QUOTA_DENIED,
    changed,
    failure_of,
    policy,
    review,
    transition,
)
from tests.harness.server_process import Files, pod, run_server
from tests.harness.trace_receiver import list_spans, trace_receiver
from webhook.adapters.traces import RatioSampler, Traces, open_traces
from webhook.adapters.traces.spans import Spans
from webhook.commands.simulator import Ask, build_admission_review, prepare_for_mutate
from webhook.controller.reports import NEVER_CREATED
from webhook.core.admission.decision import Decision, Half, StageNote, WouldWrite
from webhook.core.admission.review import Request
from webhook.core.breaker import State
from webhook.core.kubernetes.admission_request import ResponseStatus
from webhook.core.kubernetes.pod import OwnerReference, Pod, PodMetadata, PodSpec
from webhook.core.pods.ownership import OwnedPod
from webhook.core.policy_fields import Mode
from webhook.core.policy_fields.scheduling import Scheduling
from webhook.core.quota import Receipt, UnseenPod
from webhook.core.scheduling.node_selection import ServiceRules
from webhook.core.scheduling.scheduling_record import (
    FilterAttempt,
    LoadOrigin,
    PreemptAttempt,
    RuleRefusals,
    ScoreAttempt,
    ScoredNode,
)
from webhook.ports.traces import REDIS, STORE, ReviewTrace, SpanReference, TimedCall, TracedPod

TRACE_ID, SPAN_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED = f"00-{TRACE_ID}-{SPAN_ID}-01"
UNSAMPLED = f"00-{TRACE_ID}-{SPAN_ID}-00"
PARENT = SpanReference(TRACE_ID, SPAN_ID)
OWN = ReviewTrace(SpanReference("1" * 32, "2" * 16))
FOLLOWING = ReviewTrace(SpanReference(TRACE_ID, "2" * 16), PARENT)
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
    """Traces over an exporter in memory."""

    def __init__(self, ratio: float = 0.01) -> None:
        self.exporter = InMemorySpanExporter()
        spans = Spans(SimpleSpanProcessor(self.exporter), RESOURCE, "redis.podgate-system.svc:6379")
        self.traces = Traces(spans, RatioSampler(ratio), lambda: AT_NS)

    def add(self, decision: Decision = ADMITTED, duration_ns: int = 700_000, **more: Any) -> None:
        self.traces.on_reviewed(review(decision, duration_ns, **{"trace": OWN, **more}))

    def spans(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self.exporter.get_finished_spans()}


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    recorder = Recorder()
    yield recorder
    recorder.traces.shutdown()


def test_review_is_one_span_with_its_stages_as_children(recorder: Recorder) -> None:
    recorder.add(NOTED, 700_000, stages=STAGES)
    spans = recorder.spans()
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


def read_export(exporter: InMemorySpanExporter) -> tuple[ExportTraceServiceRequest, list[bool]]:
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


@pytest.mark.parametrize("parent", [None, PARENT])
def test_spans_on_the_wire_are_those_of_the_tracer(recorder: Recorder, parent: SpanReference | None) -> None:
    receipt = Receipt(AT_US, transitions=(TRIPPED,))
    failed = changed(NOTED, status=ResponseStatus(500, "InternalError"), receipt=receipt)
    recorder.add(failed, 700_000, trace=ReviewTrace(OWN.span, parent), stages=STAGES)

    exporter = InMemorySpanExporter()
    provider = TracerProvider(resource=RESOURCE, shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("podgate")
    remote = SpanContext(int(TRACE_ID, 16), int(SPAN_ID, 16), is_remote=True, trace_flags=TraceFlags(1))
    above = Context() if parent is None else set_span_in_context(NonRecordingSpan(remote), Context())
    attributes = recorder.spans()["review validate"].attributes
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
    assert read_export(recorder.exporter) == read_export(exporter)
    provider.shutdown()


def test_span_attributes_show_the_decision(recorder: Recorder) -> None:
    recorder.add(NOTED)
    assert recorder.spans()["review validate"].attributes == {
        "http.request.method": "POST",
        "http.route": "/validate",
        "http.response.status_code": 200,
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


def test_span_names_the_concerns_that_enforce_would_write(recorder: Recorder) -> None:
    written = tuple(WouldWrite(concern, Mode.WARN, ("spec.x",)) for concern in ("placement", "resources"))
    recorder.add(replace(ADMITTED, would_write=written))
    assert recorder.spans()["review validate"].attributes["podgate.would_rewrite"] == "placement,resources"


def test_span_of_a_template_names_the_workload_and_no_pod(recorder: Recorder) -> None:
    recorder.add(ADVISED)
    attributes = recorder.spans()["review validate"].attributes
    assert attributes["podgate.workload"] == "deployment.apps/payment-api"
    assert not {"k8s.pod.name", "k8s.pod.uid"} & set(attributes)


def test_denial_is_no_error_and_an_internal_error_is(recorder: Recorder) -> None:
    recorder.add(QUOTA_DENIED)
    assert recorder.spans()["review validate"].status.status_code is StatusCode.UNSET
    recorder.exporter.clear()
    recorder.add(replace(ADMITTED, status=ResponseStatus(500, "InternalError")))
    assert recorder.spans()["review validate"].status.status_code is StatusCode.ERROR


def test_transition_is_an_event_of_its_review(recorder: Recorder) -> None:
    recorder.add(changed(QUOTA_DENIED, receipt=Receipt(AT_US, transitions=(TRIPPED,))))
    [event] = recorder.spans()["review validate"].events
    assert (event.name, dict(event.attributes or {})) == ("breaker transition", MOVED)
    recorder.exporter.clear()
    recorder.add(ADMITTED)
    assert not recorder.spans()["review validate"].events


def test_transition_has_its_own_span_whatever_the_ratio(recorder: Recorder) -> None:
    recorder.add(changed(QUOTA_DENIED, receipt=Receipt(AT_US, transitions=(TRIPPED,))), trace=None)
    recorder.traces.on_transition(TRIPPED)
    [(name, span)] = recorder.spans().items()
    assert (name, dict(span.attributes or {}), span.parent) == ("breaker transition", MOVED, None)
    assert (span.start_time, span.end_time) == (AT_US * 1000, AT_US * 1000)


def test_other_reports_make_no_span(recorder: Recorder) -> None:
    recorder.traces.on_refused("no_token", "")
    recorder.traces.on_policy_loaded(policy("payment-api"))
    recorder.traces.on_policy_failed(["error"])
    assert not recorder.spans()


def test_call_of_a_scheduler_is_in_the_trace_of_its_pod_if_the_ratio_selects_it() -> None:
    recorder = Recorder(ratio=0.5)
    calls = recorder.traces.scheduling()
    service = ServiceRules("web", Mode.ENFORCE, Scheduling())
    at = datetime(2026, 11, 24, tzinfo=UTC)
    refused = RuleRefusals("hot_cpu", "node(s) above the cpu hot threshold 0.8", 2, 0.8, ())
    with_pod = RuleRefusals("hot_cpu", "node(s) would be above the cpu hot threshold 0.8 with this Pod", 1, 0.8, ())
    best = ScoredNode("cool", 9, 0.9, 0.9, 0.0, 0.0, LoadOrigin("prometheus", 1.0))
    attempts = {
        "filter": FilterAttempt(at, 6, 3, "", (refused, with_pod)),
        "prioritize": ScoreAttempt(at, 3, (best,), {}),
        "preempt": PreemptAttempt(at, 2, 1),
    }
    for verb, attempt in attempts.items():
        for uid in ("6f6b9a8e-1c1e-4a52-9a7e-7f0000000000", "6f6b9a8e-1c1e-4a52-9a7e-000000000000"):
            calls.on_decided(Pod(PodMetadata("web-1", namespace="shop", uid=uid), PodSpec()), service, attempt)
            calls.on_answered(verb, 400_000)
    calls.on_answered("filter", 1)  # a Pod of no service: nothing was decided
    found = recorder.spans()
    assert {f"{span.context.trace_id:032x}" for span in found.values()} == {"6f6b9a8e1c1e4a529a7e000000000000"}
    assert len(recorder.exporter.get_finished_spans()) == 3
    span = found["scheduling filter"]
    assert (span.kind, span.start_time, span.end_time) == (SpanKind.SERVER, AT_NS - 400_000, AT_NS)
    assert dict(span.attributes or {}) == {
        "http.request.method": "POST",
        "http.route": "/filter",
        "http.response.status_code": 200,
        "podgate.service": "web",
        "podgate.mode": "Enforce",
        "k8s.namespace.name": "shop",
        "k8s.pod.name": "web-1",
        "k8s.pod.uid": "6f6b9a8e-1c1e-4a52-9a7e-000000000000",
        "podgate.nodes.asked": 6,
        "podgate.nodes.passed": 3,
        "podgate.nodes.refused.hot_cpu": 3,
    }
    scores = found["scheduling prioritize"].attributes or {}
    assert (scores["podgate.node.best"], scores["podgate.node.score"]) == ("cool", 9)
    assert (found["scheduling preempt"].attributes or {})["podgate.nodes.passed"] == 1


def test_refund_is_in_the_trace_of_its_pod_if_the_ratio_selects_it() -> None:
    recorder = Recorder(0.75)  # of Pods: 0.5 in each half
    for last in ("7", "8"):
        uid = f"6f6b9a8e-1c1e-4a52-9a7e-{last}f0000000000"
        recorder.traces.on_refunded("payment-api", UnseenPod(uid, "payments", "web-1", 61_000_000), NEVER_CREATED)
    [span] = recorder.exporter.get_finished_spans()
    assert (span.name, f"{span.context.trace_id:032x}") == ("refund", "6f6b9a8e1c1e4a529a7e7f0000000000")
    assert (span.start_time, span.end_time) == (AT_NS - 61_000_000_000, AT_NS)
    assert span.attributes["podgate.refund.cause"] == NEVER_CREATED


def test_wait_in_a_queue_is_in_the_trace_of_its_pod_if_the_ratio_selects_it() -> None:
    recorder = Recorder(0.75)
    for last in ("7", "8"):
        uid = f"6f6b9a8e-1c1e-4a52-9a7e-{last}f0000000000"
        recorder.traces.on_released(TracedPod("payment-api", "payments", "web-1", uid), 41.5)
    [span] = recorder.exporter.get_finished_spans()
    assert (span.name, f"{span.context.trace_id:032x}") == ("queue release", "6f6b9a8e1c1e4a529a7e7f0000000000")
    assert (span.start_time, span.end_time) == (AT_NS - 41_500_000_000, AT_NS)
    assert span.attributes == {
        "podgate.service": "payment-api",
        "k8s.namespace.name": "payments",
        "k8s.pod.name": "web-1",
        "k8s.pod.uid": "6f6b9a8e-1c1e-4a52-9a7e-7f0000000000",
    }


def make_starting_pod(uid: str, **status: Any) -> Pod:
    metadata = {"name": "web-1", "namespace": "payments", "uid": uid, "creationTimestamp": "2027-01-15T07:59:58Z"}
    return msgspec.convert({"metadata": metadata, "spec": {"nodeName": "a1"}, "status": status}, Pod)


READY = [{"type": "Ready", "status": "True", "lastTransitionTime": "2027-01-15T08:00:00Z"}]
OWNED = OwnedPod("payment-api", "payments", "web-1", {}, 0, 0, is_sure=True, is_labelled=True)


def test_start_is_in_the_trace_of_its_pod_once_if_the_ratio_selects_it() -> None:
    recorder = Recorder(0.75)
    observer = recorder.traces.starts()
    for last in ("7", "8"):
        uid = f"6f6b9a8e-1c1e-4a52-9a7e-{last}f0000000000"
        for status in ({}, {"conditions": READY}, {}, {"conditions": READY}):
            observer.on_changed(make_starting_pod(uid, **status), OWNED)
    span, *more = recorder.exporter.get_finished_spans()
    assert (span.name, f"{span.context.trace_id:032x}") == ("pod start", "6f6b9a8e1c1e4a529a7e7f0000000000")
    assert (span.end_time - span.start_time, span.status.status_code) == (2_000_000_000, StatusCode.UNSET)
    assert (span.attributes["podgate.start.result"], span.attributes["k8s.node.name"]) == ("ok", "a1")
    assert not more


def test_failed_start_is_an_error_and_older_pods_have_none() -> None:
    recorder = Recorder(1)
    observer = recorder.traces.starts()
    old = make_starting_pod("6f6b9a8e-1c1e-4a52-9a7e-000000000001")
    old = replace(old, metadata=replace(old.metadata, creation_timestamp="2027-01-15T07:00:00Z"))
    failing, deleted = (f"6f6b9a8e-1c1e-4a52-9a7e-00000000000{number}" for number in (2, 3))
    observer.on_listed(old, OWNED)
    observer.on_changed(make_starting_pod(failing), OWNED)
    observer.on_changed(make_starting_pod(deleted), OWNED)
    observer.on_changed(replace(make_starting_pod(old.metadata.uid, conditions=READY), metadata=old.metadata), OWNED)
    observer.on_changed(make_starting_pod(failing, phase="Failed"), OWNED)
    observer.on_deleted(deleted)
    [span] = recorder.exporter.get_finished_spans()
    assert (span.attributes["k8s.pod.uid"], span.attributes["podgate.start.result"]) == (failing, "Failed")
    assert span.status.status_code is StatusCode.ERROR


CALLS = (
    TimedCall(REDIS, 120_000, 580_000, server="", shared_by=7),
    TimedCall(STORE, 16_000, 590_000),
)
LATE = "timeout: no answer within 50 ms"


def test_calls_are_below_their_stage_and_redis_is_below_the_store(recorder: Recorder) -> None:
    recorder.add(NOTED, 700_000, stages=STAGES, calls=CALLS)
    spans = recorder.spans()
    store, redis = spans["store acquire"], spans["EVALSHA"]
    assert store.parent.span_id == spans["charge"].context.span_id
    assert redis.parent.span_id == store.context.span_id
    assert (store.start_time - AT_NS, store.end_time - AT_NS) == (16_000, 590_000)
    assert (redis.start_time - AT_NS, redis.end_time - AT_NS) == (120_000, 580_000)
    assert (store.kind, redis.kind) == (SpanKind.INTERNAL, SpanKind.CLIENT)
    assert redis.attributes == {
        "db.system.name": "redis",
        "db.operation.name": "EVALSHA",
        "podgate.redis.operations": 7,
        "server.address": "redis.podgate-system.svc",
        "server.port": 6379,
    }


def test_failed_calls_show_the_error_and_the_node_of_the_cluster(recorder: Recorder) -> None:
    calls = (
        TimedCall(REDIS, 20_000, 590_000, failure_of(LATE), "[fd00::1]:7001"),
        TimedCall(STORE, 16_000, 595_000, failure_of(LATE)),
    )
    recorder.add(NOTED, 700_000, stages=STAGES, calls=calls)
    redis, store = recorder.spans()["EVALSHA"], recorder.spans()["store acquire"]
    assert {(span.status.status_code, span.status.description) for span in (redis, store)} == {(StatusCode.ERROR, LATE)}
    assert (redis.attributes["error.type"], store.attributes["error.type"]) == ("timeout", "timeout")
    assert (redis.attributes["server.address"], redis.attributes["server.port"]) == ("fd00::1", 7001)


def test_other_attributes_than_podgates_are_of_the_semantic_conventions(recorder: Recorder) -> None:
    replica_sets = "system:serviceaccount:kube-system:replicaset-controller"
    owner = OwnerReference("apps/v1", "ReplicaSet", "payment-api", "owner-1", controller=True)
    pod = Pod(metadata=PodMetadata(owner_references=(owner,)), spec=PodSpec())
    request = Request("review-1", "CREATE", "pods", "", "payments", replica_sets, dry_run=False, pod=pod, old_pod=None)
    calls = TimedCall(REDIS, 20_000, 590_000, failure_of(LATE)), TimedCall(STORE, 16_000, 595_000, failure_of(LATE))
    recorder.add(NOTED, stages=STAGES, calls=calls, request=request)
    names = {name for span in recorder.exporter.get_finished_spans() for name in span.attributes or {}}
    modules = db_attributes, error_attributes, http_attributes, k8s_attributes, server_attributes, user_attributes
    standard = {value for module in modules for value in vars(module).values() if isinstance(value, str)}
    assert {"http.route", "k8s.replicaset.uid", "k8s.replicaset.name", "db.system.name"} <= names
    assert {name for name in names if not name.startswith("podgate.")} <= standard


async def test_shutdown_exports_queued_spans_as_otlp_over_http() -> None:
    async with trace_receiver() as (endpoint, received):
        resource = {"service.name": "podgate", "service.version": "0.1.0"}
        traces = await asyncio.to_thread(open_traces, endpoint, RatioSampler(0.0), lambda: AT_NS, resource)
        traces.on_reviewed(review(NOTED, 700_000, trace=FOLLOWING, stages=STAGES))
        await asyncio.to_thread(traces.shutdown)
    [call] = received
    assert (call.path, call.content_type) == ("/v1/traces", "application/x-protobuf")
    [resource_spans] = call.body.resource_spans
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
    body = json.dumps(build_admission_review(ask, prepare_for_mutate(ask), Half.MUTATE)).encode()
    async with (
        trace_receiver() as (endpoint, received),
        run_server(Files.create(tmp_path), "--otlp-endpoint", endpoint, "--trace-ratio", "1") as server,
    ):
        for parent in (SAMPLED, UNSAMPLED):
            status, _ = await server.post("/mutate", body, headers={"traceparent": parent})
            assert status == 200
    spans = list_spans(received)
    assert {span.trace_id.hex() for span in spans} == {TRACE_ID}
    assert [span.name for span in spans] == ["decode", "policy", "exempt", "own", "rewrite", "answer", "review mutate"]


def test_sdk_is_not_imported_with_the_module() -> None:
    program = (
        "import sys, webhook.adapters.traces; sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
