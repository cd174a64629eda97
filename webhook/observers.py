"""Composite observer: forwards every event to several observers."""

from collections.abc import Callable, Mapping, Sequence

from webhook.core.breaker import Transition
from webhook.core.overload import OverloadCause
from webhook.core.overrides import Override
from webhook.core.policy.model import LoadedPolicy
from webhook.ports import Observer, PartialObserver, Review


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
        if getattr(type(observer), "reviewed", None) is not PartialObserver.reviewed:  # that one does nothing
            self._of_reviews.append(observer.reviewed)

    def reviewed(self, review: Review) -> None:
        for of_reviews in self._of_reviews:
            of_reviews(review)

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

    def policy_judged(self, user: str, errors: Sequence[str], document: str) -> None:
        for observer in self._observers:
            observer.policy_judged(user, errors, document)

    def overrides_loaded(self, live: Sequence[Override]) -> None:
        for observer in self._observers:
            observer.overrides_loaded(live)

    def overrides_failed(self, errors: Sequence[str]) -> None:
        for observer in self._observers:
            observer.overrides_failed(errors)

    def override_changed(self, service: str, former: Override | None, now: Override | None) -> None:
        for observer in self._observers:
            observer.override_changed(service, former, now)

    def webhooks_outdated(self, outdated: Sequence[str]) -> None:
        for observer in self._observers:
            observer.webhooks_outdated(outdated)

    def not_reviewed(self, service: str, pod: str) -> None:
        for observer in self._observers:
            observer.not_reviewed(service, pod)

    def overload_changed(self, former: Mapping[OverloadCause, str], now: Mapping[OverloadCause, str]) -> None:
        for observer in self._observers:
            observer.overload_changed(former, now)
