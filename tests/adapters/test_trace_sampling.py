"""Sampling of reviews: ratio, parents within a bound, and both halves of a Pod."""

from itertools import pairwise
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.harness.records import AT_NS
from webhook.adapters.traces import FOLLOWED_PER_SECOND_MAX, RatioSampler
from webhook.adapters.traces.sampling import find_trace_id
from webhook.core.admission.decision import Half
from webhook.core.admission.review import Request
from webhook.core.kubernetes.pod import OwnerReference, Pod, PodMetadata, PodSpec
from webhook.ports.traces import ReviewTrace, SpanReference, TraceParent

TRACE_ID, SPAN_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED = f"00-{TRACE_ID}-{SPAN_ID}-01"
UNSAMPLED = f"00-{TRACE_ID}-{SPAN_ID}-00"
UID = "6f6b9a8e-1c1e-4a52-9a7e-7f0000000000"
SECOND_NS = 1_000_000_000


def request(name: str = "", uid: str = "", owner: str = "owner-1", namespace: str = "shop") -> Request:
    references = (OwnerReference("apps/v1", "ReplicaSet", "web", owner, controller=True),)
    metadata = PodMetadata(name=name, generate_name="web-", uid=uid, owner_references=references)
    pod = Pod(metadata=metadata, spec=PodSpec())
    return Request("review-1", "CREATE", "pods", "", namespace, "alice", dry_run=False, pod=pod, old_pod=None)


def sampler(draw: float = 0.0999, trace_parent: TraceParent = TraceParent.FOLLOW, ratio: float = 0.19) -> RatioSampler:
    return RatioSampler(ratio, trace_parent, lambda: draw)


def sample_mutation(
    by: RatioSampler, traceparent: str | None = None, now_ns: int = AT_NS, **pod: str
) -> ReviewTrace | None:
    return by.sample(Half.MUTATE, request(**pod), traceparent, now_ns)


def sample_validation(
    by: RatioSampler, traceparent: str | None = None, now_ns: int = AT_NS, **pod: str
) -> ReviewTrace | None:
    return by.sample(Half.VALIDATE, request(**{"name": "web-x", **pod}), traceparent, now_ns)


def test_ratio_decides_without_a_parent() -> None:
    """With 0.1 for each half, 0.19 of the Pods are traced in at least one."""
    assert sample_mutation(sampler(0.0999)) is not None
    assert sample_mutation(sampler(0.1001)) is None


def test_sampled_parent_is_followed_whatever_the_ratio() -> None:
    found = sample_mutation(sampler(1.0), SAMPLED)
    assert found is not None
    assert found.parent == SpanReference(TRACE_ID, SPAN_ID)
    assert (found.span.trace_id, found.links) == (TRACE_ID, ())
    assert found.span.span_id != SPAN_ID


def test_unsampled_parent_is_followed() -> None:
    assert sample_mutation(sampler(0.0), UNSAMPLED) is None


def test_sampled_parents_beyond_the_bound_are_sampled_by_ratio() -> None:
    by = sampler(1.0)
    found = [sample_mutation(by, SAMPLED) for _ in range(FOLLOWED_PER_SECOND_MAX + 3)]
    assert [span is not None for span in found] == [True] * FOLLOWED_PER_SECOND_MAX + [False] * 3
    assert by.count_sampled_parents() == {"followed": FOLLOWED_PER_SECOND_MAX, "limited": 3}
    assert sample_mutation(by, SAMPLED, AT_NS + SECOND_NS) is not None


def test_sampled_trace_beyond_the_bound_links_its_parent() -> None:
    by = sampler(0.0)
    *_, last = [sample_mutation(by, SAMPLED) for _ in range(FOLLOWED_PER_SECOND_MAX + 1)]
    assert last is not None
    assert last.parent is None
    assert last.span.trace_id != TRACE_ID
    assert last.links == (SpanReference(TRACE_ID, SPAN_ID),)


@pytest.mark.parametrize("traceparent", [SAMPLED, UNSAMPLED])
@pytest.mark.parametrize("trace_parent", [TraceParent.LINK, TraceParent.IGNORE])
def test_parent_that_is_not_followed_does_not_decide(traceparent: str, trace_parent: TraceParent) -> None:
    assert sample_mutation(sampler(0.1001, trace_parent), traceparent) is None
    by = sampler(0.0999, trace_parent)
    found = sample_mutation(by, traceparent)
    assert found is not None
    assert (found.parent, by.count_sampled_parents()) == (None, {"followed": 0, "limited": 0})
    parent = SpanReference(TRACE_ID, SPAN_ID, is_sampled=traceparent == SAMPLED)
    assert found.links == ((parent,) if trace_parent is TraceParent.LINK else ())


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
@pytest.mark.parametrize("flags", ["-00", "-01"])
def test_malformed_parent_is_ignored(traceparent: str, flags: str) -> None:
    by = sampler()
    found = sample_mutation(by, flags.join(traceparent.rsplit("-00", 1)))
    assert found is not None
    assert (found.parent, found.links) == (None, ())
    assert by.count_sampled_parents() == {"followed": 0, "limited": 0}


