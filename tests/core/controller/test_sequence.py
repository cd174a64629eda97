"""The sequence that operators are shown is the order in which Pods are released."""

from hypothesis import given, settings
from hypothesis import strategies as st

from webhook.core.controller.order import ReleaseOrder
from webhook.core.controller.waiting_pod import Member, WaitingPod
from webhook.core.quota import Holder

_MINUTE_US = 60_000_000
_MEMBERS = [
    Member("gold-a", 0, 10 * _MINUTE_US),
    Member("gold-b", 0, 5 * _MINUTE_US, lifted_percent=25),
    Member("silver", 1, 10 * _MINUTE_US, lifted_percent=50),
    Member("bronze-a", 3, 2 * _MINUTE_US),
    Member("bronze-b", 3, 10 * _MINUTE_US, lifted_percent=0),
]
_PODS = st.lists(
    st.tuples(
        st.sampled_from([member.service for member in _MEMBERS]),
        st.integers(0, 40),
        st.sampled_from([0, 0, 0, 7]),
        st.sampled_from([1, 2]),
    ),
    max_size=60,
)


def _take(order: ReleaseOrder, now_us: int, count: int = 1_000) -> list[str]:
    uids: list[str] = []
    while len(uids) < count and (pod := order.take(now_us)) is not None:
        order.confirm(pod.uid)
        uids.append(pod.uid)
    return uids


@settings(max_examples=300, deadline=None)
@given(_PODS, st.integers(0, 25))
def test_the_sequence_is_the_order_of_the_releases(shapes: list[tuple[str, int, int, int]], before: int) -> None:
    order, now_us = ReleaseOrder(_MEMBERS), 40 * _MINUTE_US
    for number, (service, minute, priority, pods) in enumerate(shapes):
        order.add(WaitingPod(f"u{number:03}", service, minute * _MINUTE_US, {"pods": pods}, "", priority))
    _take(order, now_us, before)  # turns and shares are somewhere in between
    sequence = [turn.pod.uid for turn in order.compute_sequence(now_us)]
    assert sequence == _take(order, now_us)


def test_a_lifted_pod_is_shown_as_such() -> None:
    order = ReleaseOrder(_MEMBERS)
    order.add(WaitingPod("old", "bronze-a", 0, {"pods": 1}))
    order.add(WaitingPod("new", "bronze-a", 3 * _MINUTE_US, {"pods": 1}))
    shown = [(turn.pod.uid, turn.is_lifted) for turn in order.compute_sequence(3 * _MINUTE_US)]
    assert shown == [("old", True), ("new", False)]


def test_pods_of_a_paused_service_are_not_released_and_are_shown_last() -> None:
    order = ReleaseOrder([Member("gold-a", 0, _MINUTE_US, is_paused=True), Member("silver", 1, _MINUTE_US)])
    order.add(WaitingPod("paused", "gold-a", 0, {"pods": 1}))
    order.add(WaitingPod("other", "silver", 5, {"pods": 1}))
    assert [turn.pod.uid for turn in order.compute_sequence(9)] == ["other", "paused"]
    assert _take(order, 9) == ["other"]


def test_a_pod_that_does_not_fit_names_whose_limit_is_reached() -> None:
    order = ReleaseOrder([Member("gold-a", 0, _MINUTE_US)])
    for uid in ("first", "second"):
        order.add(WaitingPod(uid, "gold-a", 0, {"pods": 1}))
    assert order.find_blocking_holder("first") is None
    pod = order.take(0)
    assert pod is not None
    order.put_back(pod.uid, 0, 99, Holder.POOL)
    assert (order.find_blocking_holder("first"), order.find_blocking_holder("second")) == (Holder.POOL, Holder.POOL)


def test_a_pod_that_was_taken_is_shown_first_until_the_store_has_answered() -> None:
    order = ReleaseOrder([Member("gold-a", 0, _MINUTE_US)])
    for since_us, uid in enumerate(("first", "second")):
        order.add(WaitingPod(uid, "gold-a", since_us, {"pods": 1}))

    def read() -> object:
        shown = [(turn.pod.uid, turn.is_lifted) for turn in order.compute_sequence(9)]
        return shown, order.find_oldest_us(), order.find_blocking_holder("first")

    assert order.take(0) is not None
    order.put_back("first", 0, 1, Holder.POOL)
    before = read()
    assert before == ([("first", False), ("second", False)], {"gold-a": 0}, Holder.POOL)
    assert order.take(1) is not None
    assert read() == before
    order.confirm("first")
    assert read() == ([("second", False)], {"gold-a": 1}, None)
