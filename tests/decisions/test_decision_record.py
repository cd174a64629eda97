"""Decision records have the figures of the decision and the fields that policies read, and no private data."""

import json
from collections.abc import Mapping
from typing import Any, get_type_hints

import msgspec
import pytest
from msgspec.structs import replace

from tests.core.reporting.replay_record import POD, SECRET
from tests.core.reviewing import Gate, body, policy_of
from tests.harness.records import changed
from webhook.core.admission.decision import Finding, Half, Verdict
from webhook.core.findings import Code
from webhook.core.kubernetes.admission_request import ResponseStatus
from webhook.core.kubernetes.pod import Pod
from webhook.core.policy_fields import Mode
from webhook.core.reporting.decision_record import DecisionRecord
from webhook.core.reporting.packed_record import GroupHead, RecordGroup, format_record_id
from webhook.core.reporting.pod_compression import compress_pod, decompress_pod
from webhook.core.reporting.record_codec import POD_BYTES_MAX, EncodedRecord, decode_shared_head, decode_shared_record
from webhook.decisions.encoder import RecordEncoder
from webhook.observers import Observers
from webhook.ports import Review
from webhook.ports.traces import ReviewTrace, SpanReference

POLICY = policy_of("""
- name: web
  match: {namespaces: [shop]}
  placement: {nodeSelector: {disk: ssd}}
  quota: {windows: [{window: 1m, hard: {pods: 1, requests.memory: 1Gi}}]}
  breaker: {quotaExceeded: {count: 3, within: 1m}}
""")
GROUP = sorted(
    mark
    for hint in get_type_hints(DecisionRecord, include_extras=True).values()
    for mark in getattr(hint, "__metadata__", ())
)
AT_US = 1_800_000_000_123_456
TRACE = ReviewTrace(SpanReference("0af7", "b7ad"))


