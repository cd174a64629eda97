"""Errors of a store that did not answer."""

from webhook.errors import StoreUnavailableError


class NoStoreAnswerError(StoreUnavailableError):
    """The store gave no answer. `sent`: the request was sent and may still be carried out; otherwise it never will."""

    def __init__(self, reason: str, *, sent: bool) -> None:
        super().__init__(reason)
        self.sent = sent


class UncountedError(StoreUnavailableError):
    """The store gave no answer, and the caller decides on the Pod: `CounterStore.book_later` if it is admitted."""
