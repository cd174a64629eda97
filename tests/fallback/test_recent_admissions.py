"""Admissions of the last minute, which are re-submitted after a loss."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.core.plans import plan_of, window
from webhook.core.quota import Acquire
from webhook.fallback import recent_admissions
from webhook.fallback.recent_admissions import RECENT_US, RecentAdmissions

PLAN = plan_of(window(60, pods=9))


def admission(uid: str) -> Acquire:
    return Acquire(PLAN, "shop", uid, {"pods": 1}, "user:alice", name=f"{uid}-pod")


@pytest.fixture
def recent() -> RecentAdmissions:
    return RecentAdmissions()


def list_kept(recent: RecentAdmissions) -> Iterator[str]:
    return (request.uid for request, _ in recent.list_all())


def test_an_admission_is_kept_with_what_its_booking_needs(recent: RecentAdmissions) -> None:
    recent.add(admission("a"), 5)
    [(request, at_us)] = recent.list_all()
    assert at_us == 5
    assert (request.plan, request.namespace, request.uid, request.cost, request.name, request.resize_from) == (
        PLAN,
        "shop",
        "a",
        {"pods": 1},
        "a-pod",
        None,
    )


def test_an_admission_is_forgotten_after_a_minute(recent: RecentAdmissions) -> None:
    for uid, at_us in (("a", 0), ("b", 1), ("c", 2)):
        recent.add(admission(uid), at_us)
    recent.remove("b")
    recent.sweep(RECENT_US)
    assert list(list_kept(recent)) == ["a", "c"]
    recent.sweep(RECENT_US + 1)
    assert list(list_kept(recent)) == ["c"]
    recent.sweep(RECENT_US + 3)
    assert "c" not in recent


def test_an_admission_that_is_repeated_is_kept_for_a_minute_more(recent: RecentAdmissions) -> None:
    recent.add(admission("a"), 0)
    recent.remove("a")
    recent.add(admission("a"), 9)
    recent.sweep(RECENT_US + 9)
    assert list(list_kept(recent)) == ["a"]
    recent.sweep(RECENT_US + 10)
    assert list(list_kept(recent)) == []


def test_the_newest_are_kept_within_the_bound(recent: RecentAdmissions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_admissions, "RECENT_MAX", 2)
    for number, uid in enumerate("abc"):
        recent.add(admission(uid), number)
    assert list(list_kept(recent)) == ["b", "c"]


def test_a_page_of_removals_alone_is_kept(recent: RecentAdmissions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_admissions, "_PAGES", recent_admissions.RECENT_MAX // 2)
    for uid in "abcd":
        recent.add(admission(uid), 5)
    for uid in "abc":
        recent.remove(uid)
    assert list(list_kept(recent)) == ["d"]


PLANS = (PLAN, replace(PLAN, service="web"))
NAMES = (*"abcdefgh", "", "01234567-89ab-cdef-0123-456789abcdef")
UIDS = st.sampled_from(NAMES)
CHANGES = st.one_of(
    st.tuples(st.just("add"), UIDS, st.sampled_from(PLANS), st.sampled_from(["shop", "web"]), st.integers(1, 2)),
    st.tuples(st.just("add"), UIDS, st.just(PLAN), st.just("shop"), st.just(1)),
    st.tuples(st.just("remove"), UIDS),
    st.tuples(st.just("pass"), st.sampled_from([1, RECENT_US // 3, RECENT_US // 2])),
    st.tuples(st.just("tick")),
)


@given(st.lists(CHANGES, max_size=60))
def test_packed_pages_answer_as_a_dictionary_of_all_admissions(changes: list[tuple[Any, ...]]) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(recent_admissions, "_PAGES", recent_admissions.RECENT_MAX // 3)  # a page has four admissions
        recent, now_us = RecentAdmissions(), 10 * RECENT_US
        expected: dict[str, tuple[Acquire, int]] = {}
        for change in changes:
            match change:
                case ("add", uid, plan, namespace, pods):
                    asked = Acquire(plan, namespace, uid, {"pods": pods}, "", name=f"{uid}-{pods}")
                    recent.add(asked, now_us)
                    expected[uid] = asked, now_us
                case ("remove", uid):
                    recent.remove(uid)
                    expected.pop(uid, None)
                case ("pass", passed_us):
                    now_us += passed_us
                case ("tick",):
                    recent.sweep(now_us)
                    expected = {
                        uid: admission for uid, admission in expected.items() if admission[1] + RECENT_US >= now_us
                    }
            assert {uid for uid in NAMES if uid in recent} == expected.keys()
        assert {asked.uid: (asked, at_us) for asked, at_us in recent.list_all()} == expected
        recent.sweep(now_us + 2 * RECENT_US)
        assert not list(recent.list_all())
