"""Composite observers: forward every event to several observers, reviews at once or those of a turn together."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import ParamSpec, TypeVar

from webhook.core.breaker import Transition
from webhook.core.overload import OverloadCause
from webhook.core.overrides import Override
from webhook.core.policy.model import LoadedPolicy
from webhook.core.rollout.changes import RolloutChange
from webhook.core.rollout.state import RolloutView
from webhook.ports import Observer, PartialObserver, Review

_P = ParamSpec("_P")
_T = TypeVar("_T")
WAITING_MAX = 64
"""Limit of reviews that wait for the end of a turn; at the limit they are delivered."""


class Observers:
    """Observer that forwards to each of `observers`, in order. Offline commands use it without any."""

    def __init__(self, *observers: Observer) -> None:
        self._observers: list[Observer] = []
        self._of_reviews: list[Callable[[Review], None]] = []
        for observer in observers:
            self.join(observer)

    def join(self, observer: Observer) -> None:
        """Add an observer."""
        self._observers.append(observer)
        if (
            getattr(type(observer), "on_reviewed", None) is not PartialObserver.on_reviewed
        ):  # the partial observer's method does nothing
            self._of_reviews.append(observer.on_reviewed)

    def leave(self, observer: Observer) -> None:
        """Remove an observer, if it has joined."""
        self.deliver()
        self._observers = [other for other in self._observers if other is not observer]
        self._of_reviews = [call for call in self._of_reviews if call != observer.on_reviewed]

    def on_reviewed(self, review: Review) -> None:
        for of_reviews in self._of_reviews:
            of_reviews(review)

    def deliver(self) -> None:
        """Deliver the waiting reviews: this class has none."""

    def wrap_after_reviews(self, call: Callable[_P, _T]) -> Callable[_P, _T]:
        """Return a function that delivers the waiting reviews, and then calls `call`."""

        def deliver_and_call(*arguments: _P.args, **named: _P.kwargs) -> _T:
            self.deliver()
            return call(*arguments, **named)

        return deliver_and_call

    def _list_observers(self) -> list[Observer]:
        """Return the observers for the next event, after they have received the reviews before it."""
        self.deliver()
        return self._observers

    def on_transition(self, transition: Transition) -> None:
        for observer in self._list_observers():
            observer.on_transition(transition)

    def on_refused(self, reason: str, detail: str) -> None:
        for observer in self._list_observers():
            observer.on_refused(reason, detail)

    def on_policy_loaded(self, loaded: LoadedPolicy) -> None:
        for observer in self._list_observers():
            observer.on_policy_loaded(loaded)

    def on_policy_failed(self, errors: Sequence[str]) -> None:
        for observer in self._list_observers():
            observer.on_policy_failed(errors)

    def on_policy_parts_checked(self, problems: Mapping[str, Sequence[str]]) -> None:
        for observer in self._list_observers():
            observer.on_policy_parts_checked(problems)

    def on_rollout_changed(self, former: RolloutView, now: RolloutView) -> None:
        for observer in tuple(self._list_observers()):  # one of them may let another join or leave
            observer.on_rollout_changed(former, now)

    def on_rollout_advanced(self, change: RolloutChange) -> None:
        for observer in self._list_observers():
            observer.on_rollout_advanced(change)

    def on_policy_judged(self, user: str, errors: Sequence[str], document: str) -> None:
        for observer in self._list_observers():
            observer.on_policy_judged(user, errors, document)

    def on_overrides_loaded(self, live: Sequence[Override]) -> None:
        for observer in self._list_observers():
            observer.on_overrides_loaded(live)

    def on_overrides_failed(self, errors: Sequence[str]) -> None:
        for observer in self._list_observers():
            observer.on_overrides_failed(errors)

    def on_override_changed(self, service: str, former: Override | None, now: Override | None) -> None:
        for observer in self._list_observers():
            observer.on_override_changed(service, former, now)

    def on_webhooks_outdated(self, outdated: Sequence[str]) -> None:
        for observer in self._list_observers():
            observer.on_webhooks_outdated(outdated)

    def on_not_reviewed(self, service: str, pod: str) -> None:
        for observer in self._list_observers():
            observer.on_not_reviewed(service, pod)

    def on_overload_changed(self, former: Mapping[OverloadCause, str], now: Mapping[OverloadCause, str]) -> None:
        for observer in self._list_observers():
            observer.on_overload_changed(former, now)


class TurnObservers(Observers):
    """Observers that receive the reviews of one turn of the event loop together, after their responses are written.

    No response waits for them, and their code and data stay in the processor's caches from one review to the next:
    docs/design/review-cost.md. Responses come first: those of a turn are written together, too, and each one ends a
    client's wait.

    Reviews wait for two turns at most. Other events follow them, as they have occurred. Wrap every page that shows
    observer state in `wrap_after_reviews`, so that a client sees its own review.
    """

    def __init__(self, *observers: Observer) -> None:
        super().__init__(*observers)
        self._waiting: list[Review] = []

    def on_reviewed(self, review: Review) -> None:
        waiting = self._waiting
        if not waiting:
            # Two turns on: responses of this turn are written in the next one.
            loop = asyncio.get_running_loop()
            loop.call_soon(loop.call_soon, self.deliver)
        waiting.append(review)
        if len(waiting) >= WAITING_MAX:
            self.deliver()

    def deliver(self) -> None:
        """Deliver the waiting reviews, observer by observer. A failure costs one observer one review."""
        if not self._waiting:
            return
        reviews, self._waiting = self._waiting, []
        for of_reviews in self._of_reviews:
            for review in reviews:
                try:
                    of_reviews(review)
                except Exception as error:  # noqa: BLE001  a defect must not cost the other reviews
                    context = {"message": "an observer failed to receive a review", "exception": error}
                    asyncio.get_running_loop().call_exception_handler(context)
