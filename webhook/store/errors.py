"""Acquires that the store gave no answer to: whether one may be carried out all the same, and what came of its Pod."""

from collections.abc import Callable

from webhook.errors import StoreUnavailableError


class NoStoreAnswerError(StoreUnavailableError):
    """The store gave no answer. `sent`: it had been asked, and may do it yet; else it never heard of it."""

    def __init__(self, reason: str, *, sent: bool) -> None:
        super().__init__(reason)
        self.sent = sent


class UncountedError(StoreUnavailableError):
    """Somebody else must decide on this Pod. Who admits it calls `admitted`, so that it is counted afterwards."""

    def __init__(self, reason: str, admitted: Callable[[], None]) -> None:
        super().__init__(reason)
        self.admitted = admitted
