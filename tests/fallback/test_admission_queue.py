"""New Pods that have to wait: those that would be denied, also of many that are created at once."""

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from tests.core.plans import plan_of, window
from tests.harness.records import changed
from webhook.adapters.clocks import VirtualClock
from webhook.adapters.memory_queue_index import MemoryQueueIndex
from webhook.adapters.memory_store import MemoryStore
from webhook.core.admission.decision import Decision, Finding, Half, Verdict
from webhook.core.findings import Code
from webhook.core.overload import OverloadCause, OverloadLimits
from webhook.core.policy_fields import Mode, WhenExpired
from webhook.core.quota import Acquire, CounterPlan, QueuePlan
from webhook.errors import NoStoreAnswerError
from webhook.fallback.admission_queue import AdmissionQueue
from webhook.fallback.overload_monitor import OverloadMonitor
from webhook.ports import Review

_MINUTE_US = 60_000_000
QUEUE = QueuePlan(
    for_quota=True,
    for_breaker=False,
    rank=0,
    max_pods=2,
    max_wait_us=15 * _MINUTE_US,
    when_expired=WhenExpired.DELETE,
    ageing_us=10 * _MINUTE_US,
    lifted_percent=10,
)
PLAN = plan_of(window(60, pods=2), queue=QUEUE)
GATES = plan_of(window(60, pods=2), queue=replace(QUEUE, on_overload=True))
DENIES = plan_of(window(60, pods=2), queue=replace(QUEUE, for_quota=False, on_overload=True))


