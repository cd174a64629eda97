"""Outcomes on their way to the breakers: whose they may be, and what their sender hears."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice

from webhook.core import pushed
from webhook.core.draft import Compiled
from webhook.core.pushed import MOST_LISTED, Pushed, Refusal, RefusedOutcome
from webhook.errors import NoPolicyError
from webhook.outcome_buffer import OutcomeBuffer, OutcomeReports
from webhook.ports import Caller, Clock

_AT_ONCE = 500
"""Outcomes between which reviews have their turn: the largest batch takes up to 20 ms."""


class NotAReporterError(Exception):
    """Of all that was sent nothing is of a service that this reporter may speak for. Safe to show to it."""


class OutcomeReceiver:
    """`/v1/outcomes`. A reporter learns of no service but those that name it."""

    def __init__(
        self, policy: Callable[[], Compiled | None], buffer: OutcomeBuffer, clock: Clock, reports: OutcomeReports
    ) -> None:
        self._policy = policy
        self._buffer = buffer
        self._clock = clock
        self._reports = reports

    async def receive(self, body: bytes, caller: Caller) -> bytes:
        """Take one batch, and return the answer to it.

        BadOutcomesError: nothing is taken, the body is wrong. NotAReporterError: nothing of it is the caller's to say.
        NoPolicyError: nobody knows yet whose it is.
        """
        at_us, compiled = self._clock.now_us(), self._policy()
        if compiled is None:
            raise NoPolicyError("no good policy has been loaded yet")
        outcomes = pushed.decode(body)
        by_service: dict[str, list[Pushed]] = {}
        for outcome in outcomes:
            by_service.setdefault(outcome.service, []).append(outcome)
        refusals = {
            service: refusal
            for service in by_service
            if (refusal := pushed.refusal(compiled.services.get(service), caller.client_id)) is not None
        }
        self._count(refusals, by_service)
        listed = list(islice(_refused(outcomes, refusals, caller.client_id), MOST_LISTED))
        if listed and len(refusals) == len(by_service):
            first = listed[0]
            raise NotAReporterError(f"[{first.index}].service: {first.service}: {first.reason}")
        accepted = since = 0
        for service, part in _parts(by_service, refusals):
            self._buffer.take(compiled.plans[service], part, at_us)
            accepted, since = accepted + len(part), since + len(part)
            if since >= _AT_ONCE:
                since = 0
                await asyncio.sleep(0)
        return pushed.encode(accepted, listed)

    def _count(self, refusals: Mapping[str, Refusal], by_service: Mapping[str, Sequence[Pushed]]) -> None:
        for service, refusal in refusals.items():
            self._reports.on_refused(refusal, len(by_service[service]))


def _parts(
    by_service: Mapping[str, Sequence[Pushed]], refusals: Mapping[str, Refusal]
) -> Iterator[tuple[str, Sequence[Pushed]]]:
    for service, outcomes in by_service.items():
        if service not in refusals:
            for start in range(0, len(outcomes), _AT_ONCE):
                yield service, outcomes[start : start + _AT_ONCE]


def _refused(outcomes: Sequence[Pushed], refusals: Mapping[str, Refusal], client_id: str) -> Iterator[RefusedOutcome]:
    for index, outcome in enumerate(outcomes if refusals else ()):
        if outcome.service in refusals:
            yield pushed.refused(index, outcome.service, client_id)
