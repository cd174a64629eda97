"""Troubles with the store in the release loop: what goes on without an answer, and what is reported."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from webhook.errors import StoreUnavailableError


class StoreTroubles:
    """Calls without an answer in one round of the release loop: services on other nodes of the store go on.

    Each trouble is reported once a round, however many calls had it.
    """

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._reported: set[str] = set()

    def begin_round(self) -> None:
        self._reported = set()

    @contextmanager
    def pass_over(self) -> Iterator[None]:
        """Leave the block at a call without an answer, and go on after it."""
        try:
            yield
        except StoreUnavailableError as error:
            if (said := str(error)) not in self._reported:
                self._reported.add(said)
                self._report(said)