class Reviews(Observers):
    """The reviews of an interceptor."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Review] = []

    def on_reviewed(self, review: Review) -> None:
        self.seen.append(review)


def build_private_pod(uid: str = "", **labels: str) -> dict[str, Any]:
    metadata = {**POD["metadata"], "uid": uid, "labels": {"app": "web", **labels}}
    return {**POD, "metadata": metadata, "spec": {**POD["spec"], "nodeName": "", "schedulingGates": None}}


async def record_reviews(half: Half, *requests: dict[str, Any]) -> list[Review]:
    reviews = Reviews()
    gate = Gate(POLICY, observers=[reviews])
    for request in requests:
        await gate.interceptor.review(half, body(**request))
    return reviews.seen


def encode_review(
    review: Review, encoder: RecordEncoder | None = None, labels: Mapping[str, str] | None = None
) -> EncodedRecord:
    assert review.request is not None
    timed = replace(review, started_ns=AT_US * 1000, duration_ns=0, trace=TRACE)
    return (encoder or RecordEncoder("podgate-a")).encode(timed, review.request, labels)


def encode_and_read(review: Review) -> DecisionRecord:
    return encode_review(review).read()


def build_owned_pod(uid: str) -> dict[str, Any]:
    pod = build_private_pod(uid, **{"podgate.io/service": "web"})
    pod["metadata"]["annotations"] = {"podgate.io/policy-hash": POLICY.hash}
    return pod


def build_requesting_pod(memory: str) -> dict[str, Any]:
    pod, resources = build_owned_pod(f"u{memory}"), {"requests": {"memory": memory}}
    return {**pod, "spec": {**pod["spec"], "containers": [{"name": "web", "resources": resources}]}}


def build_pod_with_priority_class(written: dict[str, Any]) -> dict[str, Any]:
    pod = build_owned_pod("u1")
    managers = [{"fieldsV1": {"f:spec": written}}]
    return {
        **pod,
        "metadata": {**pod["metadata"], "managedFields": managers},
        "spec": {**pod["spec"], "priorityClassName": "high"},
    }


async def test_record_has_no_private_values() -> None:
    created = {"object": build_private_pod()}
    updated = {"operation": "UPDATE", "object": build_owned_pod("u1"), "oldObject": build_owned_pod("u1")}
    [of_create] = await record_reviews(Half.MUTATE, created)
    [of_update] = await record_reviews(Half.VALIDATE, updated)
    for review in (of_create, of_update):
        record = encode_review(review)
        for raw in (msgspec.json.encode(record.read()), record.own + record.group + record.pod + record.old_pod):
            assert b'"app":"web"' in raw
            assert SECRET.encode() not in raw


async def test_record_restores_the_reviewed_pod_as_policies_read_it() -> None:
    [review] = await record_reviews(Half.VALIDATE, {"object": build_owned_pod("u1")})
    record = encode_and_read(review)
    assert record.pod is not None
    sent = msgspec.json.decode(json.dumps(build_owned_pod("u1")), type=Pod)
    assert record.pod.spec == sent.spec
    assert record.pod.metadata.name == "web-1"
    assert record.pod.metadata.uid == record.uid == "u1"
    assert record.pod.labels == sent.labels


async def test_limits_have_the_figures_of_the_denial() -> None:
    _, denied = await record_reviews(
        Half.VALIDATE, {"object": build_owned_pod("u1")}, {"object": build_owned_pod("u2")}
    )
    record = encode_and_read(denied)
    pods, memory = record.limits
    assert record.decision is Verdict.DENY
    assert list(record.codes) == ["QuotaExceeded"]
    assert (pods.hard, pods.used, pods.asked, pods.over) == (1, 1, 1, True)
    assert f"hard {pods.hard}, used {pods.used}, asked {pods.asked}" in record.status.message
    assert pods.free_at in record.status.message
    assert (memory.hard, memory.over, memory.free_at) == ("1Gi", False, "")


async def test_limits_have_what_each_pod_asks() -> None:
    requests = [{"object": build_requesting_pod(memory)} for memory in ("100Mi", "200Mi", "100Mi")]
    asked = [encode_and_read(review).limits[1].asked for review in await record_reviews(Half.VALIDATE, *requests)]
    assert asked == ["100Mi", "200Mi", "100Mi"]


async def test_record_of_the_mutating_half_has_the_generated_name_and_no_uid() -> None:
    pod = build_private_pod()
    del pod["metadata"]["name"]
    [review] = await record_reviews(Half.MUTATE, {"object": pod})
    record = encode_and_read(review)
    assert (record.name, record.uid) == ("web-", "")
    assert record.pod is not None
    assert record.pod.metadata.name == ""
    assert record.owner is not None
    assert (record.owner.kind, record.owner.uid) == ("ReplicaSet", "r1")


async def test_identifiers_are_in_the_order_of_time() -> None:
    ids = [format_record_id(*parts) for parts in ((1_000, 9, "b"), (1_001, 1, "b"), (1_001, 2, "a"), (1_001, 10, "a"))]
    assert ids == sorted(ids)


async def test_pods_of_one_template_share_their_group_and_the_bytes_of_the_recorded_pod() -> None:
    encoder = RecordEncoder("podgate-a")
    requests = [{"object": build_owned_pod(uid)} for uid in ("u1", "u2")]
    first, second = [
        encode_review(review, encoder) for review in await record_reviews(Half.VALIDATE, *requests[:1], *requests[:1])
    ]
    assert first.group is second.group
    assert first.pod is second.pod
    assert second.size == len(second.own)
    [other] = [encode_review(review, encoder) for review in await record_reviews(Half.VALIDATE, requests[1])]
    assert other.group is first.group
    assert other.read().uid == "u2"


@pytest.mark.parametrize("half", Half)
async def test_records_do_not_depend_on_the_earlier_ones_of_their_encoder(half: Half) -> None:
    other_controller = build_private_pod(uid="u1")
    other_controller["metadata"]["ownerReferences"] = [
        {**other_controller["metadata"]["ownerReferences"][0], "name": "other", "uid": "r2"}
    ]
    requests: list[dict[str, Any]] = [
        {"object": build_owned_pod("u1")},
        {"object": build_owned_pod("u2")},  # denied by the quota
        {"object": build_owned_pod("u1"), "dryRun": True},
        {"object": build_private_pod("u1", tier="a")},
        {"object": build_private_pod("u1", tier="b")},
        {"object": other_controller},
        {"object": build_owned_pod("u1"), "userInfo": {"username": "bob"}},
        {"object": build_owned_pod("u1"), "namespace": "elsewhere"},
        {"operation": "UPDATE", "object": build_owned_pod("u1"), "oldObject": build_private_pod("u1", tier="a")},
        *({"object": build_pod_with_priority_class(written)} for written in ({"f:priorityClassName": {}}, {})),
    ]
    encoder = RecordEncoder("podgate-a")
    for review in await record_reviews(half, *requests, *reversed(requests)):
        for labels in (None, {"team": "a"}, {"team": "b"}):
            kept, fresh = encode_review(review, encoder, labels), encode_review(review, labels=labels)
            assert replace(kept.read(), id="") == replace(fresh.read(), id="")
            assert dict(kept.read().namespace_labels) == (labels or {})


async def test_every_field_that_a_group_is_made_from_tells_it_from_others() -> None:
    """A field of the group that is missing in the key would give a Pod the record of its sibling."""
    [review] = await record_reviews(Half.VALIDATE, {"object": build_owned_pod("u1")})
    finding = Finding(Code.QUOTA_EXCEEDED, "quota", Mode.WARN, "above")
    changes: dict[str, Any] = {
        "half": Half.MUTATE,
        "verdict": Verdict.QUEUE,
        "operation": "UPDATE",
        "sub_resource": "resize",
        "dry_run": True,
        "user": "bob",
        "namespace": "elsewhere",
        "workload": "deployment.apps/web",
        "service": "other",
        "policy_hash": "0" * 16,
        "exemption": "username",
        "degraded": "breaker OPEN",
        "status": ResponseStatus(429, "TooManyRequests", "QuotaExceeded"),
        "findings": (finding,),
        "uncounted": True,
        "overrides": "[]",
        "overload": "latency",
    }
    assert set(changes) == {mark.source.rpartition(".")[2] for mark in GROUP if mark.source}
    encoder = RecordEncoder("podgate-a")
    seen = [encode_review(review, encoder).group]
    for name, value in changes.items():
        other = replace(review, decision=changed(review.decision, **{name: value}))
        seen += [encode_review(other, encoder).group, encode_review(replace(other, stages=("decode",)), encoder).group]
    assert len(set(seen)) == 1 + 2 * len(changes)
    assert encode_review(review, encoder).group == seen[0]


def test_each_field_of_a_group_has_a_place_of_its_own_and_the_first_are_those_of_queries() -> None:
    assert [mark.place for mark in GROUP] == list(range(len(GROUP)))
    assert RecordGroup.__struct_fields__[: len(GroupHead.__struct_fields__)] == GroupHead.__struct_fields__


async def test_group_of_an_older_replica_has_defaults_for_later_fields() -> None:
    [review] = await record_reviews(Half.VALIDATE, {"object": build_owned_pod("u1")})
    record = encode_review(review)
    older = msgspec.msgpack.encode(msgspec.msgpack.decode(record.group)[:-2])
    assert replace(record, group=older).read() == record.read()


async def test_other_labels_make_another_recorded_pod() -> None:
    encoder = RecordEncoder("podgate-a")
    requests = [{"object": build_private_pod(tier=tier)} for tier in ("a", "b")]
    first, second = [encode_review(review, encoder) for review in await record_reviews(Half.MUTATE, *requests)]
    assert b'"tier":"b"' in second.pod
    assert first.pod != second.pod


async def test_shared_form_has_the_whole_record_by_position() -> None:
    requests = [{"object": build_owned_pod("u1")}, {"object": build_owned_pod("u2")}]
    updated = {"operation": "UPDATE", "object": build_owned_pod("u1"), "oldObject": build_owned_pod("u1")}
    for review in await record_reviews(Half.VALIDATE, *requests, updated):
        kept = encode_review(review)
        assert decode_shared_record(kept.shared) == kept.read()
        assert decode_shared_head(kept.shared) == kept.head
        assert kept.head.own.id == kept.read().id == "1800000000123-000-podgate-a"
        assert len(kept.shared) < len(msgspec.json.encode(kept.read())) / 2


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{}",
        msgspec.msgpack.encode([]),
        msgspec.msgpack.encode([["x"], [], [], b"", b""]),
        msgspec.msgpack.encode([[], [], [], b"pod", b""]),
    ],
)
def test_other_bytes_are_no_shared_record(raw: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  all that readers catch
        decode_shared_record(raw)


async def test_recorded_pod_is_bounded_when_it_is_decompressed() -> None:
    largest = b"x" * POD_BYTES_MAX
    assert decompress_pod(compress_pod(largest), POD_BYTES_MAX) == largest
    for raw in (compress_pod(largest + b"x"), compress_pod(largest)[:-1], b"x"):
        with pytest.raises(ValueError, match="a recorded Pod"):
            decompress_pod(raw, POD_BYTES_MAX)
