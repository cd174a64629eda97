"""One observer that tells several: whoever reports names one, and does not know how many listen."""

from collections.abc import Sequence

from webhook.core.breaker import Transition
from webhook.core.policy import LoadedPolicy
from webhook.ports import Observer, Review


class Observers:
    """Tells each of `observers`, in order. With none it is the observer of the offline commands."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def reviewed(self, review: Review) -> None:
        for observer in self._observers:
            observer.reviewed(review)

    def transitioned(self, transition: Transition) -> None:
        for observer in self._observers:
            observer.transitioned(transition)

    def refused(self, reason: str, detail: str) -> None:
        for observer in self._observers:
            observer.refused(reason, detail)

    def policy_loaded(self, loaded: LoadedPolicy) -> None:
        for observer in self._observers:
            observer.policy_loaded(loaded)

    def policy_failed(self, errors: Sequence[str]) -> None:
        for observer in self._observers:
            observer.policy_failed(errors)

    def policy_judged(self, user: str, errors: Sequence[str]) -> None:
        for observer in self._observers:
            observer.policy_judged(user, errors)
