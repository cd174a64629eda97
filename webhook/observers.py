"""Composite observers: forward every event to several observers, reviews at once or those of a turn together."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import ParamSpec, TypeVar

from webhook.core.breaker import Transition
from webhook.core.overload import OverloadCause
from webhook.core.overrides import Override
from webhook.core.policy.model import LoadedPolicy
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
            getattr(type(observer), "reviewed", None) is not PartialObserver.reviewed
        ):  # the partial observer's method does nothing
            self._of_reviews.append(observer.reviewed)

    def reviewed(self, review: Review) -> None:
        for of_reviews in self._of_reviews:
            of_reviews(review)

    def deliver(self) -> None:
        """Deliver the waiting reviews: this class has none."""

    def after_reviews(self, call: Callable[_P, _T]) -> Callable[_P, _T]:
        """Return a function that delivers the waiting reviews, and then calls `call`."""

        def called(*arguments: _P.args, **named: _P.kwargs) -> _T:
            self.deliver()
            return call(*arguments, **named)

        return called

    def _in_turn(self) -> list[Observer]:
        """Return the observers for the next event, after they have received the reviews before it."""
        self.deliver()
        return self._observers

    def transitioned(self, transition: Transition) -> None:
        for observer in self._in_turn():
            observer.transitioned(transition)

    def refused(self, reason: str, detail: str) -> None:
        for observer in self._in_turn():
            observer.refused(reason, detail)

    def policy_loaded(self, loaded: LoadedPolicy) -> None:
        for observer in self._in_turn():
            observer.policy_loaded(loaded)

    def policy_failed(self, errors: Sequence[str]) -> None:
        for observer in self._in_turn():
            observer.policy_failed(errors)

    def policy_judged(self, user: str, errors: Sequence[str], document: str) -> None:
        for observer in self._in_turn():
            observer.policy_judged(user, errors, document)

    def overrides_loaded(self, live: Sequence[Override]) -> None:
        for observer in self._in_turn():
            observer.overrides_loaded(live)

    def overrides_failed(self, errors: Sequence[str]) -> None:
        for observer in self._in_turn():
            observer.overrides_failed(errors)

    def override_changed(self, service: str, former: Override | None, now: Override | None) -> None:
        for observer in self._in_turn():
            observer.override_changed(service, former, now)

    def webhooks_outdated(self, outdated: Sequence[str]) -> None:
        for observer in self._in_turn():
            observer.webhooks_outdated(outdated)

    def not_reviewed(self, service: str, pod: str) -> None:
        for observer in self._in_turn():
            observer.not_reviewed(service, pod)

    def overload_changed(self, former: Mapping[OverloadCause, str], now: Mapping[OverloadCause, str]) -> None:
        for observer in self._in_turn():
            observer.overload_changed(former, now)


class TurnObservers(Observers):
    """Observers that receive the reviews of one turn of the event loop together, after their responses are written.

    No response waits for them, and their code and data stay in the processor's caches from one review to the next:
    docs/design/review-cost.md. Responses come first: those of a turn are written together, too, and each one ends a
    client's wait.

    Reviews wait for two turns at most. Other events follow them, as they have occurred. Wrap every page that shows
    observer state in `after_reviews`, so that a client sees its own review.
    """

    def __init__(self, *observers: Observer) -> None:
        super().__init__(*observers)
        self._waiting: list[Review] = []

    def reviewed(self, review: Review) -> None:
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
