"""The composite of observers forwards each event; one that ignores reviews is not called for them."""

from tests.core.reviewing import Gate, body, policy_of
from webhook.adapters.clocks import VirtualClock
from webhook.adapters.fixed import FixedNamespaces, FixedPolicy
from webhook.adapters.memory_store import MemoryStore
from webhook.core.admission.decision import Half
from webhook.core.quota import Acquire, Receipt
from webhook.interceptor import Interceptor
from webhook.observers import Observers
from webhook.ports import PartialObserver, Review
from webhook.ports.traces import ReviewTrace, SpanReference, TimedCalls, timed_calls

POLICY = policy_of("- name: web\n  match: {namespaces: [shop]}\n  quota: {windows: [{window: 1m, hard: {pods: 9}}]}")
TRACE = ReviewTrace(SpanReference("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"))


class Refusals(PartialObserver):
    """Observes refused calls only."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def refused(self, reason: str, detail: str) -> None:  # noqa: ARG002  the protocol's
        self.reasons.append(reason)


class Reviews(Refusals):
    """Observes reviews as well."""

    def __init__(self) -> None:
        super().__init__()
        self.reviews: list[Review] = []

    def reviewed(self, review: Review) -> None:
        self.reviews.append(review)


async def test_every_observer_receives_what_it_observes_also_if_it_joins_later() -> None:
    first, ignoring, last = Reviews(), Refusals(), Reviews()
    observers = Observers(first, ignoring)
    observers.join(last)
    await Gate(POLICY, observers=[observers]).interceptor.review(Half.MUTATE, body())
    observers.refused("not_found", "")
    assert [len(first.reviews), len(last.reviews)] == [1, 1]
    assert first.reviews == last.reviews
    assert [one.reasons for one in (first, ignoring, last)] == [["not_found"]] * 3


async def test_calls_are_timed_for_the_sampled_review_only() -> None:
    timed: list[TimedCalls | None] = []

    class Store(MemoryStore):
        async def acquire(self, request: Acquire) -> Receipt:
            timed.append(timed_calls.get())
            return await super().acquire(request)

    seen, clock, traces = Reviews(), VirtualClock(0), [TRACE, None, TRACE]
    interceptor = Interceptor(
        FixedPolicy(POLICY, clock),
        Store(clock),
        FixedNamespaces({"shop": {}}),
        Observers(seen),
        sample=lambda *_: traces.pop(0),
    )
    for uid in ("u1", "u2", "u3"):  # in one task, as the requests of a connection
        await interceptor.review(Half.VALIDATE, body(object=Gate(POLICY).owned(uid)))
    assert [one is None for one in timed] == [False, True, False]
    assert [len(one.calls) for one in seen.reviews] == [1, 0, 1]