def test_later_traceparent_version_is_accepted() -> None:
    assert sample_mutation(sampler(), f"01-{TRACE_ID}-{SPAN_ID}-00-more") is None


@given(st.uuids(version=4), st.floats(0, 1))
def test_uid_decides_for_all_reviews_of_a_pod_and_is_its_trace(uid: UUID, ratio: float) -> None:
    found = {sample_validation(RatioSampler(ratio), uid=str(uid)) is None for _ in range(3)}
    assert found == {not RatioSampler(ratio).is_drawn(str(uid))}
    assert find_trace_id(str(uid)) == uid.hex


@given(st.uuids(version=4), st.lists(st.floats(0, 1), min_size=2))
def test_greater_ratio_selects_all_uids_of_a_smaller_one(uid: UUID, ratios: list[float]) -> None:
    drawn = [RatioSampler(ratio).is_drawn(str(uid)) for ratio in sorted(ratios)]
    assert all(after or not before for before, after in pairwise(drawn))
    assert RatioSampler(1.0).is_drawn(str(uid))
    assert not RatioSampler(0.0).is_drawn(str(uid))


def test_share_of_drawn_uids_is_that_of_one_half() -> None:
    by = RatioSampler(0.4375)  # of Pods: 0.25 in each half
    uids = [str(UUID(int=(number << 32) | number * 0x01000193 % 2**32 << 16, version=4)) for number in range(4000)]
    assert 900 <= sum(map(by.is_drawn, uids)) <= 1100


@pytest.mark.parametrize("uid", ["", "pod-1", "00000000-0000-0000-0000-000000000000", "x" * 36])
def test_trace_without_a_usable_uid_has_an_own_id(uid: str) -> None:
    first, second = find_trace_id(uid), find_trace_id(uid)
    assert first != second
    assert int(first, 16) > 0


@pytest.fixture
def mutation() -> tuple[RatioSampler, SpanReference]:
    """Return a sampler that draws nothing more after a mutating half, and the span of that half."""
    draws = iter([0.0])
    by = RatioSampler(0.01, TraceParent.LINK, lambda: next(draws, 1.0))
    found = sample_mutation(by)
    assert found is not None
    return by, found.span


def test_validating_half_of_a_traced_pod_is_traced_once_and_links_to_the_mutating_half(
    mutation: tuple[RatioSampler, SpanReference],
) -> None:
    by, span = mutation
    found = sample_validation(by, uid=UID)
    assert found is not None
    assert (found.span.trace_id, found.parent, found.links) == (UID.replace("-", ""), None, (span,))
    assert sample_validation(by, uid=UID) is None, "taken once"


@pytest.mark.parametrize("other", [{"owner": "owner-2"}, {"namespace": "bank"}])
def test_pods_of_others_do_not_take_it(mutation: tuple[RatioSampler, SpanReference], other: dict[str, str]) -> None:
    by, _ = mutation
    assert sample_validation(by, uid=UID, **other) is None


def test_old_mutating_half_is_forgotten(mutation: tuple[RatioSampler, SpanReference]) -> None:
    by, _ = mutation
    assert sample_validation(by, now_ns=AT_NS + 11 * SECOND_NS, uid=UID) is None


def test_halves_with_the_same_unfollowed_parent_are_linked_by_it() -> None:
    draws = iter([0.0])
    by = RatioSampler(0.01, TraceParent.LINK, lambda: next(draws, 1.0))
    mutating = sample_mutation(by, UNSAMPLED, owner="owner-1")
    validating = sample_validation(by, UNSAMPLED, owner="owner-2", uid=UID)
    assert mutating is not None
    assert validating is not None
    assert validating.links == (SpanReference(TRACE_ID, SPAN_ID, is_sampled=False), mutating.span)


def test_number_of_kept_mutating_halves_is_bounded() -> None:
    by = RatioSampler(1.0)
    spans = [sample_mutation(by, owner=f"owner-{number}") for number in range(1001)]
    first, second = (sample_validation(by, uid=UID, owner=f"owner-{number}") for number in range(2))
    assert first is not None
    assert second is not None
    assert (first.links, second.links) == ((), (spans[1].span,))
