"""Admissions of the last minute, which are re-submitted after a loss."""

from collections.abc import Iterator

import pytest

from tests.core.plans import plan_of, window
from webhook.core.quota import Acquire
from webhook.store import backlog
from webhook.store.backlog import RECENT_US, RecentAdmissions

PLAN = plan_of(window(60, pods=9))


def admission(uid: str) -> Acquire:
    return Acquire(PLAN, "shop", uid, {"pods": 1}, "user:alice", name=f"{uid}-pod")


@pytest.fixture
def recent() -> RecentAdmissions:
    return RecentAdmissions()


def kept(recent: RecentAdmissions) -> Iterator[str]:
    return (request.uid for request, _ in recent.all())


def test_an_admission_is_kept_with_what_its_booking_needs(recent: RecentAdmissions) -> None:
    recent.add(admission("a"), 5)
    [(request, at_us)] = recent.all()
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
    assert list(kept(recent)) == ["a", "c"]
    recent.sweep(RECENT_US + 1)
    assert list(kept(recent)) == ["c"]
    recent.sweep(RECENT_US + 3)
    assert "c" not in recent


def test_an_admission_that_is_repeated_is_kept_for_a_minute_more(recent: RecentAdmissions) -> None:
    recent.add(admission("a"), 0)
    recent.remove("a")
    recent.add(admission("a"), 9)
    recent.sweep(RECENT_US + 9)
    assert list(kept(recent)) == ["a"]
    recent.sweep(RECENT_US + 10)
    assert list(kept(recent)) == []


def test_the_newest_are_kept_within_the_bound(recent: RecentAdmissions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog, "RECENT_MAX", 2)
    for number, uid in enumerate("abc"):
        recent.add(admission(uid), number)
    assert list(kept(recent)) == ["b", "c"]
