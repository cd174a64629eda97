"""Endpoint that receives pushed outcomes: checks the reporter's authorization and answers each batch."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice

from webhook.core import outcomes as report
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.outcomes import REFUSALS_LISTED_MAX, PushedOutcome, Refusal, RefusedOutcome
from webhook.errors import NoPolicyError
from webhook.outcomes.aggregator import OutcomeAggregator, OutcomeReports
from webhook.ports import Caller, Clock

_TURN_OUTCOMES_MAX = 100
"""Outcomes of all reporters per turn of the event loop, so that reviews run in between."""
_WAITING_BYTES_MAX = 64 * 1024 * 1024
"""Maximum size of the waiting bodies, about a hundred of the largest batches without padding."""


class TooManyReportsError(Exception):
    """Too many bytes of reports are waiting to be processed."""


class NotAReporterError(Exception):
    """The reporter may not push outcomes for any service in its batch. The message is safe to show to it."""


class OutcomeEndpoint:
    """`/v1/outcomes`. Answers reveal only services that list the reporter."""

    def __init__(
        self,
        policy: Callable[[], CompiledPolicy | None],
        buffer: OutcomeAggregator,
        clock: Clock,
        reports: OutcomeReports,
    ) -> None:
        self._policy = policy
        self._buffer = buffer
        self._clock = clock
        self._reports = reports
        self._turn = asyncio.Lock()
        self._waiting_bytes = 0

    async def receive(self, body: bytes, caller: Caller) -> bytes:
        """Process one batch, after those before it, and return the response body.

        BadOutcomesError: the body is invalid; nothing is accepted. NotAReporterError: the caller may not push any of
        it. NoPolicyError: no policy is loaded yet. TooManyReportsError: the reporter should retry later.
        """
        at_us = self._clock.now_us()
        if self._waiting_bytes and self._waiting_bytes + len(body) > _WAITING_BYTES_MAX:
            raise TooManyReportsError("too many reports in flight")
        self._waiting_bytes += len(body)
        try:
            async with self._turn:
                await asyncio.sleep(0)  # small and invalid batches take time, too, so yield before them
                return await self._take(body, caller, at_us)
        finally:
            self._waiting_bytes -= len(body)

    async def _take(self, body: bytes, caller: Caller, at_us: int) -> bytes:
        compiled = self._policy()
        if compiled is None:
            raise NoPolicyError("no good policy has been loaded yet")
        outcomes = report.decode(body)
        by_service: dict[str, list[PushedOutcome]] = {}
        for outcome in outcomes:
            by_service.setdefault(outcome.service, []).append(outcome)
        refusals = {
            service: refusal
            for service in by_service
            if (refusal := report.find_refusal(compiled.services.get(service), caller.client_id)) is not None
        }
        self._count(refusals, by_service)
        listed = list(islice(_list_refused(outcomes, refusals, caller.client_id), REFUSALS_LISTED_MAX))
        if listed and len(refusals) == len(by_service):
            first = listed[0]
            raise NotAReporterError(f"[{first.index}].service: {first.service}: {first.reason}")
        accepted = since_yield = 0
        for service, part in _split(by_service, refusals):
            self._buffer.take(compiled.plans[service], part, at_us)
            accepted, since_yield = accepted + len(part), since_yield + len(part)
            if since_yield >= _TURN_OUTCOMES_MAX:
                since_yield = 0
                await asyncio.sleep(0)
        return report.encode(accepted, listed)

    def _count(self, refusals: Mapping[str, Refusal], by_service: Mapping[str, Sequence[PushedOutcome]]) -> None:
        for service, refusal in refusals.items():
            self._reports.on_outcomes_refused(refusal, len(by_service[service]))


def _split(
    by_service: Mapping[str, Sequence[PushedOutcome]], refusals: Mapping[str, Refusal]
) -> Iterator[tuple[str, Sequence[PushedOutcome]]]:
    for service, outcomes in by_service.items():
        if service not in refusals:
            for start in range(0, len(outcomes), _TURN_OUTCOMES_MAX):
                yield service, outcomes[start : start + _TURN_OUTCOMES_MAX]


def _list_refused(
    outcomes: Sequence[PushedOutcome], refusals: Mapping[str, Refusal], client_id: str
) -> Iterator[RefusedOutcome]:
    for index, outcome in enumerate(outcomes if refusals else ()):
        if outcome.service in refusals:
            yield report.build_refused_outcome(index, outcome.service, client_id)
