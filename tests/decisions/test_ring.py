"""The ring keeps the newest records, bounded in number and bytes, and never fails a review."""

import gc
import tracemalloc
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.core.reviewing import Gate, body, pod, policy_of
from tests.core.strategies import Json
from webhook.core.admission.decision import Finding, Half
from webhook.core.findings import Code
from webhook.core.kubernetes.admission_request import ResponseStatus
from webhook.core.policy_fields import Mode
from webhook.core.reporting.decision_record import DecisionRecord
from webhook.decisions import ring
from webhook.decisions.ring import DecisionRing
from webhook.observers import Observers
from webhook.ports import Review
from webhook.ports.traces import ReviewTrace, SpanReference

POLICY = policy_of("- name: web\n  match: {namespaces: [shop]}\n  quota: {windows: [{window: 1m, hard: {pods: 9}}]}")
TRACE = ReviewTrace(SpanReference("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"))


class Collected(Observers):
    """The reviews of an interceptor."""

    def __init__(self) -> None:
        super().__init__()
        self.reviews: list[Review] = []

    def on_reviewed(self, review: Review) -> None:
        self.reviews.append(review)


async def record_reviews(number: int, **fields: Any) -> list[Review]:
    seen = Collected()
    gate = Gate(POLICY, observers=[seen])
    for index in range(number):
        request = body(object=gate.build_owned_pod(f"u{index}"), **fields)
        await gate.interceptor.review(Half.VALIDATE, request)
    return seen.reviews


def records(kept: DecisionRing) -> list[DecisionRecord]:
    return [record.read() for record in kept.newest_first()]


async def test_ring_keeps_the_newest_records() -> None:
    kept = DecisionRing("a", records_max=3)
    for review in await record_reviews(5):
        kept.on_reviewed(review)
    assert [record.uid for record in records(kept)] == ["u4", "u3", "u2"]


async def test_ring_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring, "RECORDS_BYTES_MAX", 600)
    kept = DecisionRing("a")
    for review in await record_reviews(20):
        kept.on_reviewed(review)
    assert 0 < len(kept) < 10
    assert records(kept)[0].uid == "u19"


async def test_identifiers_never_go_back_with_the_clock() -> None:
    kept = DecisionRing("a")
    [review] = await record_reviews(1)
    for started_ns in (2_000_000_000_000_000_000, 2_000_000_000_000_000_000, 1_900_000_000_000_000_000):
        kept.on_reviewed(msgspec.structs.replace(review, started_ns=started_ns))
    ids = [record.id for record in records(kept)][::-1]
    assert ids == sorted(set(ids))


async def test_record_has_trace_namespace_labels_and_stages() -> None:
    kept = DecisionRing("a")
    kept.labels = {"shop": {"team": "web"}}.get
    for review in await record_reviews(1):
        kept.on_reviewed(msgspec.structs.replace(review, trace=TRACE))
    [record] = records(kept)
    assert record.trace_id == "0af7651916cd43dd8448eb211c80319c"
    assert record.namespace_labels == {"team": "web"}
    assert [name for name, _ in record.stages][:3] == ["decode", "policy", "exempt"]


async def test_review_that_cannot_be_recorded_is_counted() -> None:
    kept = DecisionRing("a")
    kept.labels = lambda _: 1 / 0  # type: ignore[assignment, return-value]
    for review in await record_reviews(1):
        kept.on_reviewed(review)
    assert (len(kept), kept.failed) == (0, 1)


async def test_pod_that_the_policy_caches_nothing_of_is_recorded() -> None:
    kept, seen = DecisionRing("a"), Collected()
    sent = body(object=pod(priority=7)).replace(b'"priority":7', b'"priority":' + b"7" * 30)
    await Gate(POLICY, observers=[seen]).interceptor.review(Half.MUTATE, sent)
    kept.on_reviewed(seen.reviews[0])
    [record] = records(kept)
    assert record.pod is not None
    assert record.pod.spec.priority == int("7" * 30)


async def test_ring_bounds_the_rate_after_a_burst(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring, "BURST_RECORDS_MAX", 2)
    kept = DecisionRing("a", records_max=100)
    [review, *_] = await record_reviews(1)
    second_ns = 1_000_000_000
    for at_ns in [second_ns] * 4 + [second_ns + 1_500_000] * 3:
        kept.on_reviewed(replace(review, started_ns=at_ns))
    assert (len(kept), kept.dropped) == (3, 4), "1.5 ms later there is room for one more"


async def test_clock_that_was_set_back_stops_no_record() -> None:
    kept = DecisionRing("a")
    [review] = await record_reviews(1)
    for started_ns in (2_000_000_000_000_000_000, *[1_999_996_000_000_000_000] * 3):
        kept.on_reviewed(replace(review, started_ns=started_ns))
    assert (len(kept), kept.dropped) == (4, 0)


def change(document: Json, **metadata: Any) -> bytes:
    document["metadata"] |= metadata
    return body(object=document, dryRun=True)


PLACED = policy_of("- name: web\n  match: {namespaces: [shop]}\n  placement: {annotations: {cost: a}}")


def own(number: int, **fields: Any) -> Json:
    return {"apiVersion": "example.com/v1", "kind": "Farm", "name": f"farm-{number}", "uid": f"u-{number}", **fields}


@pytest.mark.parametrize(
    "build",
    [
        lambda number, long: {"generateName": f"{number}{long}"},
        lambda number, long: {"ownerReferences": [own(number, uid=f"{number}{long}")]},
        lambda number, long: {"ownerReferences": [own(number, name=f"{number}{long}", controller=True)]},
        lambda number, _: {"ownerReferences": [own(number, name=f"farm-{number}-{owner}") for owner in range(1_500)]},
        lambda number, long: {"annotations": {"cost": f"{number}{long}"}},
    ],
    ids=["generateName", "owner-uid", "owner-name", "many-owners", "annotation-that-is-read"],
)
async def test_long_texts_of_unvalidated_pods_are_not_kept(build: Callable[[int, str], Json]) -> None:
    kept, seen = DecisionRing("a"), Collected()
    gate = Gate(PLACED, observers=[seen])
    tracemalloc.start()
    try:
        for number in range(25):
            sent = change(pod(), **build(number, "n" * 200_000))
            await gate.interceptor.review(Half.MUTATE, sent)
            kept.on_reviewed(seen.reviews.pop())
        del sent
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(kept) == 25
    assert held < 1_500_000, "of 5 MB that were sent"
    assert max(len(record.shared) for record in kept.newest_first()) < 2_000


async def test_record_of_many_long_findings_is_shortened() -> None:
    kept = DecisionRing("a")
    [review] = await record_reviews(1)
    finding = Finding(Code.PLACEMENT_CONFLICT, "placement", Mode.ENFORCE, "n" * 2_000, "spec.schedulerName")
    status = ResponseStatus(403, "Forbidden", "n" * 60_000)
    kept.on_reviewed(replace(review, decision=replace(review.decision, findings=(finding,) * 30, status=status)))
    [record] = records(kept)
    assert (record.codes, record.status.code, record.uid) == ((Code.PLACEMENT_CONFLICT,), 403, "u0")
    assert len(next(kept.newest_first()).shared) < 8_000