class Started:
    """A queue on counters in memory."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.store = MemoryStore(self.clock)
        self.index = AbsentIndex(self.clock)
        self.trouble = ""
        self.changes: list[tuple[list[str], list[str]]] = []
        self.monitor = OverloadMonitor(
            OverloadLimits(), self.clock, lambda: self.trouble, lambda *causes: self.changes.append(_sort(*causes))
        )
        self.queue = AdmissionQueue(self.store, self.index, self.clock, self.monitor)

    async def find_reason_to_wait(self, *, is_dry_run: bool = False) -> str:
        return await self.queue.find_reason_to_wait(self.build_request(""), is_dry_run=is_dry_run)

    @staticmethod
    def build_request(uid: str, plan: CounterPlan = PLAN) -> Acquire:
        return Acquire(plan, "shop", uid, {"pods": 1}, "user:a")

    def review(self, count: int, **of: object) -> None:
        """Report reviews, and end a slice of the window."""
        for _ in range(count):
            self.monitor.on_reviewed(review_of(**of))
        self.clock.set(self.clock.now_us() + 1_000_000)
        self.monitor.evaluate()


class AbsentIndex(MemoryQueueIndex):
    """An index that may be away."""

    is_away = False
    asked = 0

    async def register(self, plan: CounterPlan, uid: str) -> bool:
        self._answer()
        return await super().register(plan, uid)

    async def count(self, plan: CounterPlan) -> int:
        self._answer()
        return await super().count(plan)

    def _answer(self) -> None:
        self.asked += 1
        if self.is_away:
            raise NoStoreAnswerError("the store is away", sent=False)


def _sort(former: Mapping[OverloadCause, str], now: Mapping[OverloadCause, str]) -> tuple[list[str], list[str]]:
    return sorted(former), sorted(now)


def review_of(*, took_ms: int = 1, half: Half = Half.VALIDATE, **of: Any) -> Review:
    """Return a review with a decision of these fields."""
    decision = changed(Decision(half, "", Verdict.ADMIT), **of)
    return Review(decision, None, 0, took_ms * 1_000_000)


async def test_pods_that_are_created_at_once_wait_beyond_the_limit() -> None:
    started = Started()
    assert [await started.find_reason_to_wait() for _ in range(4)] == [
        "",
        "",
        "a limit is reached",
        "a limit is reached",
    ]
    started.clock.set(300_000)
    assert await started.find_reason_to_wait() == "", "none of them was charged"


async def test_dry_runs_take_no_place() -> None:
    started = Started()
    assert [await started.find_reason_to_wait(is_dry_run=True) for _ in range(4)] == [""] * 4


async def test_pods_wait_behind_others_of_their_service() -> None:
    started = Started()
    assert [await started.queue.enqueue(started.build_request(uid)) for uid in ("a", "b", "a", "c")] == [
        True,
        True,
        True,
        False,
    ]
    assert await started.find_reason_to_wait() == "2 Pods of the service wait"


async def test_pods_wait_while_the_limit_is_reached() -> None:
    started = Started()
    for uid in ("a", "b"):
        await started.store.acquire(started.build_request(uid))
    assert await started.find_reason_to_wait() == "a limit is reached"


async def test_on_overload_the_store_is_asked_for_probes_alone() -> None:
    started = Started()
    started.review(10, took_ms=1200)
    assert started.changes == [([], ["latency"])]
    reasons = [started.queue.find_overload(GATES) for _ in range(10)]
    assert reasons == ["P99 of reviews 1.2 s above 800 ms over 10 s"] * 9 + [""]
    assert [started.queue.find_overload(PLAN) for _ in range(10)] == [""] * 10, "it does not gate on overload"
    assert [await started.queue.enqueue(started.build_request(uid, GATES)) for uid in ("a", "b", "c")] == [
        True,
        True,
        False,
    ]
    assert started.index.asked == 0
    assert await started.queue.enqueue(started.build_request("d"))
    assert started.index.asked == 1


async def test_gated_reviews_are_no_measure_and_are_counted() -> None:
    started = Started()
    started.review(10, took_ms=1200)
    for _ in range(9):
        started.review(50, took_ms=0, half=Half.MUTATE, overload="this server is overloaded")
    assert (sorted(started.monitor.causes), started.monitor.gated) == (["latency"], 450)
    started.review(990, took_ms=0, verdict=Verdict.QUEUE)
    assert started.monitor.causes[OverloadCause.LATENCY].startswith("P99 of reviews 1.2 s"), (
        "the 10 are all that counts"
    )
    for _ in range(20):
        started.review(1)
    assert started.changes[-1] == (["latency"], [])


@pytest.mark.parametrize(
    "of", [{"uncounted": True}, {"findings": (Finding(Code.STORE_UNAVAILABLE, "quota", Mode.ENFORCE, "away"),)}]
)
async def test_reviews_without_the_store_are_failures(of: dict[str, object]) -> None:
    started = Started()
    started.review(94)
    started.review(5, **of)
    assert started.changes == [([], ["failures"])]


async def test_reviews_that_passed_count_for_their_window() -> None:
    started = Started()
    started.review(95)
    started.review(5, uncounted=True)
    assert started.changes == [], "five of a hundred"
    for _ in range(11):
        started.review(0)
    started.review(90)
    started.review(5, uncounted=True)
    assert started.changes == [([], ["failures"])], "five of 95: the window is over"


async def test_refused_calls_are_failures_unless_anybody_could_cause_them() -> None:
    started = Started()
    for _ in range(50):
        started.monitor.on_refused("authentication_token_expired", "")
        started.monitor.on_refused("bad_review", "")
    started.review(1)
    assert started.changes == []
    for _ in range(5):
        started.monitor.on_refused("internal_error", "")
    started.review(1)
    assert started.changes == [([], ["failures"])]


async def test_without_the_store_gated_pods_wait_unregistered_within_max_pods() -> None:
    started = Started()
    started.index.is_away = True
    assert [await started.queue.enqueue(started.build_request(uid)) for uid in ("a", "b", "c")] == [True, True, False]
    started.index.is_away = False
    assert await started.queue.enqueue(started.build_request("d"))
    started.index.is_away = True
    assert await started.queue.enqueue(started.build_request("e")), "the bound holds for each absence of the store"


async def test_a_service_that_denies_asks_the_store_only_if_it_may_be_away() -> None:
    started = Started()
    assert await started.queue.find_reason_to_wait(started.build_request("a", DENIES), is_dry_run=False) == ""
    assert started.index.asked == 0
    started.trouble = "timeout"
    assert await started.queue.find_reason_to_wait(started.build_request("a", DENIES), is_dry_run=False) == "", (
        "another part is away"
    )
    started.index.is_away = True
    with pytest.raises(NoStoreAnswerError):
        await started.queue.find_reason_to_wait(started.build_request("a", DENIES), is_dry_run=False)
