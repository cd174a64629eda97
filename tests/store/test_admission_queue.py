"""Which new Pods have to wait: those that would be denied, also of many that are created at once."""

from tests.core.plans import plan_of, window
from webhook.adapters.clocks import VirtualClock
from webhook.adapters.memory_queue_index import MemoryQueueIndex
from webhook.adapters.memory_store import MemoryStore
from webhook.core.policy_spec import WhenExpired
from webhook.core.quota import Acquire, QueuePlan
from webhook.store.admission_queue import AdmissionQueue

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


class Started:
    """A queue on counters in memory."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.store = MemoryStore(self.clock)
        self.queue = AdmissionQueue(self.store, MemoryQueueIndex(self.clock), self.clock)

    async def reason(self, *, is_dry_run: bool = False) -> str:
        return await self.queue.reason_to_wait(self.asked(""), is_dry_run=is_dry_run)

    @staticmethod
    def asked(uid: str) -> Acquire:
        return Acquire(PLAN, "shop", uid, {"pods": 1}, "user:a")


async def test_pods_that_are_created_at_once_wait_beyond_the_limit() -> None:
    started = Started()
    assert [await started.reason() for _ in range(4)] == ["", "", "a limit is reached", "a limit is reached"]
    started.clock.set(300_000)
    assert await started.reason() == "", "none of them was charged"


async def test_dry_runs_take_no_place() -> None:
    started = Started()
    assert [await started.reason(is_dry_run=True) for _ in range(4)] == [""] * 4


async def test_pods_wait_behind_others_of_their_service() -> None:
    started = Started()
    assert [await started.queue.enqueue(started.asked(uid)) for uid in ("a", "b", "a", "c")] == [
        True,
        True,
        True,
        False,
    ]
    assert await started.reason() == "2 Pods of the service wait"


async def test_pods_wait_while_the_limit_is_reached() -> None:
    started = Started()
    for uid in ("a", "b"):
        await started.store.acquire(started.asked(uid))
    assert await started.reason() == "a limit is reached"
