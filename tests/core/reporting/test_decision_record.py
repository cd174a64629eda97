"""Decision records have the figures of the decision and the fields that policies read, and no private data."""

import json
from typing import Any

import msgspec
import pytest

from tests.core.reporting.test_replay_record import POD, SECRET
from tests.core.reviewing import Gate, body, policy_of
from webhook.core.admission.decision import Half, Verdict
from webhook.core.kubernetes.pod import Pod
from webhook.core.reporting import record_codec
from webhook.core.reporting.decision_record import DecisionRecord
from webhook.core.reporting.packed_record import RecordOrigin, packed, record_id
from webhook.core.reporting.pod_compression import compressed, decompressed
from webhook.core.reporting.record_codec import (
    POD_MAX_BYTES,
    EncodedRecord,
    RecordedPods,
    head_of_shared,
    record_of_shared,
)
from webhook.observers import Observers
from webhook.ports import Review

POLICY = policy_of("""
- name: web
  match: {namespaces: [shop]}
  placement: {nodeSelector: {disk: ssd}}
  quota: {windows: [{window: 1m, hard: {pods: 1, requests.memory: 1Gi}}]}
  breaker: {quotaExceeded: {count: 3, within: 1m}}
""")
AT_US = 1_800_000_000_123_456


class Reviews(Observers):
    """The reviews of an interceptor."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Review] = []

    def reviewed(self, review: Review) -> None:
        self.seen.append(review)


def with_private_values(uid: str = "", **labels: str) -> dict[str, Any]:
    metadata = {**POD["metadata"], "uid": uid, "labels": {"app": "web", **labels}}
    return {**POD, "metadata": metadata, "spec": {**POD["spec"], "nodeName": "", "schedulingGates": None}}


async def reviewed(half: Half, *requests: dict[str, Any]) -> list[Review]:
    reviews = Reviews()
    gate = Gate(POLICY, observers=[reviews])
    for request in requests:
        await gate.interceptor.review(half, body(**request))
    return reviews.seen


def encoded(review: Review, pods: RecordedPods | None = None) -> EncodedRecord:
    assert review.request is not None
    parts = (pods or RecordedPods()).of(review.decision, review.request)
    origin = RecordOrigin(AT_US // 1000, 7, "podgate-a", AT_US, review.stages, review.ends_ns, "0af7")
    record = packed(review.decision, review.request, origin, parts.controller, {"team": "a"})
    return record_codec.encoded(record, parts, review.decision, review.request)


def record_of(review: Review) -> DecisionRecord:
    return encoded(review).read()


def owned(uid: str) -> dict[str, Any]:
    pod = with_private_values(uid, **{"podgate.io/service": "web"})
    pod["metadata"]["annotations"] = {"podgate.io/policy-hash": POLICY.hash}
    return pod


async def test_record_has_no_private_values() -> None:
    created = {"object": with_private_values()}
    updated = {"operation": "UPDATE", "object": owned("u1"), "oldObject": owned("u1")}
    [of_create] = await reviewed(Half.MUTATE, created)
    [of_update] = await reviewed(Half.VALIDATE, updated)
    for review in (of_create, of_update):
        record = encoded(review)
        for raw in (msgspec.json.encode(record.read()), record.packed + record.pod + record.old_pod):
            assert b'"app":"web"' in raw
            assert SECRET.encode() not in raw


async def test_record_restores_the_reviewed_pod_as_policies_read_it() -> None:
    [review] = await reviewed(Half.VALIDATE, {"object": owned("u1")})
    record = record_of(review)
    assert record.pod is not None
    sent = msgspec.json.decode(json.dumps(owned("u1")), type=Pod)
    assert record.pod.spec == sent.spec
    assert record.pod.metadata.name == "web-1"
    assert record.pod.metadata.uid == record.uid == "u1"
    assert record.pod.labels == sent.labels


async def test_limits_have_the_figures_of_the_denial() -> None:
    _, denied = await reviewed(Half.VALIDATE, {"object": owned("u1")}, {"object": owned("u2")})
    record = record_of(denied)
    pods, memory = record.limits
    assert record.decision is Verdict.DENY
    assert list(record.codes) == ["QuotaExceeded"]
    assert (pods.hard, pods.used, pods.asked, pods.over) == (1, 1, 1, True)
    assert f"hard {pods.hard}, used {pods.used}, asked {pods.asked}" in record.status.message
    assert pods.free_at in record.status.message
    assert (memory.hard, memory.over, memory.free_at) == ("1Gi", False, "")


async def test_record_of_the_mutating_half_has_the_generated_name_and_no_uid() -> None:
    pod = with_private_values()
    del pod["metadata"]["name"]
    [review] = await reviewed(Half.MUTATE, {"object": pod})
    record = record_of(review)
    assert (record.name, record.uid) == ("web-", "")
    assert record.pod is not None
    assert record.pod.metadata.name == ""
    assert record.owner is not None
    assert (record.owner.kind, record.owner.uid) == ("ReplicaSet", "r1")


async def test_identifiers_are_in_the_order_of_time() -> None:
    ids = [record_id(*one) for one in ((1_000, 9, "b"), (1_001, 1, "b"), (1_001, 2, "a"), (1_001, 10, "a"))]
    assert ids == sorted(ids)


async def test_pods_of_one_template_share_the_bytes_of_the_recorded_pod() -> None:
    pods = RecordedPods()
    requests = [{"object": owned(uid)} for uid in ("u1", "u2")]
    first, second = [encoded(review, pods) for review in await reviewed(Half.VALIDATE, *requests)]
    assert first.pod is second.pod
    assert second.size == len(second.packed)
    assert second.read().uid == "u2"


async def test_other_labels_make_another_recorded_pod() -> None:
    pods = RecordedPods()
    requests = [{"object": with_private_values(tier=tier)} for tier in ("a", "b")]
    first, second = [encoded(review, pods) for review in await reviewed(Half.MUTATE, *requests)]
    assert b'"tier":"b"' in second.pod
    assert first.pod != second.pod


async def test_shared_form_has_the_whole_record_by_position() -> None:
    requests = [{"object": owned("u1")}, {"object": owned("u2")}]
    updated = {"operation": "UPDATE", "object": owned("u1"), "oldObject": owned("u1")}
    for review in await reviewed(Half.VALIDATE, *requests, updated):
        kept = encoded(review)
        assert record_of_shared(kept.shared) == kept.read()
        assert head_of_shared(kept.shared) == kept.head
        assert kept.head.id == kept.read().id == "1800000000123-007-podgate-a"
        assert len(kept.shared) < len(msgspec.json.encode(kept.read())) / 2


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{}",
        msgspec.msgpack.encode([]),
        msgspec.msgpack.encode([["x"], [], b"", b""]),
        msgspec.msgpack.encode([[], [], b"pod", b""]),
    ],
)
def test_other_bytes_are_no_shared_record(raw: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  all that readers catch
        record_of_shared(raw)


async def test_recorded_pod_is_bounded_when_it_is_decompressed() -> None:
    largest = b"x" * POD_MAX_BYTES
    assert decompressed(compressed(largest), POD_MAX_BYTES) == largest
    for raw in (compressed(largest + b"x"), compressed(largest)[:-1], b"x"):
        with pytest.raises(ValueError, match="a recorded Pod"):
            decompressed(raw, POD_MAX_BYTES)
