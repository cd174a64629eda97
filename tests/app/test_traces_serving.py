"""Traces of a server and a controller, as an OTLP receiver gets them: one Pod from its rewriting to its refund."""

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from tests.harness.server_process import Files, Serving, pod, run_server
from tests.harness.trace_receiver import list_spans, trace_receiver
from tests.redis_servers import RedisServer, usual_names
from tests.timeouts import HANG_SECONDS
from webhook.adapters.traces import FOLLOWED_PER_SECOND_MAX
from webhook.app.telemetry import Telemetry
from webhook.app.telemetry.loop_reports import build_release_reports
from webhook.commands.simulator import Ask, build_admission_review, prepare_for_mutate
from webhook.controller.release.gated_pods import GatedPod
from webhook.controller.reports import NEVER_CREATED
from webhook.core.admission.decision import Half
from webhook.core.controller.waiting_pod import WaitingPod
from webhook.core.kubernetes.pod import Pod, PodMetadata, PodSpec, PodStatus
from webhook.core.pods.ownership import OwnedPod
from webhook.core.quota import UnseenPod
from webhook.settings import MEMORY, Settings

pytest_plugins = ("tests.redis_servers.fixtures",)

POLICY = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: few
  failureMode: Closed
  match: {namespaces: [few]}
  quota: {windows: [{window: 1h, hard: {pods: 1}}]}
  breaker: {quotaExceeded: {count: 1, within: 1m, countBy: Request}, openFor: 30s}
