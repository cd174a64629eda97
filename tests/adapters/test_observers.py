"""The composites of observers forward each event; one that ignores reviews is not called for them."""

import asyncio
from collections.abc import Callable
from inspect import signature
from typing import Any

import pytest

from tests.core.reviewing import Gate, body, policy_of
from webhook.adapters.clocks import VirtualClock
from webhook.adapters.fixed import FixedNamespaces, FixedPolicy
from webhook.adapters.memory_store import MemoryStore
from webhook.core.admission.decision import Half
from webhook.core.quota import Acquire, Receipt
from webhook.interceptor import Interceptor
from webhook.observers import WAITING_MAX, Observers, TurnObservers
from webhook.ports import PartialObserver, Review
from webhook.ports.traces import ReviewTrace, SpanReference, TimedCalls, timed_calls

POLICY = policy_of("- name: web\n  match: {namespaces: [shop]}\n  quota: {windows: [{window: 1m, hard: {pods: 9}}]}")
TRACE = ReviewTrace(SpanReference("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"))


class Refusals(PartialObserver):
    """Observes refused calls only."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def on_refused(self, reason: str, detail: str) -> None:  # noqa: ARG002  the protocol's
        self.reasons.append(reason)


class Reviews(Refusals):
    """Observes reviews as well."""

    def __init__(self) -> None:
        super().__init__()
        self.reviews: list[Review] = []

    def on_reviewed(self, review: Review) -> None:
        self.reviews.append(review)


async def test_every_observer_receives_what_it_observes_also_if_it_joins_later() -> None:
    first, ignoring, last = Reviews(), Refusals(), Reviews()
    observers = Observers(first, ignoring)
    observers.join(last)
    await Gate(POLICY, observers=[observers]).interceptor.review(Half.MUTATE, body())
    observers.on_refused("not_found", "")
    assert [len(first.reviews), len(last.reviews)] == [1, 1]
    assert first.reviews == last.reviews
    assert [review.reasons for review in (first, ignoring, last)] == [["not_found"]] * 3


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
        await interceptor.review(Half.VALIDATE, body(object=Gate(POLICY).build_owned_pod(uid)))
    assert [calls is None for calls in timed] == [False, True, False]
    assert [len(review.calls) for review in seen.reviews] == [1, 0, 1]


class Told:
    """An observer that adds its name and each event to a list that several share."""

    def __init__(self, name: str, told: list[str]) -> None:
        self._name = name
        self._told = told

    def on_reviewed(self, review: Review) -> None:
        self._told.append(f"{self._name} {review.decision.pod_uid}")

    def __getattr__(self, event: str) -> Callable[..., None]:
        return lambda *_: self._told.append(f"{self._name} {event}")


class Failing(PartialObserver):
    """Receives no review."""

    def on_reviewed(self, review: Review) -> None:
        raise LookupError(review.decision.pod_uid)


async def reviews(*uids: str) -> list[Review]:
    seen = Reviews()
    gate = Gate(POLICY, observers=[seen])
    for uid in uids:
        await gate.interceptor.review(Half.VALIDATE, body(object=gate.build_owned_pod(uid)))
    return seen.reviews


async def turns(number: int = 3) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


async def test_observers_receive_the_reviews_of_a_turn_together_after_the_responses() -> None:
    told: list[str] = []
    observers = TurnObservers(Told("a", told), Told("b", told))
    for review in await reviews("u1", "u2"):
        observers.on_reviewed(review)
        told.append("answered")
        asyncio.get_running_loop().call_soon(told.append, "written")
    await turns()
    assert told == ["answered", "answered", "written", "written", "a u1", "a u2", "b u1", "b u2"]


async def test_reviews_that_wait_are_bounded() -> None:
    seen = Reviews()
    observers = TurnObservers(seen)
    [review] = await reviews("u1")
    for _ in range(WAITING_MAX + 1):
        observers.on_reviewed(review)
    assert len(seen.reviews) == WAITING_MAX
    await turns()
    assert len(seen.reviews) == WAITING_MAX + 1


@pytest.mark.parametrize("event", sorted({name for name in vars(PartialObserver) if name[0] != "_"} - {"on_reviewed"}))
async def test_every_event_follows_the_reviews_before_it(event: str) -> None:
    told: list[str] = []
    observers = TurnObservers(Told("a", told), Told("b", told))
    for review in await reviews("u1", "u2"):
        observers.on_reviewed(review)
    receive = getattr(observers, event)
    receive(*[None for _ in signature(receive).parameters])
    assert told == ["a u1", "a u2", "b u1", "b u2", f"a {event}", f"b {event}"]
    await turns()
    assert len(told) == 6, "nothing is delivered twice"


async def test_observer_that_fails_costs_the_others_nothing_and_is_reported() -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    before, after = Reviews(), Reviews()
    observers = TurnObservers(before, Failing(), after)
    for review in await reviews("u1", "u2"):
        observers.on_reviewed(review)
    await turns()
    assert [review.decision.pod_uid for review in before.reviews] == ["u1", "u2"]
    assert after.reviews == before.reviews
    assert [str(context["exception"]) for context in reported] == ["u1", "u2"]
    assert {context["message"] for context in reported} == {"an observer failed to receive a review"}