"""
STAGES = ["decode", "policy", "exempt", "own", "breaker", "check", "charge", "answer"]
OPENMETRICS = {"Accept": "application/openmetrics-text"}


def find_children(spans: Sequence[Span], parent: Span) -> dict[str, Span]:
    return {span.name: span for span in spans if span.parent_span_id == parent.span_id}


def find_spans(spans: Sequence[Span], name: str) -> list[Span]:
    return [span for span in spans if span.name == name]


def values(span: Span) -> dict[str, Any]:
    return {pair.key: pair.value.string_value or pair.value.int_value for pair in span.attributes}


async def create(server: Serving) -> str:
    """Create a Pod; return its uid."""
    uid = str(uuid4())
    await server.create(Ask(pod(), "few", uid, "alice"))
    return uid


@pytest.mark.parametrize("redis_program", usual_names(), indirect=True)
async def test_trace_leads_from_both_halves_of_a_pod_to_redis(tmp_path: Path, redis_server: RedisServer) -> None:
    async with trace_receiver() as (endpoint, received):
        traced = "--store", redis_server.url, "--store-deadline", "30s", "--otlp-endpoint", endpoint
        async with run_server(Files.create(tmp_path, POLICY), *traced, "--trace-ratio", "1") as server:
            uid, denied = await create(server), await create(server)
            async with server.session.get(f"http://{server.plain}/metrics", headers=OPENMETRICS) as response:
                scraped = await response.text()
        spans = list_spans(received)
    validated = {values(span)["k8s.pod.uid"]: span for span in find_spans(spans, "review validate")}
    review, mutation = validated[uid], find_spans(spans, "review mutate")[0]
    assert review.trace_id.hex() == uid.replace("-", "")
    assert [(link.trace_id, link.span_id) for link in review.links] == [(mutation.trace_id, mutation.span_id)]

    stages = find_children(spans, review)
    assert list(stages) == STAGES
    [store] = find_children(spans, stages["charge"]).values()
    [redis] = find_children(spans, store).values()
    assert (store.name, redis.name, redis.kind) == ("store acquire", "EVALSHA", Span.SPAN_KIND_CLIENT)
    nested = [stages["charge"], store, redis]
    assert [span.start_time_unix_nano for span in nested] == sorted(span.start_time_unix_nano for span in nested)
    ends = [span.end_time_unix_nano for span in nested]
    assert ends == sorted(ends, reverse=True)
    assert ends[-1] > redis.start_time_unix_nano
    host, _, port = redis_server.url.removeprefix("redis://").partition("/")[0].rpartition(":")
    assert (values(redis)["server.address"], values(redis)["server.port"]) == (host, int(port))

    [event] = validated[denied].events
    [transition] = find_spans(spans, "breaker transition")
    assert event.name == transition.name
    assert values(transition)["podgate.breaker.to"] == "OPEN"
    assert f'trace_id="{denied.replace("-", "")}"' in scraped or f'trace_id="{uid.replace("-", "")}"' in scraped


@pytest.mark.parametrize("redis_program", usual_names(), indirect=True)
async def test_trace_shows_the_call_that_redis_did_not_answer(tmp_path: Path, own_redis_server: RedisServer) -> None:
    async with trace_receiver() as (endpoint, received):
        traced = "--store", own_redis_server.url, "--otlp-endpoint", endpoint, "--trace-ratio", "1"
        async with run_server(Files.create(tmp_path, POLICY.replace("pods: 1", "pods: 9")), *traced) as server:
            await create(server)
            uids, fallback = [], 'podgate_store_fallback{rule="Local",service="few"}'
            for _ in range(3):
                own_redis_server.pause()
                try:
                    uids.append(await create(server))
                    assert await server.metric(fallback) == 1
                finally:
                    own_redis_server.resume()
                async with asyncio.timeout(HANG_SECONDS):
                    while await server.metric(fallback):  # noqa: ASYNC110 - it ends in another process
                        await asyncio.sleep(0.05)
        spans = list_spans(received)
    traces = [[span for span in spans if span.trace_id.hex() == uid.replace("-", "")] for uid in uids]
    # A Pod that is created while the server's tick of a second waits for its answer is not sent to Redis.
    spans, *_ = (trace for trace in traces if find_spans(trace, "EVALSHA"))
    [store], [redis] = find_spans(spans, "store acquire"), find_spans(spans, "EVALSHA")
    assert (redis.status.code, values(redis)["error.type"]) == (Status.STATUS_CODE_ERROR, "timeout")
    assert store.status.code == Status.STATUS_CODE_UNSET, "the service's rule has answered"
    assert redis.parent_span_id == store.span_id
    assert redis.end_time_unix_nano > redis.start_time_unix_nano


async def test_flood_of_sampled_parents_causes_ten_traces_a_second_at_most(tmp_path: Path) -> None:
    calls = 200
    async with trace_receiver() as (endpoint, received):
        arguments = "--otlp-endpoint", endpoint, "--trace-ratio", "0"
        async with run_server(Files.create(tmp_path, POLICY), *arguments) as server:
            ask = Ask(pod(), "few", "uid-1", "alice")
            body = json.dumps(build_admission_review(ask, prepare_for_mutate(ask), Half.MUTATE)).encode()
            started_seconds = time.time()

            async def call() -> None:
                parent = f"00-{uuid4().hex}-{uuid4().hex[:16]}-01"
                status, _ = await server.post("/mutate", body, headers={"traceparent": parent})
                assert status == 200

            for _ in range(calls // 20):
                await asyncio.gather(*(call() for _ in range(20)))
            seconds = int(time.time()) - int(started_seconds) + 1
            counted = {
                result: await server.metric(f'podgate_trace_parents_total{{result="{result}"}}')
                for result in ("followed", "limited")
            }
        spans = list_spans(received)
    assert len(find_spans(spans, "review mutate")) == counted["followed"] <= seconds * FOLLOWED_PER_SECOND_MAX
    assert sum(counted.values()) == calls


async def test_what_a_controller_does_about_a_pod_is_in_the_trace_of_their_pod() -> None:
    uid, created = str(uuid4()), datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    async with trace_receiver() as (endpoint, received):
        given = {"otlp_endpoint": endpoint, "trace_ratio": 1.0, "cluster": "prod-eu-1", "store": MEMORY}
        settings = Settings(**{item.name: given.get(item.name) for item in fields(Settings)})
        telemetry = await asyncio.to_thread(Telemetry, settings, "0")
        telemetry.build_controller_reports().on_refunded(
            "few", UnseenPod(uid, "few", "web-1", 61_000_000), NEVER_CREATED
        )
        waiting = WaitingPod(uid, "few", 0, {}, "", 0)
        build_release_reports(telemetry).on_released(GatedPod(waiting, "few", "web-1", ""), 41.5, 0.1)
        [starts] = telemetry.pod_observers
        metadata = PodMetadata("web-1", namespace="few", uid=uid, creation_timestamp=created)
        owned = OwnedPod("few", "few", "web-1", {}, 0, 0, is_sure=True, is_labelled=True)
        for phase in ("Pending", "Succeeded"):
            starts.on_changed(Pod(metadata, PodSpec(), PodStatus(phase)), owned)
        await asyncio.to_thread(telemetry.close)
        refund, release, start = list_spans(received)
    assert start.trace_id == release.trace_id == refund.trace_id
    assert (release.name, release.end_time_unix_nano - release.start_time_unix_nano) == (
        "queue release",
        41_500_000_000,
    )
    assert (start.name, values(start)["podgate.start.result"]) == ("pod start", "ok")
    assert refund.trace_id.hex() == uid.replace("-", "")
    assert values(refund)["podgate.refund.cause"] == NEVER_CREATED
    assert b"podgate_quota_refunds_total" in telemetry.metrics.render()
